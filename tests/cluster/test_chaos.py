"""Thirty faults in one job in a real cluster, and every record counts exactly once an epoch."""

import pytest
from support.cluster import needs_cluster
from support.whole_jobs import PodHistory, Workshop, break_at_random

pytestmark = needs_cluster

NUM_RECORDS = 1600
NUM_EPOCHS = 30
NUM_FAULTS = 30


@pytest.fixture(scope="module")
def workshop():
    workshop = Workshop(NUM_RECORDS, "chaos")
    yield workshop
    workshop.close()


def _kinds(status):
    return {event.kind for event in status.events}


def test_every_record_counts_once_whatever_breaks(workshop):
    job = workshop.submit(
        "chaos",
        num_workers="4",
        grads_to_wait=2,
        num_epochs=NUM_EPOCHS,
        model_params={"num_records": NUM_RECORDS, "delay_ms": 150},
        checkpoint_steps=200,
        keep_checkpoint_max=2,
        max_worker_failures=100,
    )
    job.until(lambda s: len([w for w in s.workers if w.records_done]) == 4)
    with PodHistory(job) as history:
        done = break_at_random(job, seed=0, num_faults=NUM_FAULTS)
        print("faults:", done)
        job.until(lambda s: all(w.phase == "Running" for w in s.workers))
        job.hurry()
        status = job.succeed()
    assert job.counts() == [float(NUM_EPOCHS)] * NUM_RECORDS
    assert [(a.committed, a.skipped) for a in status.audits] == [(NUM_RECORDS, 0)] * NUM_EPOCHS
    # Each new launch has a fault behind it.
    assert len(history.uids) <= 4 + NUM_FAULTS
    assert status.workers_lost <= NUM_FAULTS
    told = _kinds(status)
    print("events:", [f"{e.kind}: {e.message}" for e in status.events if e.kind != "EpochEnded"])
    assert {"WorkerLost", "WorkerFailed", "WorkerStarted", "MasterRestarted", "Resumed"} <= told
    assert any("ran out of memory" in event.message for event in status.events)
    assert 1 <= status.master_restarts <= done.count("kill-master")
