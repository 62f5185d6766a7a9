"""`elastic scale`: another number of workers for a running job."""

import time

import click

from elastic.cli.completing import job_argument
from elastic.cli.exit_codes import ExitCode
from elastic.cli.platform import open_platform, platform_option
from elastic.cli.waiting import WaitNotes
from elastic.platforms.base import Platform
from elastic.spec.status import JobStatus
from elastic.telemetry.progress_view import waits_because
from elastic.telemetry.summary import counted, first_line, is_running

_POLL_S = 0.5


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
    before = _running(opened.status(job))
    opened.scale(job, wanted)
    if not wait:
        workers_asked = counted(wanted, "worker", "workers")
        click.echo(f"job {job}: has been asked for {workers_asked}, has {before}")
        return ExitCode.DONE
    last = _wait(opened, job, wanted, timeout)
    click.echo(_outcome(last, before, wanted))
    return ExitCode.DONE if _running(last) == wanted else ExitCode.NOT_FINISHED


def _running(status: JobStatus) -> int:
    return sum(is_running(worker) for worker in status.workers)


def _wait(platform: Platform, job: str, wanted: int, timeout_s: float) -> JobStatus:
    """The job as it is when it has the workers, has ended, or the time is over."""
    deadline_s = time.monotonic() + timeout_s
    tell = WaitNotes(job)
    while True:
        status = platform.status(job)
        reached = status.desired_workers == wanted and _running(status) == wanted
        if reached or status.phase.is_final or time.monotonic() >= deadline_s:
            return status
        tell(_awaited(status, wanted))
        time.sleep(_POLL_S)


def _awaited(status: JobStatus, wanted: int) -> str:
    """`worker-2, worker-3 to run: worker-2: no cpu`, or who has to leave first."""
    running = {worker.index for worker in status.workers if is_running(worker)}
    missing = [f"worker-{index}" for index in range(wanted) if index not in running]
    surplus = [f"worker-{index}" for index in sorted(running) if index >= wanted]
    if missing:
        why = first_line(waits_because(status)) or _why_a_worker_waits(status)
        return f"{', '.join(missing)} to run{why and f': {why}'}"
    if surplus:
        return f"{', '.join(surplus)} to leave"
    return "its master to want so many"


def _outcome(status: JobStatus, before: int, wanted: int) -> str:
    running = _running(status)
    if running == wanted:
        return f"job {status.job_name}: {before} → {counted(running, 'worker', 'workers')}"
    if status.phase.is_final:
        return f"job {status.job_name} ended before it had {wanted} workers: {status.phase}"
    why = first_line(waits_because(status)) or _why_a_worker_waits(status)
    return (
        f"job {status.job_name}: {running} of {wanted} workers run so far"
        f"{why and f': {why}'}; see elastic status {status.job_name}"
    )


def _why_a_worker_waits(status: JobStatus) -> str:
    """The first reason there is; the status has the others."""
    waiting = (w for w in status.workers if w.message and not is_running(w))
    return next((f"worker-{w.index}: {first_line(w.message)}" for w in waiting), "")
