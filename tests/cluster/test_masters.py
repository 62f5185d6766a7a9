"""The master of a job in a real cluster dies, again and again, and is taken away for good."""

import json
import time
from datetime import datetime

import pytest
from support.cluster import eventually, needs_cluster
from support.whole_jobs import CONTROL, Workshop

from elastic.platforms.kubernetes.job.logs import PodLog
from elastic.spec.status import JobPhase

pytestmark = needs_cluster

NUM_RECORDS = 800
NUM_EPOCHS = 10
NUM_KILLS = 10
TOLD_WITHIN_S = 60.0
MAX_CRASHES = 5


@pytest.fixture(scope="module")
def workshop():
    workshop = Workshop(NUM_RECORDS, "masters")
    yield workshop
    workshop.close()


class Commits:
    """The updates of a job, as its commit log has them on this machine."""

    def __init__(self, workshop, name):
        self.inside = f"{CONTROL}/commits-{name}.jsonl"
        self._path = workshop.shared / f"commits-{name}.jsonl"

    def newest(self):
        """The version, -1 where none is there yet; a last line may be half written."""
        lines = self._path.read_text().split("\n") if self._path.exists() else []
        return json.loads(lines[-2])["version"] if len(lines) > 1 else -1

    def changed_s(self):
        return self._path.stat().st_mtime


def test_a_killed_master_goes_on_at_once_with_the_same_workers(workshop):
    commits = Commits(workshop, "killed")
    job = workshop.submit(
        "killed",
        num_workers="2",
        num_epochs=NUM_EPOCHS,
        model_params={"num_records": NUM_RECORDS, "delay_ms": 100},
        commit_log=commits.inside,
    )
    job.until(lambda s: [w.records_done > 0 for w in s.workers] == [True, True])
    pauses_s = []
    for kill in range(NUM_KILLS):
        job.until(lambda s, n=kill: s.phase is JobPhase.RUNNING and s.master_restarts == n)
        killed_s = job.kill_master()
        # What it had written is cut back to where the next one goes on from, which is no update.
        eventually(lambda t=killed_s: commits.changed_s() > t)
        before = commits.newest()
        eventually(lambda v=before: commits.newest() > v)
        pauses_s.append(commits.changed_s() - killed_s)
    # What they come to on a quiet machine is in benchmarks/RESULTS.md.
    print("seconds to the next update:", [f"{pause_s:.1f}" for pause_s in pauses_s])
    pod = job.pod("master")
    assert [entry["restartCount"] for entry in pod["status"]["containerStatuses"]] == [0]
    job.hurry()
    status = job.succeed()
    assert job.counts() == [float(NUM_EPOCHS)] * NUM_RECORDS
    assert (status.master_restarts, status.workers_lost) == (NUM_KILLS, 0)
    assert [worker.launch for worker in status.workers] == [1, 1]


def test_a_master_whose_container_is_killed_waits_for_its_node_and_the_status_says_how_long(
    workshop,
):
    """The node's pauses before it starts a container again grow; the job is not over meanwhile."""
    job = workshop.submit(
        "waits",
        num_workers="1",
        num_epochs=NUM_EPOCHS,
        model_params={"num_records": NUM_RECORDS, "delay_ms": 50},
    )
    # The first time the node starts it again at once, and of the second pause it tells at its end.
    for kill in range(3):
        job.until(lambda s, n=kill: s.phase is JobPhase.RUNNING and s.master_restarts == n)
        job.kill_container(job.pod("master"))
    told = job.until(lambda s: "restarts in about" in s.message)
    print(told.message)
    assert (told.phase, told.reason) == (JobPhase.RECOVERING, "MasterLost")
    told_s = int(told.message.rpartition("about ")[2].removesuffix(" s"))
    began_s = time.monotonic()
    job.until(lambda s: s.master_restarts == 3)
    print(f"restarted after {time.monotonic() - began_s:.1f} s")
    # The kubelet looks at its pods every ten seconds or so, and not before its pause is over.
    assert 0.5 * told_s < time.monotonic() - began_s < told_s + TOLD_WITHIN_S
    job.hurry()
    status = job.succeed()
    assert job.counts() == [float(NUM_EPOCHS)] * NUM_RECORDS
    assert (status.master_restarts, status.workers_lost) == (3, 0)


def test_a_master_that_is_evicted_loses_no_update(workshop):
    commits = Commits(workshop, "evicted")
    state = f"host_path={workshop.shared},mount_path=/elastic/state,sub_path=state"
    settings = {
        "num_workers": "2",
        "num_epochs": NUM_EPOCHS,
        "model_params": {"num_records": NUM_RECORDS, "delay_ms": 50},
        "commit_log": commits.inside,
        "volume": f"host_path={workshop.shared},mount_path={CONTROL};{state}",
        # No cut but that of the end.
        "recovery_interval": 3600,
    }
    job = workshop.submit("evicted", **settings)
    job.until(lambda s: s.progress.model_version > 20)
    job.evict(job.pod("master"))
    eventually(lambda: not job.pods())
    status = job.status()
    assert (status.phase, status.reason) == (JobPhase.FAILED, "MasterDeleted")
    reached = commits.newest()
    assert reached > 20
    assert any(
        event.kind == "VersionKept" and f"version {reached} " in event.message
        for event in status.events
    )
    resumed = workshop.submit("evicted", **settings, resume=True)
    status = resumed.until(lambda s: any(event.kind == "Resumed" for event in s.events))
    assert any(f"(version {reached})" in event.message for event in status.events)
    resumed.hurry()
    resumed.succeed()
    assert resumed.counts() == [float(NUM_EPOCHS)] * NUM_RECORDS


@pytest.mark.sampled(2)
def test_a_master_that_needs_too_much_memory_ends_its_job_soon_and_says_what_helps(workshop):
    job = workshop.submit("greedy", num_workers="1", num_epochs=1000)
    job.until(lambda s: s.phase is JobPhase.RUNNING)
    log = PodLog(workshop.cluster, job.pod("master"))
    job.make_master_greedy()
    job.kill_master()
    status = job.until(lambda s: s.phase is JobPhase.FAILED)
    lines = [line for line in log.lines() if "ended with exit code 137" in line.text]
    # The first is that of the kill.
    assert len(lines) == 1 + MAX_CRASHES
    last_end_s = datetime.fromisoformat(f"{lines[-1].stamp[:19]}+00:00").timestamp()
    print(f"told {status.ended_s - last_end_s:.1f} s after the last end")
    assert status.ended_s - last_end_s < TOLD_WITHIN_S
    assert status.reason == "MasterCrashed"
    assert "crashed 5 times without progress" in status.message
    assert "out of memory (its limit is 1Gi): raise memory in --master_resource_limit" in (
        status.message
    )
    assert time.time() - status.ended_s < TOLD_WITHIN_S
