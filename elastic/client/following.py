"""Looking at one job until it ends, or at all of them."""

import time
from collections.abc import Iterator
from typing import Final

from elastic.errors import InfrastructureError, PlatformError
from elastic.platforms.base import LOST_AFTER_S, LastLook, Platform
from elastic.spec.status import JobStatus

POLL_S: Final = 0.5
NO_MASTER: Final = "NoMaster"
"""A platform's reason for a job whose master is gone and comes back only with the user's help."""


class NoMasterError(PlatformError):
    """Nobody decides for the job any more, and that stays so until its user acts."""


def statuses(
    platform: Platform,
    job_name: str,
    poll_s: float = POLL_S,
    lost_after_s: float = LOST_AFTER_S,
) -> Iterator[JobStatus]:
    """The job's status now and whenever it changes; ends after the final one.

    Raises what `looks` raises.
    """
    last: JobStatus | None = None
    for status in looks(platform, job_name, poll_s, lost_after_s):
        if status != last:
            yield status
        last = status


def looks(
    platform: Platform,
    job_name: str,
    poll_s: float = POLL_S,
    lost_after_s: float = LOST_AFTER_S,
) -> Iterator[JobStatus]:
    """The job's status every `poll_s`, changed or not; ends after the final one.

    While the platform cannot tell, it is the last known one.

    Raises:
        JobNotFoundError: No such job (any more).
        InfrastructureError: For `lost_after_s` the platform could not tell, or the job had no
            master.
    """
    last: JobStatus | None = None
    lost_since_s: float | None = None
    while True:
        lost: InfrastructureError | None = None
        try:
            status = platform.status(job_name)
        except InfrastructureError as error:
            if last is None:
                raise
            lost = error
            status = last
        yield status
        last = status
        if status.phase.is_final:
            return
        if lost is None and status.reason == NO_MASTER:
            lost = NoMasterError(status.message)
        now_s = time.monotonic()
        lost_since_s = (lost_since_s or now_s) if lost else None
        if lost and lost_since_s is not None and now_s - lost_since_s >= lost_after_s:
            raise lost
        time.sleep(poll_s)


def all_statuses(
    platform: Platform, poll_s: float = POLL_S, lost_after_s: float = LOST_AFTER_S
) -> Iterator[list[JobStatus]]:
    """The statuses of all jobs now and whenever one of them changes; never ends.

    Raises:
        InfrastructureError: The platform could not tell at the first look, or for `lost_after_s`.
    """
    look = LastLook(lambda: list(platform.statuses()), lost_after_s)
    last: list[JobStatus] | None = None
    while True:
        current = look()
        if current != last:
            yield current
        last = current
        time.sleep(poll_s)
