"""An epoch whose last record is skipped ends, whoever stops waiting for that and when."""

import asyncio
import contextlib

import pytest
from support.served_master import NUM_RECORDS, PATIENCE_S, ServedMaster, gradient, messages

from elastic.rpc import elastic_pb2 as pb

LAST = NUM_RECORDS - 1
SETTINGS = {"records_per_task": LAST, "skip_bad_records": 1, "max_task_failures": 1}


async def _until(condition):
    while not condition():
        await asyncio.sleep(0.005)


async def _up_to_the_last(master, peer):
    """Everything has counted but the last record; gives the report that it failed."""
    session = await peer.register()
    task = await peer.get_task(session)
    await peer.report(messages(*gradient(session, task, 0, LAST)))
    task = await peer.get_task(session)
    return pb.ReportTaskResultRequest(
        session=session, task_id=task.task_id, attempt=task.attempt, start=LAST,
        end=NUM_RECORDS, outcome="OUTCOME_FAILED", message="bad",
    )  # fmt: skip


@contextlib.asynccontextmanager
async def _skipping(master, peer):
    """The report of the last record, which is skipped by now and waits for the lock to say so."""
    report = await _up_to_the_last(master, peer)
    async with master.store.lock:
        call = peer.call("ReportTaskResult", report)
        await _until(lambda: master.ledger.skipped_records)
        yield call


def test_it_ends_though_the_report_is_given_up():
    async def play():
        master = ServedMaster(**SETTINGS)
        answered = master.note_end_of("report_task_result")
        async with master.serve() as peer:
            async with _skipping(master, peer) as call:
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await call
                # The server hears of it a moment later.
                await answered.wait()
            await master.job.updates.training_done.wait()
        assert [name for name, _ in master.events] == ["RecordSkipped", "EpochEnded"]

    asyncio.run(asyncio.wait_for(play(), PATIENCE_S))


def test_it_ends_after_a_cut_between_the_record_and_the_end():
    async def play():
        master = ServedMaster(**SETTINGS)
        async with master.serve() as peer:
            async with _skipping(master, peer) as call:
                snapshot = master.ledger.snapshot()
            await call
        restarted = ServedMaster(**SETTINGS)
        restarted.ledger.restore(snapshot)
        await restarted.job.updates.end_epoch_if_complete()
        assert restarted.job.updates.training_done.is_set()
        assert [name for name, _ in restarted.events] == ["EpochEnded"]

    asyncio.run(asyncio.wait_for(play(), PATIENCE_S))


def test_an_epoch_that_lacks_records_is_left_open():
    async def play():
        master = ServedMaster(**SETTINGS)
        async with master.serve() as peer:
            await _up_to_the_last(master, peer)
            await master.job.updates.end_epoch_if_complete()
            assert (master.ledger.epoch, master.events) == (0, [])

    asyncio.run(asyncio.wait_for(play(), PATIENCE_S))
