"""`elastic kill` (also `cancel`, `stop`): end a job and all of its processes."""

import click

from elastic.cli.exit_codes import ExitCode
from elastic.cli.platform import open_platform, platform_option


@click.command(
    "kill",
    short_help="Cancel a job and end its processes.",
    epilog="\b\nExample:\n  elastic kill mnist --timeout 120",
)
@click.argument("job")
@click.option("--timeout", type=click.FloatRange(min=0), default=60.0, show_default=True,
              metavar="SECONDS", help="How long the job's processes may take to end.")  # fmt: skip
@click.option("--forget", is_flag=True, help="Also drop its status and all else that is kept.")
@platform_option
@click.pass_context
def command(context: click.Context, job: str, timeout: float, forget: bool, platform: str) -> int:
    """Cancel JOB and wait until none of its processes is left."""
    opened = open_platform(context, platform)
    before = opened.status(job)
    opened.kill(job, timeout)
    if before.phase.is_final:
        click.echo(f"job {job} had ended before: {before.phase}")
    else:
        click.echo(f"job {job} has been stopped: {opened.status(job).phase}")
    if forget:
        opened.forget(job)
        click.echo(f"nothing is kept of job {job}")
    return ExitCode.DONE
