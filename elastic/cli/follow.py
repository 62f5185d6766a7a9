"""Following one job until it ends."""

from typing import Final, TextIO

import click

from elastic.cli import exit_codes
from elastic.cli.exit_codes import ExitCode
from elastic.client.following import NoMasterError, looks
from elastic.errors import InfrastructureError, JobNotFoundError
from elastic.platforms.base import Platform
from elastic.spec.status import JobPhase, JobStatus
from elastic.telemetry.progress import open_display

NEVER_STARTED: Final = "StartTimeout"
"""A platform's reason for a job that has failed since its master did not start in time."""
END_TIMEOUT_S: Final = 30.0
"""How long what is left of such a job may take to end."""


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
        with open_display(stream, since_s, platform.now_s) as display:
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
