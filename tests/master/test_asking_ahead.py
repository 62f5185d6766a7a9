"""A worker near the end of its task may have the next one already; it is as safe as the first."""

import asyncio

import pytest
from support.served_master import PATIENCE_S, ServedMaster, gradient, messages

from elastic.policy.replicas import ReplicaId
from elastic.rpc import elastic_pb2 as pb

VERDICTS = pb.ReportGradientReply


def _run(scenario, **settings):
    async def play():
        master = ServedMaster(records_per_task=8, **settings)
        async with master.serve() as peer:
            await scenario(master, peer)

    asyncio.run(asyncio.wait_for(play(), PATIENCE_S))


async def _push(peer, session, task, sequence, version):
    report = messages(*gradient(session, task, task.start, task.end, sequence, version))
    return (await peer.report(report)).verdict


async def _is_told_to_wait(peer, session, working_on):
    request = pb.GetTaskRequest(session=session, working_on=working_on)
    return (await peer.call("GetTask", request)).WhichOneof("reply") == "wait_s"


def test_both_tasks_are_held_and_count_once():
    async def scenario(master, peer):
        session = await peer.register()
        first = await peer.get_task(session)
        second = await peer.get_task(session, working_on=first.task_id)
        assert (first.start, second.start) == (0, 8)
        assert await _push(peer, session, first, 1, 0) == VERDICTS.VERDICT_ACCEPTED
        assert await _push(peer, session, second, 2, 1) == VERDICTS.VERDICT_ACCEPTED
        assert master.counts().tolist() == [1] * 16 + [0] * 24

    _run(scenario)


def test_a_reply_that_was_lost_is_given_again_and_the_task_in_work_stays():
    async def scenario(master, peer):
        session = await peer.register()
        first = await peer.get_task(session)
        lost = await peer.get_task(session, working_on=first.task_id)
        again = await peer.get_task(session, working_on=first.task_id)
        assert (again.start, again.end, again.attempt) == (lost.start, lost.end, lost.attempt + 1)
        assert await _push(peer, session, lost, 1, 0) == VERDICTS.VERDICT_LEASE_LOST
        assert await _push(peer, session, first, 2, 0) == VERDICTS.VERDICT_ACCEPTED
        assert await _push(peer, session, again, 3, 1) == VERDICTS.VERDICT_ACCEPTED

    _run(scenario)


def test_both_go_to_others_with_their_worker():
    async def scenario(master, peer):
        gone, other = await peer.register(0), await peer.register(1)
        first = await peer.get_task(gone)
        await peer.get_task(gone, working_on=first.task_id)
        master.job.tasks.lose(ReplicaId("worker", 0, 1))
        assert [(await peer.get_task(other)).start] == [0]
        session = await peer.register(2)
        assert (await peer.get_task(session)).start == 8

    _run(scenario)


def test_a_worker_that_says_it_has_none_in_work_gives_both_back():
    async def scenario(master, peer):
        session = await peer.register()
        first = await peer.get_task(session)
        await peer.get_task(session, working_on=first.task_id)
        again = await peer.get_task(session)
        assert (again.start, again.attempt) == (0, first.attempt + 1)
        assert master.ledger.num_leased == 1

    _run(scenario)


def test_whose_lease_is_lost_gets_none_to_follow_it():
    async def scenario(master, peer):
        session, other = await peer.register(0), await peer.register(1)
        theirs = await peer.get_task(other)
        assert await _is_told_to_wait(peer, session, working_on=12345)
        assert await _is_told_to_wait(peer, session, working_on=theirs.task_id)
        assert master.ledger.num_leased == 1

    _run(scenario)


def test_a_worker_that_trains_is_left_to_ask_for_an_evaluation_in_its_turn():
    async def scenario(master, peer):
        session = await peer.register()
        task = await peer.get_task(session)
        evaluation = master.begin_evaluation()
        assert await _is_told_to_wait(peer, session, task.task_id)
        assert not evaluation.ledger.num_leased
        assert await _push(peer, session, task, 1, 0) == VERDICTS.VERDICT_ACCEPTED
        assert (await peer.get_task(session)).kind == pb.Task.KIND_EVALUATION

    _run(scenario)


