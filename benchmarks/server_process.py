"""One parameter server for benchmarks, over the dense model's optimizer; the master is theirs."""

import asyncio
import sys

import grpc

from benchmarks.dense import MODELS
from benchmarks.master_process import TOKEN
from benchmarks.processes import announce
from elastic.frameworks import load_framework
from elastic.ps.servicer import BuildShare, ServerServicer
from elastic.rpc.network import SocketListeners
from elastic.rpc.server import SERVER_OPTIONS, ServerHandler
from elastic.spec.model_def import SymbolNames, load_model_def


def share_builder() -> BuildShare:
    """What makes the optimizer of a share."""
    model_def = load_model_def(MODELS, "dense_torch.CustomModel", SymbolNames(optimizer="sgd"))
    framework = load_framework("torch")
    return lambda whole, parameters, state, total_steps: framework.build_share(
        model_def, whole, parameters, state, total_steps
    )


async def _serve() -> None:
    listeners = SocketListeners()
    handler = ServerHandler(ServerServicer(share_builder(), listeners.proof), TOKEN)
    server = grpc.aio.server(options=SERVER_OPTIONS)
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    await listeners.start(handler, TOKEN, None, "127.0.0.1")
    announce(address=f"127.0.0.1:{port}")
    await asyncio.to_thread(sys.stdin.read)
    await server.stop(None)


if __name__ == "__main__":
    asyncio.run(_serve())
