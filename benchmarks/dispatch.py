"""Leasing and finishing tasks, against calls of the same server that do nothing."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from typing import Any, Final, Self

import grpc

from benchmarks.master_process import EMPTY_PATH, TOKEN
from benchmarks.measure import Bar, Ratio, Series, take_turns
from benchmarks.processes import Server
from benchmarks.sizes import Size
from elastic.rpc import elastic_pb2 as pb
from elastic.rpc.wire import METHODS

NUM_WORKERS: Final = 8
"""Enough callers to keep the server's core busy all the time."""

BAR: Final = Bar(first=0.6, goal=0.9)
FLAT_BAR: Final = Bar(first=1.2, goal=1.05, is_ceiling=True)
METADATA: Final = (("authorization", f"Bearer {TOKEN}"),)


class Callers:
    """Some workers of one process, each with a session of its own and one call at a time.

    Requests are built and replies are read as bytes where that is possible, so that this side
    costs as little as it can.
    """

    def __init__(self, address: str) -> None:
        self._channel = grpc.aio.insecure_channel(address)
        self._empty = self._channel.unary_unary(EMPTY_PATH)
        self._get_task = self._channel.unary_unary(METHODS["GetTask"].path)
        self._report = self._channel.unary_unary(METHODS["ReportTaskResult"].path)
        self._sessions: list[str] = []

    async def register(self) -> None:
        """Open the sessions."""
        register = self._channel.unary_unary(METHODS["Register"].path)
        for index in range(NUM_WORKERS):
            request = pb.RegisterRequest(worker_index=index, launch=1)
            reply = await register(request.SerializeToString(), metadata=METADATA)
            self._sessions.append(pb.RegisterReply.FromString(reply).session)

    async def close(self) -> None:
        await self._channel.close()

    async def tasks_per_s(self, num_tasks: int) -> float:
        """Calls a second of GetTask and ReportTaskResult in turn."""
        return await self._calls_per_s(self._work, num_tasks)

    async def empty_per_s(self, num_tasks: int) -> float:
        """Calls a second of the empty method, as many as for so many tasks."""
        return await self._calls_per_s(self._idle, num_tasks)

    async def _calls_per_s(
        self, caller: Callable[[str, int], Coroutine[Any, Any, int]], num_tasks: int
    ) -> float:
        each = -(-num_tasks // NUM_WORKERS)
        began_s = time.perf_counter()
        calls = await asyncio.gather(*(caller(session, each) for session in self._sessions))
        return sum(calls) / (time.perf_counter() - began_s)

    async def _work(self, session: str, num_tasks: int) -> int:
        get_task = pb.GetTaskRequest(session=session).SerializeToString()
        num_calls = num_done = 0
        while num_done < num_tasks:
            reply = pb.GetTaskReply.FromString(await self._get_task(get_task, metadata=METADATA))
            num_calls += 1
            if not reply.HasField("task"):
                # The last tasks of an epoch are with others; the next epoch begins after them.
                continue
            report = pb.ReportTaskResultRequest(
                session=session,
                task_id=reply.task.task_id,
                attempt=reply.task.attempt,
                # The one outcome that counts records without a gradient.
                outcome=pb.ReportTaskResultRequest.OUTCOME_EMPTY,
                start=reply.task.start,
                end=reply.task.end,
            )
            accepted = await self._report(report.SerializeToString(), metadata=METADATA)
            assert pb.ReportTaskResultReply.FromString(accepted).accepted
            num_calls += 1
            num_done += 1
        return num_calls

    async def _idle(self, _session: str, num_tasks: int) -> int:
        for _ in range(2 * num_tasks):
            await self._empty(b"", metadata=METADATA)
        return 2 * num_tasks


class Meter:
    """One server, measured through its callers."""

    def __init__(self, runner: asyncio.Runner, server: Server, num_tasks: int) -> None:
        self._runner = runner
        self._server = server
        # The same number for every caller.
        self._num_tasks = -(-num_tasks // NUM_WORKERS) * NUM_WORKERS
        self._callers = Callers(server.ready["address"])
        self.cpu_us: list[float] = []
        """Microseconds of the server's processor time for a task, measurement by measurement."""

    def __enter__(self) -> Self:
        self._runner.run(self._callers.register())
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._callers.close())

    def tasks_per_s(self) -> float:
        began_s = self._server.cpu_s()
        rate = self._runner.run(self._callers.tasks_per_s(self._num_tasks))
        self.cpu_us.append((self._server.cpu_s() - began_s) / self._num_tasks * 1e6)
        return rate

    def empty_per_s(self) -> float:
        return self._runner.run(self._callers.empty_per_s(self._num_tasks))


def run(size: Size) -> list[Ratio]:
    """One ratio for each number of queued tasks, and the largest against the smallest."""
    with ExitStack() as stack:
        runner = stack.enter_context(asyncio.Runner())
        servers = [
            stack.enter_context(Server("benchmarks.master_process", "--num_tasks", count))
            for count in size.task_counts
        ]
        meters = [stack.enter_context(Meter(runner, server, size.num_tasks)) for server in servers]
        columns = take_turns(
            size.rounds,
            *(way for meter in meters for way in (meter.tasks_per_s, meter.empty_per_s)),
        )
        facts = servers[-1].ready
    rates = [
        Ratio(
            f"dispatch, {count:,} tasks queued",
            Series("GetTask + ReportTaskResult", "calls/s", tasks),
            Series("empty unary calls", "calls/s", empty),
            BAR,
        )
        for count, tasks, empty in zip(size.task_counts, columns[0::2], columns[1::2], strict=True)
    ]
    return [*rates, _flatness(size, meters, facts)]


def _flatness(size: Size, meters: list[Meter], facts: dict[str, Any]) -> Ratio:
    """Processor time, which other programs disturb less than calls a second."""
    fewest, most = (
        Series(
            f"of the master for a task, {count:,} queued", "µs", tuple(meter.cpu_us[-size.rounds :])
        )
        for count, meter in ((size.task_counts[0], meters[0]), (size.task_counts[-1], meters[-1]))
    )
    note = (
        f"the ledger of {size.task_counts[-1]:,} tasks is made in {facts['ledger_s']:.2f} s "
        f"and takes {facts['ledger_mb']:.0f} MB"
    )
    return Ratio("dispatch, flatness", most, fewest, FLAT_BAR, note)
