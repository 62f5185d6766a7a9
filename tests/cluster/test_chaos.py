"""Thirty faults in one job in a real cluster: every record counts exactly once an epoch, and no
worker ends but by what was done to it."""

import pytest
from support.cluster import eventually, needs_cluster
from support.faults import Breaker
from support.pod_history import PodHistory, unexplained
from support.whole_jobs import Workshop

pytestmark = needs_cluster

NUM_RECORDS = 1600
NUM_EPOCHS = 40
NUM_FAULTS = 30
NUM_WORKERS = 4
SETTLED_WITHIN_S = 180.0


@pytest.fixture(scope="module")
def workshop():
    workshop = Workshop(NUM_RECORDS, "chaos")
    yield workshop
    workshop.close()


def _kinds(status):
    return {event.kind for event in status.events}


def _ended(lives):
    return {uid for uid, life in lives.items() if life.has_ended}


def _settled(lives, broken):
    """The lives, once all that were broken have ended and each that ended has been replaced."""
    is_so = broken <= _ended(lives) and len(lives) == NUM_WORKERS + len(_ended(lives))
    return lives if is_so else None


def _launches(status):
    return sum(worker.launch for worker in status.workers)


def _are_running(status):
    return all(worker.phase == "Running" for worker in status.workers)


def test_every_record_counts_once_whatever_breaks(workshop):
    job = workshop.submit(
        "chaos",
        num_workers=str(NUM_WORKERS),
        grads_to_wait=2,
        num_epochs=NUM_EPOCHS,
        model_params={"num_records": NUM_RECORDS, "delay_ms": 150},
        checkpoint_steps=200,
        keep_checkpoint_max=2,
        max_worker_failures=100,
    )
    job.until(lambda s: len([w for w in s.workers if w.records_done]) == NUM_WORKERS)
    master = job.pod("master")
    breaker = Breaker(job, seed=0)
    with PodHistory(job) as history:
        breaker.break_often(NUM_FAULTS)
        done = [fault.kind for fault in breaker.faults]
        print("faults:", [f"{fault.kind} {fault.replica}" for fault in breaker.faults])
        broken = {f.pod_uid for f in breaker.faults if f.replica.startswith("worker-")}
        # A worker may take its grace, memory fills in its own time, and launches may wait.
        lives = eventually(lambda: _settled(history.lives(), broken), SETTLED_WITHIN_S)
        job.until(lambda s: _launches(s) == len(lives) and _are_running(s))
        assert unexplained(lives, breaker.faults) == []
        job.hurry()
        status = job.succeed()
        assert unexplained(history.lives(), breaker.faults, may_complete=True) == []
        assert history.lives().keys() == lives.keys()
    assert job.pod("master")["metadata"]["uid"] == master["metadata"]["uid"]
    assert job.counts() == [float(NUM_EPOCHS)] * NUM_RECORDS
    assert [(a.committed, a.skipped) for a in status.audits] == [(NUM_RECORDS, 0)] * NUM_EPOCHS
    assert status.workers_lost <= len(_ended(lives))
    told = _kinds(status)
    print(f"{len(_ended(lives))} workers ended, of which the status counts {status.workers_lost}")
    print("events:", [f"{e.kind}: {e.message}" for e in status.events if e.kind != "EpochEnded"])
    assert {"WorkerLost", "WorkerFailed", "WorkerStarted", "MasterRestarted", "Resumed"} <= told
    assert any("ran out of memory" in event.message for event in status.events)
    assert 1 <= status.master_restarts <= done.count("kill-master")
