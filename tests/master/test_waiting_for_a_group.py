"""Who waits for the others of its group goes on only where the group would lack a gradient."""

import asyncio
import time

from support.served_master import PATIENCE_S, ServedMaster, gradient, messages

from elastic.policy.replicas import ReplicaId
from elastic.policy.updates import update_group
from elastic.rpc import elastic_pb2 as pb

ACCEPTED = pb.ReportGradientReply.VERDICT_ACCEPTED
STALE = pb.ReportGradientReply.VERDICT_STALE


class _Crew:
    """Workers that have a task each, and report its records one by one."""

    def __init__(self, peer):
        self._peer = peer
        self._workers = {}

    async def join(self, num_workers):
        for index in range(num_workers):
            session = await self._peer.register(index)
            self._workers[index] = [session, await self._peer.get_task(session), 0]

    def report(self, index, version=0):
        """The pending reply to the next gradient of a worker."""
        session, task, sequence = self._workers[index]
        self._workers[index][2] = sequence + 1
        start = task.start + sequence
        sent = gradient(session, task, start, start + 1, sequence + 1, version)

        async def reply():
            reply = await self._peer.report(messages(*sent))
            return reply.verdict, reply.model_version

        return asyncio.create_task(reply())


def _run(scenario, num_workers, grads_to_wait):
    async def play():
        master = ServedMaster(records_per_task=10, grads_to_wait=grads_to_wait)
        async with master.serve() as peer:
            crew = _Crew(peer)
            await crew.join(num_workers)
            await scenario(master.job, crew)

    asyncio.run(asyncio.wait_for(play(), PATIENCE_S))


async def _until(condition):
    while not condition():
        await asyncio.sleep(0.005)


def test_who_has_waited_for_long_goes_on_and_the_one_it_waited_for_is_too_late(monkeypatch):
    monkeypatch.setattr(update_group, "DEFAULT_HOLD_S", 0.05)

    async def scenario(_job, crew):
        assert await crew.report(0) == (ACCEPTED, 0)
        assert await crew.report(0) == (ACCEPTED, 1)
        assert await crew.report(1) == (STALE, 1)

    _run(scenario, num_workers=2, grads_to_wait=2)


def test_one_goes_on_in_place_of_one_that_is_silent(monkeypatch):
    """The others wait for that one: what they would compute beside it would be refused."""

    async def scenario(job, crew):
        group = job.updates._group

        # Whatever this machine is doing, they have waited too long as soon as all three wait, and
        # the one that goes on is waited for.
        def limit_s(_typical_step_s):
            is_over = group.num_staged == 3 and not group.at_work._late
            return 0.0 if is_over else PATIENCE_S

        monkeypatch.setattr("elastic.policy.updates.update_group.hold_limit_s", limit_s)
        reports = {crew.report(index): index for index in (0, 1, 2)}
        await _until(lambda: group.num_staged == 3)
        job.updates._wake()
        done, held = await asyncio.wait(reports, return_when=asyncio.FIRST_COMPLETED)
        [first] = done
        assert first.result() == (ACCEPTED, 0)
        replies = await asyncio.gather(crew.report(reports[first]), *held)
        assert replies == [(ACCEPTED, 1)] * 3
        assert job.updates.rejected_gradients == 0

    _run(scenario, num_workers=4, grads_to_wait=4)


def test_who_was_too_late_is_waited_for_again(monkeypatch):
    """It computes on the current version now."""
    monkeypatch.setattr(update_group, "DEFAULT_HOLD_S", PATIENCE_S)
    monkeypatch.setattr(update_group, "MIN_HOLD_S", PATIENCE_S)

    async def scenario(job, crew):
        job.updates._group.at_work.give_up(time.monotonic())
        assert await crew.report(0) == (ACCEPTED, 0)
        assert await crew.report(0) == (ACCEPTED, 1)
        assert await crew.report(1) == (STALE, 1)
        assert job.updates._group.at_work.num_awaited == 2

    _run(scenario, num_workers=2, grads_to_wait=2)


def test_nobody_goes_on_while_the_update_is_made(monkeypatch):
    """On the version before, which somebody's loss would otherwise have it do."""
    monkeypatch.setattr(update_group, "DEFAULT_HOLD_S", PATIENCE_S)

    async def scenario(job, crew):
        begun, go_on = asyncio.Event(), asyncio.Event()
        commit = job.parameters.commit

        async def slowly(*args):
            begun.set()
            await go_on.wait()
            return await commit(*args)

        monkeypatch.setattr(job.parameters, "commit", slowly)
        reports = [crew.report(0), crew.report(1)]
        await begun.wait()
        job.tasks.lose(ReplicaId("worker", 2, 1))
        for _ in range(20):
            await asyncio.sleep(0)
        go_on.set()
        assert await asyncio.gather(*reports) == [(ACCEPTED, 1)] * 2

    _run(scenario, num_workers=3, grads_to_wait=2)
