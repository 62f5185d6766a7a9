"""Removes jobs that have ended from where they are kept."""

from dataclasses import dataclass

from elastic.errors import JobExistsError, JobNotFoundError, PlatformError
from elastic.platforms.base import Platform
from elastic.policy.pruning import ended_before, ended_s
from elastic.spec.since import Since
from elastic.spec.status import JobStatus


@dataclass(frozen=True, slots=True)
class Plan:
    """What a look at all jobs has come to.

    Attributes:
        going: Jobs to remove, oldest submission first.
        kept: Jobs that are old enough too, each with what would be lost with it.
    """

    going: tuple[JobStatus, ...]
    kept: tuple[tuple[JobStatus, str], ...]


def plan(platform: Platform, older_than: Since, with_results: bool) -> Plan:
    """Choose among the jobs that have ended.

    Args:
        older_than: They ended before that moment, or so long ago.
        with_results: Remove also those with which something is lost.
    """
    statuses = platform.statuses()
    going, kept = [], []
    for status in ended_before(statuses, older_than.at_s(platform.now_s())):
        try:
            lost = "" if with_results else platform.would_lose(status)
        except JobNotFoundError:
            # Somebody else has removed it since.
            continue
        except PlatformError as error:
            # One job's damage is not that of the others.
            lost = f"what cannot be looked at ({error})"
        if lost:
            kept.append((status, lost))
        else:
            going.append(status)
    return Plan(tuple(going), tuple(kept))


def remove(platform: Platform, seen: JobStatus) -> None:
    """Remove a job that is still the one that was seen.

    Raises:
        JobExistsError: It goes on by now, or is submitted at this moment.
        PlatformError: Something of it could not be removed.
    """
    try:
        now = platform.status(seen.job_name)
        # Whoever was asked for a confirmation may have taken long to give it.
        if (now.submitted_s, ended_s(now)) != (seen.submitted_s, ended_s(seen)):
            raise JobExistsError(f"job {seen.job_name!r} is another one by now: it is left alone")
        platform.forget(seen.job_name)
    except JobNotFoundError:
        return
