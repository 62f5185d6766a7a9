"""Whose silence makes a worker a hang."""

import asyncio
import time

from support.served_master import ServedMaster

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
        return master.coordinator.liveness.hangs(time.monotonic() + 10.0)

    hangs = asyncio.run(asyncio.wait_for(play(), 30))
    assert [hang.worker for hang in hangs] == ["worker-0/1", "worker-1/1"]
