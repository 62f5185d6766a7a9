"""Thirty faults in one job in a real cluster: every record counts exactly once an epoch, and no
worker ends but by what was done to it, and each end is told."""

import time

import pytest
from support.cluster import eventually, needs_whole_cluster
from support.event_history import EventHistory, endings
from support.faults import KINDS, MASTER_KILLS, Breaker
from support.pod_history import PodHistory, evicted_for_silence, unexplained
from support.statuses import each_epoch
from support.whole_jobs import Workshop

pytestmark = needs_whole_cluster

NUM_RECORDS = 1600
NUM_EPOCHS = 20
NUM_FAULTS = 30
NUM_WORKERS = 4
SETTLED_WITHIN_S = 180.0


@pytest.fixture(scope="module")
def workshop():
    workshop = Workshop(NUM_RECORDS, "chaos")
    yield workshop
    workshop.close()


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


def _kills(breaker, *kinds):
    return sum(fault.kind in (kinds or MASTER_KILLS) for fault in breaker.faults)


def _in_words(event):
    return f"{_clock(event.time_s)} {event.kind}: {event.message}"


def _fault_in_words(fault):
    return f"{_clock(fault.time_s)} {fault.kind} {fault.replica} {(fault.pod_uid or '')[:8]}"


def _clock(time_s):
    return time.strftime("%H:%M:%S", time.gmtime(time_s))


def _restarts(pod):
    [container] = pod["status"]["containerStatuses"]
    return container["restartCount"]


def test_every_record_counts_once_whatever_breaks(workshop):
    job = workshop.submit(
        "chaos",
        num_workers=str(NUM_WORKERS),
        grads_to_wait=2,
        num_epochs=NUM_EPOCHS,
        model_params={"num_records": NUM_RECORDS, "delay_ms": 300},
        checkpoint_steps=200,
        keep_checkpoint_max=2,
        max_worker_failures=100,
    )
    job.until(lambda s: len([w for w in s.workers if w.records_done]) == NUM_WORKERS)
    master = job.pod("master")
    breaker = Breaker(job, seed=0)
    with PodHistory(job) as history, EventHistory(job) as events:
        breaker.break_often(NUM_FAULTS)
        print("faults:", [_fault_in_words(fault) for fault in breaker.faults])
        assert {fault.kind for fault in breaker.faults} == KINDS
        assert len(breaker.faults) == NUM_FAULTS
        broken = {f.pod_uid for f in breaker.faults if f.replica.startswith("worker-")}
        # A worker may take its grace, memory fills in its own time, and launches may wait.
        lives = eventually(lambda: _settled(history.lives(), broken), SETTLED_WITHIN_S)
        job.until(lambda s: _launches(s) == len(lives) and _are_running(s))
        settled = job.until(lambda s: s.master_restarts == _kills(breaker))
        told = events.told()
        # Printed before anything is asserted: they say who ended what nobody was seen to break.
        print("events:", [_in_words(e) for e in told if e.kind != "EpochEnded"])
        ended = {(life.replica, life.launch): life for life in lives.values() if life.has_ended}
        # Without an API server all nodes are silent, and one that is slow to be heard again loses
        # its pods by Kubernetes' own decision.
        evictions = evicted_for_silence(job)
        print("evicted:", evictions)
        assert unexplained(lives, breaker.faults, evictions=evictions) == []
        job.hurry()
        status = job.succeed()
        found = unexplained(history.lives(), breaker.faults, may_complete=True, evictions=evictions)
        assert found == []
        assert history.lives().keys() == lives.keys()
    after = job.pod("master")
    assert after["metadata"]["uid"] == master["metadata"]["uid"]
    assert job.counts() == [float(NUM_EPOCHS)] * NUM_RECORDS
    assert each_epoch(status) == [(NUM_RECORDS, NUM_RECORDS, 0)] * NUM_EPOCHS

    ends = endings(told, settled.workers)
    print(f"{len(ended)} workers ended, of which {len(ends)} are told")
    assert ends.keys() == ended.keys(), "an end is told twice or never, or of one that goes on"
    over = {end for end, message in ends.items() if "ran out of memory" in message}
    assert over, "memory was taken, and no event says so"
    assert {end: ended[end].terminated["reason"] for end in over} == dict.fromkeys(
        over, "OOMKilled"
    )
    assert settled.workers_lost == len(ends)
    kinds = [event.kind for event in told]
    assert kinds.count("MasterRestarted") == settled.master_restarts == _kills(breaker)
    # A life that finds no API server ends before it can tell or count anything.
    print(f"{_restarts(after)} starts of the master's container for {_kills(breaker)} kills")
    assert _restarts(after) >= _kills(breaker, "kill-master")
    assert kinds.count("Resumed") >= 1
