"""Whatever is lost, repeated or late on the wire, a gradient counts once."""

import asyncio

import pytest
from support.served_master import PATIENCE_S, ServedMaster, data_message, gradient, messages

from elastic.policy.replicas import ReplicaId
from elastic.policy.updates import update_group
from elastic.rpc import elastic_pb2 as pb

VERDICTS = pb.ReportGradientReply
UNKNOWN_SESSION = ("FAILED_PRECONDITION", "unknown session: register again")


def _run(scenario, **settings):
    """Play a scenario against a fresh master."""

    async def play():
        master = ServedMaster(**settings)
        async with master.serve() as peer:
            await scenario(master, peer)
        return master

    return asyncio.run(asyncio.wait_for(play(), PATIENCE_S))


def _counted(master, start, end, times=1):
    expected = [times if start <= index < end else 0 for index in range(40)]
    assert master.counts().tolist() == expected


def test_a_repeated_report_gets_the_first_reply():
    async def scenario(master, peer):
        session = await peer.register()
        task = await peer.get_task(session)
        report = messages(*gradient(session, task, 0, 8))
        replies = [await peer.report(report) for _ in range(3)]
        assert replies == [VERDICTS(verdict=VERDICTS.VERDICT_ACCEPTED, model_version=1)] * 3
        _counted(master, 0, 8)
        assert master.store.version == 1

    _run(scenario)


def test_a_repeated_refusal_gets_the_first_reply():
    async def scenario(master, peer):
        session = await peer.register()
        task = await peer.get_task(session)
        await peer.report(messages(*gradient(session, task, 0, 8)))
        stale = messages(*gradient(session, task, 8, 16, sequence=2, version=0))
        replies = [await peer.report(stale) for _ in range(2)]
        assert replies == [VERDICTS(verdict=VERDICTS.VERDICT_STALE, model_version=1)] * 2
        assert master.job.updates.rejected_gradients == 1

    _run(scenario)


@pytest.mark.parametrize("last_of_task", [False, True])
def test_a_report_that_overtakes_itself_counts_once(last_of_task):
    """The caller gave the first call up and tried again, while its bytes were still coming."""

    async def scenario(master, peer):
        session = await peer.register()
        task = await peer.get_task(session)
        end = task.end if last_of_task else 8
        header, chunk = messages(*gradient(session, task, 0, end))
        go_on = asyncio.Event()

        async def slowly():
            yield header
            await go_on.wait()
            yield chunk

        first = peer.report(slowly())
        await _until_heard(master, session)
        second = await peer.report([header, chunk])
        go_on.set()
        assert await first == second
        assert second.verdict == VERDICTS.VERDICT_ACCEPTED
        _counted(master, 0, end)

    _run(scenario)


def test_a_report_whose_caller_hung_up_counts_once():
    async def scenario(master, peer):
        session = await peer.register()
        task = await peer.get_task(session)
        report = messages(*gradient(session, task, 0, 8))
        async with master.store.lock:
            # The update cannot begin; the caller loses patience.
            call = peer.report(report)
            await _until(lambda: master.job.sessions.find(session).sequence == 1)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        assert (await peer.report(report)).verdict == VERDICTS.VERDICT_ACCEPTED
        _counted(master, 0, 8)

    _run(scenario)


