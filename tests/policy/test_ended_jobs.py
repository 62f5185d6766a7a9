"""Which ended jobs may go, and with which something is lost."""

from pathlib import PurePosixPath

import pytest

from elastic.policy.accounts import ended_before, ended_s, only_here, resumed
from elastic.spec.platforms import JobKind
from elastic.spec.status import JobPhase, JobStatus, Progress

OWN = PurePosixPath("/home/jobs/a")
RESUMED = "what --resume goes on from"
RESULTS = "results that are nowhere else"


def status(phase=JobPhase.SUCCEEDED, **values):
    return JobStatus(job_name="a", phase=phase, **values)


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        pytest.param(status(submitted_s=1.0, updated_s=3.0, ended_s=2.0), 2.0, id="told"),
        pytest.param(status(submitted_s=1.0, updated_s=3.0), 3.0, id="heard-of-last"),
        pytest.param(status(submitted_s=1.0), 1.0, id="never-heard-of"),
        pytest.param(status(), None, id="nobody-knows"),
        pytest.param(status(JobPhase.RUNNING, submitted_s=1.0), None, id="goes-on"),
        pytest.param(status(JobPhase.RECOVERING, submitted_s=1.0), None, id="without-a-master"),
    ],
)
def test_when_a_job_has_ended(seen, expected):
    assert ended_s(seen) == expected


def test_jobs_that_go_on_or_ended_later_stay():
    old, new = status(ended_s=10.0), status(ended_s=11.0)
    running = status(JobPhase.RUNNING, submitted_s=1.0, updated_s=2.0)
    assert ended_before([old, running, new, status()], 10.0) == [old]


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        pytest.param(status(JobPhase.FAILED), RESUMED, id="failed"),
        pytest.param(status(JobPhase.CANCELLED, export="/out/m"), RESUMED, id="cancelled"),
        pytest.param(status(JobPhase.FAILED, kind=JobKind.PREDICT), RESUMED, id="half-predicted"),
        pytest.param(status(JobPhase.FAILED, kind=JobKind.EVALUATE), "", id="cannot-resume"),
        pytest.param(status(kind=JobKind.EVALUATE), "", id="evaluated"),
        pytest.param(status(checkpoint=f"{OWN}/cuts/version-1"), RESULTS, id="a-cut-alone"),
        pytest.param(status(), RESULTS, id="nobody-says-where"),
        pytest.param(status(checkpoint="/kept/version-1"), "", id="checkpoint-elsewhere"),
        pytest.param(
            status(checkpoint=f"{OWN}/cuts/version-1", export="s3://b/m"), "", id="exported"
        ),
        pytest.param(status(export=f"{OWN}/m.keras"), RESULTS, id="exported-into-its-folder"),
        pytest.param(
            status(kind=JobKind.PREDICT, predictions=f"{OWN}/predictions"), RESULTS, id="predicted"
        ),
        pytest.param(
            status(kind=JobKind.PREDICT, predictions="/out"), "", id="predicted-elsewhere"
        ),
        pytest.param(status(kind=JobKind.PREDICT), "", id="predicted-to-user-code"),
    ],
)
def test_what_only_the_jobs_own_folder_has(seen, expected):
    assert only_here(seen, OWN, has_kept=True) == expected
    assert only_here(seen, OWN, has_kept=False) == ""


@pytest.mark.parametrize("kind", JobKind)
def test_what_a_job_of_another_kind_has_counted_is_not_computed_again(kind):
    progress = Progress(records_done=100, computed_again=7)
    earlier = status(JobPhase.FAILED, kind=kind, progress=progress)
    reached = resumed(earlier, 1.0, JobKind.TRAIN).progress
    assert reached == (progress if kind is JobKind.TRAIN else Progress())