def test_half_of_the_workers_go_on_training_ahead_of_the_others_evaluation():
    async def scenario(master, peer):
        trains, evaluates = await peer.register(0), await peer.register(1)
        task = await peer.get_task(trains)
        master.begin_evaluation()
        assert (await peer.get_task(evaluates)).kind == pb.Task.KIND_EVALUATION
        following = await peer.get_task(trains, working_on=task.task_id)
        assert (following.kind, following.start) == (pb.Task.KIND_TRAINING, 8)

    _run(scenario)


def test_an_evaluation_is_followed_by_more_of_it_and_then_by_nothing():
    async def scenario(master, peer):
        session = await peer.register()
        master.begin_evaluation()
        task = await peer.get_task(session)
        starts = [task.start]
        for _ in range(4):
            following = await peer.get_task(session, working_on=task.task_id)
            assert (following.kind, following.model_version) == (pb.Task.KIND_EVALUATION, 0)
            result = pb.ReportTaskResultRequest(
                session=session, task_id=task.task_id, attempt=task.attempt,
                start=task.start, end=task.end, outcome="OUTCOME_EVALUATED",
            )  # fmt: skip
            assert (await peer.call("ReportTaskResult", result)).accepted
            task = following
            starts.append(task.start)
        assert starts == [0, 8, 16, 24, 32]
        assert await _is_told_to_wait(peer, session, task.task_id)

    _run(scenario)


@pytest.mark.parametrize("is_held", [False, True])
def test_nothing_follows_at_the_end_of_an_epoch_or_before_what_is_due_first(is_held):
    async def scenario(master, peer):
        session = await peer.register()
        task = await peer.get_task(session)
        master.job.tasks.hold_training(is_held=is_held)
        if not is_held:
            for index in range(1, 5):
                other = await peer.register(index)
                await peer.get_task(other)
        assert await _is_told_to_wait(peer, session, task.task_id)

    _run(scenario)


def test_who_begins_waits_for_an_update_that_another_is_about_to_fill():
    async def scenario(master, peer):
        first = await peer.register(0)
        task = await peer.get_task(first)
        half = messages(*gradient(first, task, task.start, task.start + 4))
        assert (await peer.report(half)).verdict == VERDICTS.VERDICT_ACCEPTED
        second = await peer.register(1)
        begins = asyncio.ensure_future(peer.get_task(second))
        while second not in master.heard:
            await asyncio.sleep(0)
        assert master.ledger.num_leased == 1
        rest = messages(*gradient(first, task, task.start + 4, task.end, 2, 0))
        assert (await peer.report(rest)).model_version == 1
        theirs = await begins
        report = messages(*gradient(second, theirs, theirs.start, theirs.end, 1, 1))
        mine = await peer.get_task(first)
        assert (await _push(peer, first, mine, 3, 1)) == VERDICTS.VERDICT_ACCEPTED
        assert (await peer.report(report)).verdict == VERDICTS.VERDICT_ACCEPTED
        assert master.store.version == 2

    _run(scenario, num_workers="2")


def test_who_is_lost_while_it_waits_to_begin_gets_nothing():
    async def scenario(master, peer):
        first = await peer.register(0)
        task = await peer.get_task(first)
        half = messages(*gradient(first, task, task.start, task.start + 4))
        assert (await peer.report(half)).verdict == VERDICTS.VERDICT_ACCEPTED
        second = await peer.register(1)
        begins = peer.call("GetTask", pb.GetTaskRequest(session=second))
        while second not in master.heard:
            await asyncio.sleep(0)
        master.job.tasks.lose(ReplicaId("worker", 1, 1))
        rest = messages(*gradient(first, task, task.start + 4, task.end, 2, 0))
        assert (await peer.report(rest)).model_version == 1
        assert (await peer.refusal(begins))[0] == "FAILED_PRECONDITION"
        assert master.ledger.num_leased == 0

    _run(scenario, num_workers="2")