def test_a_report_that_waits_for_its_group_survives_its_caller(monkeypatch):
    # However slow we are, the first one is not let go before the second is there.
    monkeypatch.setattr(update_group, "DEFAULT_HOLD_S", PATIENCE_S)

    async def scenario(master, peer):
        one, two = await peer.register(0), await peer.register(1)
        tasks = [await peer.get_task(one), await peer.get_task(two)]
        report = messages(*gradient(one, tasks[0], 0, 8))
        call = peer.report(report)
        await _until(lambda: master.job.updates._group.num_staged == 1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        again = peer.report(report)
        other = await peer.report(messages(*gradient(two, tasks[1], 20, 28)))
        assert await again == other == VERDICTS(verdict=VERDICTS.VERDICT_ACCEPTED, model_version=1)
        assert master.counts().sum() == 16

    _run(scenario, grads_to_wait=2)


def test_a_report_that_breaks_off_can_be_sent_again():
    async def scenario(master, peer):
        session = await peer.register()
        task = await peer.get_task(session)
        header, data = gradient(session, task, 0, 8)

        async def half():
            yield pb.GradientChunk(header=header)
            yield data_message(data[:64])
            await asyncio.Event().wait()

        call = peer.report(half())
        await _until_heard(master, session)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        reply = await peer.report(messages(header, data))
        assert reply.verdict == VERDICTS.VERDICT_ACCEPTED
        _counted(master, 0, 8)

    _run(scenario)


def test_a_new_session_ends_the_old_one():
    async def scenario(master, peer):
        old = await peer.register()
        task = await peer.get_task(old)
        new = await peer.register()
        late = messages(*gradient(old, task, 0, 8))
        assert await peer.refusal(peer.report(late)) == UNKNOWN_SESSION
        # The process that kept its task over a registration no longer holds it either.
        reply = await peer.report(messages(*gradient(new, task, 0, 8)))
        assert reply.verdict == VERDICTS.VERDICT_LEASE_LOST
        assert master.store.version == master.ledger.records_done == 0
        again = await peer.get_task(new)
        assert (again.start, again.end, again.attempt) == (0, 20, task.attempt + 1)

    _run(scenario)


def test_an_older_launch_is_told_to_go():
    async def scenario(master, peer):
        master.launches[0] = 2
        refusal = await peer.refusal(
            peer.call("Register", pb.RegisterRequest(worker_index=0, launch=1))
        )
        assert refusal == ("ABORTED", "launch 1 of worker-0 was replaced by 2")
        await peer.register(0, launch=2)
        await peer.register(1, launch=1)

    _run(scenario)


def test_who_asks_again_gives_back_the_task_whose_reply_was_lost():
    async def scenario(master, peer):
        session = await peer.register()
        lost = await peer.get_task(session)
        again = await peer.get_task(session)
        assert (again.start, again.end, again.epoch) == (lost.start, lost.end, lost.epoch)
        reply = await peer.report(messages(*gradient(session, lost, 0, 8)))
        assert reply.verdict == VERDICTS.VERDICT_LEASE_LOST
        reply = await peer.report(messages(*gradient(session, again, 0, 8, sequence=2)))
        assert reply.verdict == VERDICTS.VERDICT_ACCEPTED
        _counted(master, 0, 8)

    _run(scenario)


def test_a_fenced_worker_is_refused_and_its_records_go_to_another():
    async def scenario(master, peer):
        hung, other = await peer.register(0), await peer.register(1)
        task = await peer.get_task(hung)
        await peer.report(messages(*gradient(hung, task, 0, 8)))
        master.job.tasks.lose(ReplicaId("worker", 0, 1))
        late = messages(*gradient(hung, task, 8, 16, sequence=2, version=1))
        assert await peer.refusal(peer.report(late)) == UNKNOWN_SESSION
        taken = await peer.get_task(other)
        assert (taken.start, taken.end) == (8, 20)
        reply = await peer.report(messages(*gradient(other, taken, 8, 20, version=1)))
        assert reply.verdict == VERDICTS.VERDICT_ACCEPTED
        _counted(master, 0, 20)

    _run(scenario)


@pytest.mark.parametrize("outcome", ["FAILED", "RELEASED", "EMPTY", "EVALUATED"])
def test_a_repeated_result_changes_nothing_more(outcome):
    async def scenario(master, peer):
        session = await peer.register()
        task = await peer.get_task(session)
        request = pb.ReportTaskResultRequest(
            session=session, task_id=task.task_id, attempt=task.attempt, start=0, end=8,
            outcome=f"OUTCOME_{outcome}",
        )  # fmt: skip
        first = await peer.call("ReportTaskResult", request)
        assert first.accepted is (outcome != "EVALUATED"), "there is no evaluation"
        before = master.account()
        assert not (await peer.call("ReportTaskResult", request)).accepted
        assert master.account() == before

    _run(scenario)


async def _until_heard(master, session):
    """The servicer looks a report's session up as soon as it has its header."""
    found = master.heard.count(session)
    await _until(lambda: master.heard.count(session) > found)


async def _until(condition):
    while not condition():
        await asyncio.sleep(0.005)


def test_a_report_that_an_update_overtakes_while_it_is_received_is_late():
    async def play():
        master = ServedMaster()
        async with master.serve() as peer:
            slow, fast = await peer.register(0), await peer.register(1)
            tasks = [await peer.get_task(slow), await peer.get_task(fast)]
            header, chunk = messages(*gradient(slow, tasks[0], 0, 8))
            go_on = asyncio.Event()

            async def slowly():
                yield header
                await go_on.wait()
                yield chunk

            heard = master.heard.count(slow)
            late = peer.report(slowly())
            while master.heard.count(slow) == heard:
                await asyncio.sleep(0.005)
            in_time = await peer.report(messages(*gradient(fast, tasks[1], 20, 28)))
            assert in_time.verdict == VERDICTS.VERDICT_ACCEPTED
            go_on.set()
            assert (await late).verdict == VERDICTS.VERDICT_STALE
            assert master.counts().tolist() == [0] * 20 + [1] * 8 + [0] * 12

    asyncio.run(asyncio.wait_for(play(), PATIENCE_S))
