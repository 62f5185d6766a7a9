"""What the platforms have in common."""

import pytest

from elastic.errors import JobNotFoundError, PlatformError
from elastic.platforms.base import LastLook, has_ended
from elastic.spec.platforms import JobKind
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


# -- how long the last look stands in for one that fails

AWAY = PlatformError("away")


def look_at(*steps, lost_after_s=60.0):
    """One look after the other, of which some fail."""
    script = iter(steps)

    def look():
        step = next(script)
        if isinstance(step, Exception):
            raise step
        return step

    return LastLook(look, lost_after_s)


def test_it_does_for_a_while():
    look = look_at(1, AWAY, AWAY, 2)
    assert [look() for _ in range(4)] == [1, 1, 1, 2]


def test_nothing_does_for_the_first():
    with pytest.raises(PlatformError, match="away"):
        look_at(AWAY, 1)()


def test_it_does_not_for_ever():
    look = look_at(1, AWAY, lost_after_s=0.0)
    assert look() == 1
    with pytest.raises(PlatformError, match="away"):
        look()


def test_nor_for_an_answer():
    look = look_at(1, JobNotFoundError("gone"))
    assert look() == 1
    with pytest.raises(JobNotFoundError, match="gone"):
        look()
