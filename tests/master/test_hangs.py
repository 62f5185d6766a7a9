"""Whose silence makes a worker a hang."""

import asyncio
import time

from support.served_master import PATIENCE_S, ServedMaster, gradient, messages

from elastic.policy.replicas import ReplicaId
from elastic.rpc import elastic_pb2 as pb


def test_a_worker_that_was_told_to_wait_and_does_not_come_back_hangs():
    """It holds no task, but nobody would ever replace it."""

    async def play():
        master = ServedMaster(hang_timeout=1, start_timeout=1, records_per_task=40)
        async with master.serve() as peer:
            busy, idle = await peer.register(0), await peer.register(1)
            await peer.get_task(busy)
            reply = await peer.call("GetTask", pb.GetTaskRequest(session=idle))
            assert reply.WhichOneof("reply") == "wait_s"
        return master.job.sessions.liveness.hangs(time.monotonic() + 10.0)

    hangs = asyncio.run(asyncio.wait_for(play(), PATIENCE_S))
    assert [hang.worker.launch_name for hang in hangs] == ["worker-0/1", "worker-1/1"]


def test_a_worker_whose_gradients_all_come_too_late_does_not_hang():
    """A slow worker reports all the time; replacing it by another as slow would never end."""

    async def play():
        master = ServedMaster(hang_timeout=1, start_timeout=1)
        liveness = master.job.sessions.liveness
        async with master.serve() as peer:
            quick, slow = await peer.register(0), await peer.register(1)
            tasks = [await peer.get_task(session) for session in (quick, slow)]
            await peer.report(messages(*gradient(quick, tasks[0], 0, 8)))
            before_s = time.monotonic()
            late = gradient(slow, tasks[1], tasks[1].start, tasks[1].start + 8)
            reply = await peer.report(messages(*late))
            assert reply.verdict == pb.ReportGradientReply.VERDICT_STALE
        # Silent for the limit, had the refused report not been heard.
        return liveness.hangs(before_s + liveness.limit_s(ReplicaId("worker", 1, 1)))

    hangs = asyncio.run(asyncio.wait_for(play(), PATIENCE_S))
    assert "worker-1/1" not in [hang.worker.launch_name for hang in hangs]
