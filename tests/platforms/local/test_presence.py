"""No worker of an ended job is shown as running, and none by the pid of a process that is gone."""

import os
import signal

import pytest
from support.local_jobs import eventually

from elastic.platforms.base import ExitReason, Replica, ReplicaId, ReplicaPhase
from elastic.platforms.local.processes import seen_workers
from elastic.spec.status import JobPhase, Progress, WorkerStatus

FIRST = ReplicaId("worker", 0, 1)
RUNNING = WorkerStatus(index=0, launch=1, phase="Running", pid=7, samples_per_s=5.0)
PENDING = RUNNING.model_copy(update={"phase": "Pending", "pid": None, "message": "no room"})
ENDED = Replica(FIRST, ReplicaPhase.FAILED, ExitReason.KILLED, message="deleted (SIGTERM)", pid=7)
OTHER_LIFE = Replica(ReplicaId("worker", 0, 2), ReplicaPhase.FAILED, ExitReason.KILLED)


TOLD_ENDED = RUNNING.model_copy(update={"phase": "Succeeded", "pid": None})
FAILED, SUCCEEDED = JobPhase.FAILED, JobPhase.SUCCEEDED
CRASHED = Replica(FIRST, ReplicaPhase.FAILED, ExitReason.USER_ERROR, message="ValueError: no")


@pytest.mark.parametrize(
    ("told", "observed", "alive", "job_phase", "phase", "pid", "last_exit"),
    [
        pytest.param(RUNNING, [ENDED], {FIRST}, FAILED, "Failed", None,
                     "was killed: deleted (SIGTERM)", id="observed-end-counts"),
        pytest.param(RUNNING, [ENDED], {FIRST}, SUCCEEDED, "Succeeded", None,
                     "was killed: deleted (SIGTERM)", id="ended-since-all-is-done"),
        pytest.param(RUNNING, [CRASHED], set(), SUCCEEDED, "Failed", None,
                     "failed: ValueError: no", id="failed-by-itself-all-the-same"),
        pytest.param(TOLD_ENDED, [ENDED], set(), FAILED, "Succeeded", None,
                     "was killed: deleted (SIGTERM)", id="was-asked-to-end"),
        pytest.param(RUNNING, [OTHER_LIFE], set(), SUCCEEDED, "Failed", None,
                     "ended after its supervisor, so nobody saw how", id="unseen-end"),
        pytest.param(RUNNING, [], {FIRST}, SUCCEEDED, "Ending", 7, "", id="alive-after-its-job"),
        pytest.param(RUNNING, [], {FIRST}, JobPhase.RECOVERING, "Running", 7, "",
                     id="waits-for-a-master"),
        pytest.param(PENDING, [], set(), FAILED, "Failed", None, "was not started", id="pending"),
        pytest.param(PENDING, [], set(), SUCCEEDED, "Succeeded", None, "was not started",
                     id="pending-when-all-is-done"),
    ],
)  # fmt: skip
def test_what_is_seen_counts(told, observed, alive, job_phase, phase, pid, last_exit):
    (worker,) = seen_workers([told], observed, alive, job_phase)
    assert (worker.phase, worker.pid, worker.last_exit) == (phase, pid, last_exit)
    assert worker.message == ""
    assert worker.samples_per_s == (0.0 if pid is None else 5.0)


def publish(directory, phase, pid):
    worker = RUNNING.model_copy(update={"pid": pid})
    change = {"phase": phase, "workers": (worker,), "progress": Progress(samples_per_s=5.0)}
    status = directory.status().model_copy(update=change)
    directory.write_status(status)


@pytest.mark.parametrize("phase", [JobPhase.SUCCEEDED, JobPhase.FAILED, JobPhase.CANCELLED])
def test_an_ended_job_has_no_running_worker(jobs, worker, phase):
    jobs.arrange(worker, "run")
    platform = jobs.submit(master="obey")
    pid = jobs.pid_of("worker")
    eventually(lambda: platform.status("job").phase is JobPhase.RUNNING)
    # The master's last word, which is older than the end of its worker.
    publish(jobs.directory(), phase, pid)
    os.kill(jobs.pid_of("master"), signal.SIGTERM)
    eventually(lambda: not jobs.members())
    (seen,) = platform.status("job").workers
    ended = "Succeeded" if phase is JobPhase.SUCCEEDED else "Failed"
    assert (seen.phase, seen.pid) == (ended, None)
    assert seen.last_exit == "was killed: deleted (SIGTERM)"
    assert platform.status("job").progress.samples_per_s == 0.0


def test_a_job_without_master_shows_who_is_left_and_how_to_end_it(jobs, worker):
    jobs.arrange(worker, "run")
    platform = jobs.submit(master="obey")
    pid = jobs.pid_of("worker")
    eventually(lambda: platform.status("job").phase is JobPhase.RUNNING)
    publish(jobs.directory(), JobPhase.RUNNING, pid)
    for role in ("supervisor", "master"):
        os.kill(jobs.pid_of(role), signal.SIGKILL)
    eventually(lambda: len(jobs.members()) == 1)
    status = eventually(lambda: (s := platform.status("job")).reason == "NoMaster" and s)
    assert [(w.phase, w.pid) for w in status.workers] == [("Running", pid)]
    assert status.workers[0].samples_per_s == status.progress.samples_per_s == 0.0
    assert status.message == (
        "its master is gone, and its other processes wait for one (1 alive); "
        "`elastic train --resume` goes on from its last cut, `elastic kill job` ends it"
    )
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not jobs.members())
    (seen,) = platform.status("job").workers
    assert (seen.phase, seen.pid) == ("Failed", None)
