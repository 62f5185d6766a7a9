"""What is shown of the workers of a job that has ended or loses its master."""

import pytest
from support.pods import DONE_WORDS, pod, running, terminated

from elastic.platforms.kubernetes.pods import needs_pods, with_seen_workers
from elastic.spec.status import JobPhase, JobStatus, WorkerStatus

DONE = terminated(0, "Succeeded", "Completed", DONE_WORDS)


def job(phase=JobPhase.CANCELLED, reason="Cancelled", worker="Running", launch=2):
    rows = (WorkerStatus(index=0, launch=launch, phase=worker, samples_per_s=9.0, records_done=5),)
    return JobStatus(job_name="j", phase=phase, reason=reason, workers=rows)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param(job(), True, id="ended"),
        pytest.param(job(worker="Pending"), True, id="never-started"),
        pytest.param(job(worker="Succeeded"), False, id="told"),
        pytest.param(job(JobPhase.RUNNING, ""), False, id="runs"),
        pytest.param(job(JobPhase.RECOVERING, "MasterLost"), False, id="between-masters"),
        pytest.param(job(JobPhase.RECOVERING, "MasterDeleted"), True, id="master-leaves"),
    ],
)
def test_pods_are_looked_at_only_where_they_know_better(status, expected):
    assert needs_pods(status) is expected


@pytest.mark.parametrize(
    ("status", "pods", "phase", "last_exit"),
    [
        pytest.param(job(), [], "Failed", "was ended with its job", id="gone"),
        pytest.param(job(worker="Pending"), [], "Failed", "was not started", id="never-started"),
        pytest.param(
            job(JobPhase.SUCCEEDED, worker="Pending"), [], "Succeeded", "was not started",
            id="not-needed-any-more",
        ),
        pytest.param(job(worker="Ending"), [], "Failed", "was ended with its job", id="has-left"),
        pytest.param(job(), [pod(running(), launch=2)], "Ending", "", id="is-still-there"),
        pytest.param(
            job(), [pod(DONE, launch=2)], "Succeeded", "ended",
            id="has-ended",
        ),
        pytest.param(
            job(), [pod(running(), launch=1), pod(running(), launch=2, index=1)],
            "Failed", "was ended with its job", id="others-are-not-it",
        ),
        pytest.param(
            job(JobPhase.RECOVERING, "MasterDeleted"), [pod(running(), launch=2, deleted=True)],
            "Ending", "", id="leaves-with-its-master",
        ),
        pytest.param(
            job(JobPhase.RECOVERING, "MasterDeleted"), [pod(running(), launch=2)],
            "Running", "", id="its-master-is-only-about-to-leave",
        ),
    ],
)  # fmt: skip
def test_a_worker_is_as_its_pod_is(status, pods, phase, last_exit):
    [worker] = with_seen_workers(status, pods).workers
    assert (worker.phase, worker.last_exit, worker.records_done) == (phase, last_exit, 5)
    assert worker.samples_per_s == (9.0 if phase == "Running" else 0.0)
