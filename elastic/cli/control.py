"""`elastic scale` and `elastic kill`: what a user asks of a running job, and waits for."""

import time
from collections.abc import Callable
from typing import Final

import click

from elastic.cli.exit_codes import ExitCode
from elastic.cli.options import job_argument, open_platform, platform_option
from elastic.client.following import num_running, wait_for_workers, why_workers_wait
from elastic.errors import PlatformError
from elastic.platforms.base import Platform, StillAliveError
from elastic.spec.status import JobPhase, JobStatus
from elastic.telemetry.summary import counted

PATIENCE_S: Final = 1.0
"""What is over sooner than this needs no explanation."""


class WaitNotes:
    """Says on standard error what is waited for, each time that it is something else."""

    def __init__(self, job_name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._job_name = job_name
        self._clock = clock
        self._began_s = clock()
        self._last = ""

    def __call__(self, what: str) -> None:
        """Wait for `what`, as of now."""
        if what == self._last or self._clock() - self._began_s < PATIENCE_S:
            return
        self._last = what
        click.echo(f"job {self._job_name}: waits for {what}", err=True)


@click.command(
    "scale",
    short_help="Give a running job another number of workers.",
    epilog="\b\nExamples:\n  elastic scale mnist 4\n  elastic scale mnist --num_workers=1\n"
    "  elastic scale mnist 8 --no_wait",
)
@job_argument()
@click.argument("workers", metavar="N", type=click.IntRange(min=0), required=False)
@click.option("--num_workers", "--workers", "by_flag", metavar="N", type=click.IntRange(min=0),
              help="The same as the argument N.")  # fmt: skip
@click.option("--wait/--no_wait", default=True, show_default=True,
              help="Wait for the workers, or only ask for them.")  # fmt: skip
@click.option("--timeout", type=click.FloatRange(min=0), default=60.0, show_default=True,
              metavar="SECONDS", help="How long to wait for the workers.")  # fmt: skip
@platform_option
@click.pass_context
def scale(
    context: click.Context,
    job: str,
    workers: int | None,
    by_flag: int | None,
    wait: bool,
    timeout: float,
    platform: str,
) -> int:
    """Ask for N workers in JOB and wait until so many run.

    What it waits for is said on standard error; where they do not run after
    --timeout, or the job ends before, the exit code is 101.
    """
    if (workers is None) == (by_flag is None):
        raise click.UsageError("give the number of workers once: elastic scale JOB N", context)
    wanted = workers if workers is not None else by_flag
    assert wanted is not None, "one of the two was given"
    opened = open_platform(context, platform)
    before = num_running(opened.status(job))
    opened.scale(job, wanted)
    if not wait:
        workers_asked = counted(wanted, "worker", "workers")
        click.echo(f"job {job}: has been asked for {workers_asked}, has {before}")
        return ExitCode.DONE
    last = wait_for_workers(opened, job, wanted, timeout, WaitNotes(job))
    click.echo(_outcome(last, before, wanted))
    return ExitCode.DONE if num_running(last) == wanted else ExitCode.NOT_FINISHED


def _outcome(status: JobStatus, before: int, wanted: int) -> str:
    running = num_running(status)
    if running == wanted:
        return f"job {status.job_name}: {before} → {counted(running, 'worker', 'workers')}"
    if status.phase.is_final:
        return f"job {status.job_name} ended before it had {wanted} workers: {status.phase}"
    why = why_workers_wait(status)
    return (
        f"job {status.job_name}: {running} of {wanted} workers run so far"
        f"{why and f': {why}'}; see elastic status {status.job_name}"
    )


@click.command(
    "kill",
    short_help="Cancel a job and end its processes.",
    epilog="\b\nExamples:\n  elastic kill mnist --timeout 120\n  elastic kill mnist --forget",
)
@job_argument()
@click.option("--timeout", type=click.FloatRange(min=0), default=60.0, show_default=True,
              metavar="SECONDS", help="How long the job's processes may take to end.")  # fmt: skip
@click.option("--forget", is_flag=True, help="Also drop its status and all else that is kept.")
@platform_option
@click.pass_context
def kill(context: click.Context, job: str, timeout: float, forget: bool, platform: str) -> int:
    """Cancel JOB and wait until none of its processes is left.

    What it waits for is said on standard error. A job that has ended before is
    no error; where something is still there after --timeout, the exit code is 101.
    """
    opened = open_platform(context, platform)
    before = _phase(opened, job)
    try:
        opened.kill(job, timeout, WaitNotes(job))
    except StillAliveError as error:
        click.echo(f"error: {error}", err=True)
        return ExitCode.NOT_FINISHED
    if before is not None and before.is_final:
        click.echo(f"job {job} had ended before: {before}")
    else:
        click.echo(f"job {job} has been stopped: {opened.status(job).phase}")
    if forget:
        opened.forget(job)
        click.echo(f"nothing is kept of job {job}")
    return ExitCode.DONE


def _phase(platform: Platform, job: str) -> JobPhase | None:
    """How the job stands; None where that cannot be told, which must not keep it alive."""
    try:
        return platform.status(job).phase
    except PlatformError:
        # Where that has other causes than a damaged status, ending the job tells them.
        return None
