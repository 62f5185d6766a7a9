import pytest

from elastic.platforms.base import has_ended
from elastic.spec.kinds import JobKind
from elastic.spec.status import JobPhase, JobStatus


@pytest.mark.parametrize(
    ("kind", "phase", "advice"),
    [
        (JobKind.TRAIN, JobPhase.SUCCEEDED, ""),
        (JobKind.TRAIN, JobPhase.FAILED, ": submit it again with --resume"),
        (JobKind.PREDICT, JobPhase.CANCELLED, ": submit it again with --resume"),
        # It keeps nothing that another could go on from.
        (JobKind.EVALUATE, JobPhase.FAILED, ": submit it again with --overwrite"),
    ],
)
def test_what_helps_who_scales_a_job_that_has_ended(kind, phase, advice):
    status = JobStatus(job_name="a", kind=kind, phase=phase)
    assert str(has_ended("a", status)) == (
        f"job 'a' has ended as {phase}, so it has no workers to scale{advice}"
    )
