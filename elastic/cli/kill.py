"""`elastic kill` (also `cancel`, `stop`): end a job and all of its processes."""

import click

from elastic.cli.completing import job_argument
from elastic.cli.exit_codes import ExitCode
from elastic.cli.platform import open_platform, platform_option
from elastic.cli.waiting import WaitNotes
from elastic.errors import PlatformError
from elastic.platforms.base import Platform, StillAliveError
from elastic.spec.status import JobPhase


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
def command(context: click.Context, job: str, timeout: float, forget: bool, platform: str) -> int:
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
