"""`elastic scale`: another number of workers for a running job."""

import click

from elastic.cli.completing import job_argument
from elastic.cli.exit_codes import ExitCode
from elastic.cli.platform import open_platform, platform_option
from elastic.cli.waiting import WaitNotes
from elastic.client.replicas import num_running, wait_for_workers, why_workers_wait
from elastic.spec.status import JobStatus
from elastic.telemetry.summary import counted


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
def command(
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
