"""`python -m benchmarks.master_process`: a real servicer over a real ledger, for any client.

It also answers an empty method behind the same authentication, by the same server.
"""

import argparse
import asyncio
import gc
import sys
import time
from dataclasses import replace
from typing import Any, Final

import grpc
import psutil

from benchmarks.dense import build_dense
from benchmarks.processes import announce
from elastic.master.coordination.running import Listeners, RunningJob
from elastic.master.coordination.updates import CommitLog
from elastic.master.parameters.servers import ServerLife, ServerParameters, ServerRing, ServerRules
from elastic.master.parameters.store import ParameterStore
from elastic.master.parameters.strategy import AnyStrategy
from elastic.master.servicer import MasterServicer, Reception
from elastic.platforms.certificates import make_certificate
from elastic.policy.fleet import Liveness
from elastic.policy.replicas import ReplicaId
from elastic.policy.tasks.ledger import Ledger, LedgerConfig
from elastic.policy.tasks.records import RecordRange, Shard, Task, TaskKind
from elastic.policy.updates.update_group import UpdateRule
from elastic.rpc.network import SocketListeners
from elastic.rpc.server import SERVER_OPTIONS, MasterHandler
from elastic.rpc.wire import METHODS, SERVICE, add_port
from elastic.spec.roles import PS
from elastic.telemetry.meter import JobMeter

TOKEN: Final = "benchmark"
CERTIFICATE: Final = make_certificate("benchmark")
EMPTY_PATH: Final = f"/{SERVICE}/Empty"
NEVER_S: Final = 3600.0


class HandlerWithEmpty(MasterHandler):
    """The master's handler with one method more, which does nothing."""

    def __init__(self, service: Reception) -> None:
        super().__init__(service, TOKEN)

        async def empty(_request: bytes, _context: Any) -> bytes:
            return b""

        handler = grpc.unary_unary_rpc_method_handler(empty)
        some = self._endpoints[METHODS["Heartbeat"].path]
        self._endpoints[EMPTY_PATH] = replace(some, handler=handler)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num_tasks", type=int, default=100, help="tasks of an epoch")
    parser.add_argument("--records_per_task", type=int, default=1)
    parser.add_argument("--payload_mb", type=int, default=1, help="megabytes of parameters")
    parser.add_argument("--encrypts", action="store_true", help="take calls by TLS alone")
    parser.add_argument("--by_grpc", action="store_true", help="take none by sockets elsewhere")
    parser.add_argument("--servers", default="", help="addresses of parameter servers, as a,b")
    asyncio.run(_serve(parser.parse_args()))


async def _serve(arguments: argparse.Namespace) -> None:
    shard = Shard("records", 0, arguments.num_tasks * arguments.records_per_task)
    model, updater = build_dense("torch", "sgd", arguments.payload_mb)
    # Collect now, so that what the ledger needs is not hidden in what others have freed.
    gc.collect()
    rss_bytes = psutil.Process().memory_info().rss
    began_s = time.perf_counter()
    ledger = Ledger([shard], LedgerConfig(arguments.records_per_task, num_epochs=10**6))
    ledger_s = time.perf_counter() - began_s
    ledger_mb = (psutil.Process().memory_info().rss - rss_bytes) / 1e6
    parameters = _parameters(ParameterStore(model, updater), arguments.servers)
    await parameters.start()
    job = RunningJob.assemble(
        ledger,
        parameters,
        UpdateRule(),
        Liveness(NEVER_S, NEVER_S),
        CommitLog(""),
        Listeners(lambda _kind, _message: None, lambda _index: None, JobMeter()),
    )
    sample = Task(0, 0, TaskKind.TRAINING, 0, RecordRange(0, 0, 1), shard)
    server = grpc.aio.server(options=SERVER_OPTIONS)
    reception = Reception({}, lambda _replica: 0)
    listeners = SocketListeners()
    reception.open(MasterServicer(job, sample, lambda _replica: 0, proof=listeners.proof))
    handler = HandlerWithEmpty(reception)
    server.add_generic_rpc_handlers((handler,))
    certificate = CERTIFICATE if arguments.encrypts else None
    await listeners.start(handler, TOKEN, certificate, "127.0.0.1")
    if arguments.by_grpc:
        listeners.proof.calls_port = 0
    port = add_port(server, "127.0.0.1:0", certificate)
    await server.start()
    announce(
        address=f"127.0.0.1:{port}",
        ledger_s=ledger_s,
        ledger_mb=ledger_mb,
    )
    await asyncio.to_thread(sys.stdin.read)
    await server.stop(None)


def _parameters(store: ParameterStore, servers: str) -> AnyStrategy:
    """The master's own parameters, or those of servers."""
    addresses = [address for address in servers.split(",") if address]
    if not addresses:
        return store
    ring = ServerRing(len(addresses))
    for index, address in enumerate(addresses):
        ring.announced(ServerLife(ReplicaId(PS, index, 1), "life", address))
    rules = ServerRules(TOKEN, 0, is_synchronous=True, first_s=NEVER_S, limit_s=NEVER_S)
    return ServerParameters(store, ring, rules, lambda _life: None)


if __name__ == "__main__":
    main()
