"""Following one job until it ends."""

import time
from collections.abc import Iterator
from typing import Final, TextIO

import click

from elastic.cli import exit_codes
from elastic.cli.exit_codes import ExitCode
from elastic.errors import InfrastructureError, JobNotFoundError, PlatformError
from elastic.platforms.base import Platform
from elastic.spec.status import JobPhase, JobStatus
from elastic.telemetry.progress import open_display

POLL_S: Final = 0.5
LOST_AFTER_S: Final = 15.0
"""A job that nobody decides for, or tells about, for so long is given up; less passes by itself."""
NO_MASTER: Final = "NoMaster"
"""A platform's reason for a job whose master is gone and comes back only with the user's help."""
NEVER_STARTED: Final = "StartTimeout"
"""A platform's reason for a job that has failed since its master did not start in time."""
END_TIMEOUT_S: Final = 30.0
"""How long what is left of such a job may take to end."""


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


def follow_to_end(
    platform: Platform, job_name: str, stream: TextIO, since_s: float, where: str
) -> int:
    """Show the job's progress on `stream` until it ends; returns the exit code that tells how.

    Args:
        since_s: Events before this moment, of an earlier life of the job, are not told.
        where: The arguments that mean this job in other commands.
    """
    status: JobStatus | None = None
    try:
        with open_display(stream, since_s) as display:
            # A display has to hear from time to time of a job that stands still, too.
            for status in looks(platform, job_name):
                display.show(status)
    except NoMasterError as error:
        click.echo(f"error: job {job_name} does not go on by itself: {error}", err=True)
        return ExitCode.NOT_FINISHED
    except (InfrastructureError, JobNotFoundError) as error:
        click.echo(
            f"error: job {job_name} can no longer be followed, it may go on: {error}", err=True
        )
        return ExitCode.NOT_FINISHED
    assert status is not None, "a job that is followed has at least one status"
    if status.reason == NEVER_STARTED:
        _end(platform, job_name, where)
    elif status.phase is JobPhase.FAILED:
        click.echo(f"see what was written with: elastic logs {where}", err=True)
    return exit_codes.of_phase(status.phase)


def _end(platform: Platform, job_name: str, where: str) -> None:
    """Have nothing of a failed job wait on for what it did not get in time."""
    try:
        platform.kill(job_name, END_TIMEOUT_S)
    except (InfrastructureError, JobNotFoundError) as error:
        click.echo(
            f"error: the master of job {job_name} still waits to start: {error}: "
            f"elastic kill {where}",
            err=True,
        )
