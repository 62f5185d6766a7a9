"""The records of a task are looked up before it is leased, beside the event loop."""

import asyncio
import threading

from support.served_master import ServedMaster

from elastic.policy.replicas import ReplicaId
from elastic.policy.tasks import ledger_kinds


async def _leased_twice(ledger, job):
    """The records of two tasks, and who looked each of them up."""
    looked_up, look_up = [], ledger._picks

    def noted(*arguments):
        picks = look_up(*arguments)
        looked_up.append(threading.current_thread())
        return picks

    ledger._picks = noted
    session = job.sessions.open(ReplicaId("worker", 0, 1), 1, "test")
    first = job.tasks.lease(session)
    async with asyncio.timeout(30.0):
        while len(looked_up) < 2:
            await asyncio.sleep(0.01)
    second = job.tasks.lease(session, working_on=first.task_id)
    return [task.picks.indices.tolist() for task in (first, second)], looked_up[:2]


def test_the_next_task_is_looked_up_by_another_thread(monkeypatch):
    monkeypatch.setattr(ledger_kinds, "FORESEEN_RECORDS", 1)
    master = ServedMaster(shuffle="records")
    records, threads = asyncio.run(_leased_twice(master.ledger, master.job))
    assert threads[0] is threading.main_thread()
    assert threads[1] is not threading.main_thread()
    plain = ServedMaster(shuffle="records").ledger
    assert records == [plain.lease("w").picks.indices.tolist() for _ in range(2)]
