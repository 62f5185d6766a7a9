"""Workers whose gradients always come too late are told of once, with what helps."""

import asyncio

from support.served_master import ServedMaster, gradient, messages

NUM_ROUNDS = 24
"""Of one gradient that counts and one that comes too late."""


async def _told_events():
    master = ServedMaster(records_per_task=10)
    async with master.serve() as peer:
        fast, slow = await peer.register(0), await peer.register(1)
        slow_task = await peer.get_task(slow)
        task = await peer.get_task(fast)
        for index in range(NUM_ROUNDS):
            start = index % 10
            if start == 0 and index:
                task = await peer.get_task(fast)
            sequence, at = index + 1, task.start + start
            in_time = gradient(fast, task, at, at + 1, sequence, master.store.version)
            reply = await peer.report(messages(*in_time))
            assert reply.verdict == reply.VERDICT_ACCEPTED
            late = gradient(slow, slow_task, 0, 1, sequence, 0)
            reply = await peer.report(messages(*late))
            assert reply.verdict == reply.VERDICT_STALE
    return [event for event in master.events if event[0] == "GradientsTooLate"]


def test_it_is_told_once():
    assert asyncio.run(_told_events()) == [
        (
            "GradientsTooLate",
            "20 of 40 gradients came too late and were computed again, since 2 workers share "
            "updates of grads_to_wait=1: --grads_to_wait 2 uses all of them, and so does "
            "--use_async",
        )
    ]
