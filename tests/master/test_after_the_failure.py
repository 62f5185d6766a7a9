"""A job that is about to end, for a fault of the user's, gives out nothing more."""

import asyncio

from support.served_master import PATIENCE_S, ServedMaster

from elastic.rpc import elastic_pb2 as pb


def test_no_task_is_given_once_a_record_has_failed_the_job():
    async def play():
        master = ServedMaster(max_task_failures=1)
        async with master.serve() as peer:
            first, second = await peer.register(0), await peer.register(1)
            task = await peer.get_task(first)
            report = pb.ReportTaskResultRequest(
                session=first, task_id=task.task_id, attempt=task.attempt, start=task.start,
                end=task.start + 1, outcome="OUTCOME_FAILED", message="bad",
            )  # fmt: skip
            assert (await peer.call("ReportTaskResult", report)).accepted
            assert master.job.failure.event.is_set()
            assert master.ledger.num_queued > 0
            for session in (first, second):
                reply = await peer.call("GetTask", pb.GetTaskRequest(session=session))
                assert not reply.HasField("task")
                assert not reply.finished
        assert master.events == []

    asyncio.run(asyncio.wait_for(play(), PATIENCE_S))
