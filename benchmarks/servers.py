"""A gradient pushed and applied, and a whole exchange of one step, by parameter servers against
the master's own way."""

import time
from contextlib import ExitStack
from functools import partial

import numpy as np

from benchmarks.master_process import TOKEN
from benchmarks.measure import Ratio, Series, take_turns
from benchmarks.models.dense_torch import NUM_TENSORS, WIDTH
from benchmarks.processes import Server
from benchmarks.push import PATIENCE_S
from benchmarks.sizes import Size
from elastic.rpc import elastic_pb2 as pb
from elastic.rpc.client import MasterClient
from elastic.rpc.layout import Array
from elastic.worker.servers import ServerExchange
from elastic.worker.strategy import Exchange, MasterExchange

NUMBERS = (1, 2)
"""Of servers."""


class Stepper:
    """One worker that exchanges gradients for versions, and computes nothing."""

    def __init__(
        self,
        address: str,
        num_servers: int,
        launch: int,
        gradients: dict[str, Array],
        *,
        share_memory: bool,
    ) -> None:
        """Register as this launch of the worker, which replaces those before."""
        self._client = MasterClient(lambda: address, TOKEN, PATIENCE_S, share_memory)
        self._stack = ExitStack()
        self._stack.callback(self._client.close)
        self._gradients = gradients
        session = self._client.register(pb.RegisterRequest(worker_index=0, launch=launch))
        self._exchange: Exchange = MasterExchange(self._client)
        if num_servers:
            by_servers = ServerExchange(self._client, is_synchronous=True)
            self._stack.callback(by_servers.close)
            self._exchange = by_servers
        self._exchange.begin(session)
        pulled = self._exchange.get_model(None)
        assert pulled is not None
        self._version = pulled.version
        self._task = self._client.get_task(session.key).task
        self._next = self._task.start
        self._sequence = 0

    def pushes_gb_per_s(self, num_steps: int) -> float:
        """Gigabytes of gradient a second, each push to its reply."""
        return self._gb_per_s(num_steps, pulls=False)

    def steps_gb_per_s(self, num_steps: int) -> float:
        """The same where each push is followed by the version that it makes."""
        return self._gb_per_s(num_steps, pulls=True)

    def close(self) -> None:
        self._stack.close()

    def _gb_per_s(self, num_steps: int, *, pulls: bool) -> float:
        size_bytes = sum(array.nbytes for array in self._gradients.values())
        began_s = time.perf_counter()
        for _ in range(num_steps):
            self._step(pulls)
        return num_steps * size_bytes / (time.perf_counter() - began_s) / 1e9

    def _step(self, pulls: bool) -> None:
        self._sequence += 1
        header = pb.GradientHeader(
            sequence=self._sequence,
            task_id=self._task.task_id,
            attempt=self._task.attempt,
            start=self._next,
            end=self._next + 1,
            model_version=self._version,
            wants_model=pulls,
        )
        self._next += 1
        reply = self._exchange.report_gradient(header, self._gradients, {})
        assert reply.verdict == pb.ReportGradientReply.VERDICT_ACCEPTED
        self._version = reply.model_version
        if pulls:
            pulled = self._exchange.model_of(reply) or self._exchange.get_model(None)
            assert pulled is not None
            assert pulled.version == self._version


def run(size: Size) -> list[Ratio]:
    """With one server and with two, over memory that both sides map and in chunks."""
    with ExitStack() as stack:
        masters = [_master(stack, size, number) for number in (0, *NUMBERS)]
        return [
            ratio
            for launch, shared in enumerate((True, False), 1)
            for ratio in _measured(masters, size, launch, share_memory=shared)
        ]


def _master(stack: ExitStack, size: Size, num_servers: int) -> str:
    """Start a master with servers of its own; returns its address."""
    servers = [stack.enter_context(Server("benchmarks.server_process")) for _ in range(num_servers)]
    master = stack.enter_context(
        Server(
            "benchmarks.master_process",
            *("--payload_mb", size.payload_mb, "--num_tasks", 4),
            *("--records_per_task", 10**6),
            *("--servers", ",".join(each.ready["address"] for each in servers)),
        )
    )
    address: str = master.ready["address"]
    return address


def _measured(masters: list[str], size: Size, launch: int, *, share_memory: bool) -> list[Ratio]:
    rows = size.payload_mb * 10**6 // (4 * NUM_TENSORS * WIDTH)
    gradients = {f"matrices.{i}": np.ones((rows, WIDTH), np.float32) for i in range(NUM_TENSORS)}
    way = "shared memory" if share_memory else "chunks"
    ratios = []
    with ExitStack() as stack:
        steppers = []
        for number, address in zip((0, *NUMBERS), masters, strict=True):
            stepper = Stepper(address, number, launch, gradients, share_memory=share_memory)
            stack.callback(stepper.close)
            steppers.append(stepper)
        for what in ("pushes_gb_per_s", "steps_gb_per_s"):
            measures = [partial(getattr(each, what), size.num_pushes) for each in steppers]
            own, *others = take_turns(size.rounds, *measures)
            step = "push + apply" if what.startswith("pushes") else "push + apply + pull"
            for number, values in zip(NUMBERS, others, strict=True):
                plural = "server" if number == 1 else "servers"
                ratios.append(
                    Ratio(
                        f"{step}, {size.payload_mb} MB, {number} {plural}, {way}",
                        Series(f"{number} {plural}", "GB/s", values),
                        Series("in the master", "GB/s", own),
                        None,
                    )
                )
    return ratios
