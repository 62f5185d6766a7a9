"""`elastic scale`, `kill` and `prune`: what changes jobs, or removes what they have left."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import click

from elastic.cli.exit_codes import ExitCode
from elastic.cli.options import (
    ObjectTarget,
    job_argument,
    objects_beside,
    open_platform,
    others_named,
    platform_option,
    read_moment,
    target_of,
)
from elastic.client.platforms import (
    has_size,
    num_running,
    surplus,
    wait_for_replicas,
    wait_for_workers,
    why_workers_wait,
)
from elastic.errors import ElasticError, JobExistsError, JobNotFoundError, PlatformError
from elastic.platforms.base import Platform, StillAliveError
from elastic.policy.accounts import ended_before, ended_s
from elastic.spec.status import JobPhase, JobStatus, ObjectStatus
from elastic.spec.values import Since
from elastic.telemetry.summary import counted, duration_text

# `elastic scale` and `elastic kill`: what a user asks of a running job, and waits for.


PATIENCE_S: Final = 1.0
"""What is over sooner than this needs no explanation."""


class WaitNotes:
    """Says on standard error what is waited for, each time that it is something else."""

    def __init__(self, subject: str, clock: Callable[[], float] = time.monotonic) -> None:
        """Keep the parts.

        Args:
            subject: Who waits, for people.
            clock: Seconds; monotonic.
        """
        self._subject = subject
        self._clock = clock
        self._began_s = clock()
        self._last = ""

    def __call__(self, what: str) -> None:
        """Wait for `what`, as of now."""
        if what == self._last or self._clock() - self._began_s < PATIENCE_S:
            return
        self._last = what
        click.echo(f"{self._subject}: waits for {what}", err=True)


@click.command(
    "scale",
    short_help="Give a running job another number of workers.",
    epilog="\b\nExamples:\n  elastic scale mnist 4\n  elastic scale mnist --num_workers=1\n"
    "  elastic scale mnist 8 --no_wait\n  elastic scale elasticjob/ddp --num_workers=5",
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

    JOB may be an object of another kind, KIND/NAME: its spec is edited then. The
    number is that of an ElasticJob's and a TFJob's workers, and of a
    TrainingJob's trainers; one outside of its range is refused.

    What it waits for is said on standard error; where they do not run after
    --timeout, or the job ends before, the exit code is 101.
    """
    if (workers is None) == (by_flag is None):
        raise click.UsageError("give the number of workers once: elastic scale JOB N", context)
    wanted = workers if workers is not None else by_flag
    assert wanted is not None, "one of the two was given"
    opened = open_platform(context, platform)
    objects = objects_beside(opened, platform)
    target = target_of(job, opened, objects)
    patience_s = timeout if wait else None
    if isinstance(target, ObjectTarget):
        return _scale_object(target, wanted, patience_s)
    with others_named(context, job, objects):
        return _scale_job(opened, target.name, wanted, patience_s)


def _scale_job(platform: Platform, job: str, wanted: int, timeout_s: float | None) -> ExitCode:
    """Scale a job of ours, and wait for its workers unless `timeout_s` is None."""
    before = num_running(platform.status(job))
    platform.scale(job, wanted)
    if timeout_s is None:
        workers_asked = counted(wanted, "worker", "workers")
        click.echo(f"job {job}: has been asked for {workers_asked}, has {before}")
        return ExitCode.DONE
    last = wait_for_workers(platform, job, wanted, timeout_s, WaitNotes(f"job {job}"))
    click.echo(_outcome(last, before, wanted))
    return ExitCode.DONE if num_running(last) == wanted else ExitCode.NOT_FINISHED


def _scale_object(target: ObjectTarget, wanted: int, timeout_s: float | None) -> ExitCode:
    """The same of an object of another kind."""
    from elastic.controller.inspection.objects import scale

    objects, reference = target.objects, target.reference
    before = scale(objects, reference, wanted)
    role = before.scaled_role
    asked = counted(wanted, role, f"{role}s")
    if timeout_s is None:
        has = before.replicas_ready
        click.echo(f"{reference}: has been asked for {asked}, has {has}")
        return ExitCode.DONE
    last = wait_for_replicas(
        lambda: objects.with_pods(reference), wanted, timeout_s, WaitNotes(str(reference))
    )
    if has_size(last, wanted):
        click.echo(f"{reference}: {before.replicas_ready} → {asked}")
        return ExitCode.DONE
    if last.is_final:
        click.echo(f"{reference} ended before it had {asked}: {last.phase}")
        return ExitCode.NOT_FINISHED
    click.echo(f"{reference}: {_so_far(last, wanted, asked)}; see elastic status {reference}")
    return ExitCode.NOT_FINISHED


def _so_far(status: ObjectStatus, wanted: int, asked: str) -> str:
    """What an object has whose time is over."""
    leaving = surplus(status, wanted)
    if leaving and status.replicas_ready == wanted:
        return f"{', '.join(leaving)} still there beside {asked}"
    why = status.message and f": {status.message}"
    return f"{status.replicas_ready} of {asked} run so far{why}"


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
    epilog="\b\nExamples:\n  elastic kill mnist --timeout 120\n  elastic kill mnist --forget\n"
    "  elastic kill tfjob/mnist",
)
@job_argument()
@click.option("--timeout", type=click.FloatRange(min=0), default=60.0, show_default=True,
              metavar="SECONDS", help="How long the job's processes may take to end.")  # fmt: skip
@click.option("--forget", is_flag=True, help="Also drop its status and all else that is kept.")
@platform_option
@click.pass_context
def kill(context: click.Context, job: str, timeout: float, forget: bool, platform: str) -> int:
    """Cancel JOB and wait until none of its processes is left.

    Its newest version is kept first, where --resume could go on from it, which may
    take half of --timeout. A second kill ends the job without that.

    JOB may be an object of another kind, KIND/NAME, which is deleted then, and
    with it all that belongs to it: nothing is kept.

    What it waits for is said on standard error. A job that has ended before is
    no error; where something is still there after --timeout, the exit code is 101.
    """
    opened = open_platform(context, platform)
    objects = objects_beside(opened, platform)
    target = target_of(job, opened, objects)
    try:
        if isinstance(target, ObjectTarget):
            return _kill_object(target, timeout)
        with others_named(context, job, objects):
            return _kill_job(opened, target.name, timeout, forget)
    except StillAliveError as error:
        click.echo(f"error: {error}", err=True)
        return ExitCode.NOT_FINISHED


def _kill_object(target: ObjectTarget, timeout_s: float) -> ExitCode:
    """Delete an object of another kind, and with it all that is kept of it."""
    from elastic.controller.inspection.objects import kill

    reference = target.reference
    before = kill(target.objects, reference, timeout_s, WaitNotes(str(reference)))
    if before is None:
        click.echo(f"nothing is left of {reference}, which had been deleted before")
    elif before.is_final:
        click.echo(f"{reference} had ended before: {before.phase}; it has been deleted")
    else:
        click.echo(f"{reference} has been stopped and deleted")
    return ExitCode.DONE


def _kill_job(opened: Platform, job: str, timeout_s: float, forget: bool) -> ExitCode:
    """End a job of ours.

    Raises:
        StillAliveError: Something is still there after `timeout_s`.
    """
    before = _phase(opened, job)
    opened.kill(job, timeout_s, WaitNotes(f"job {job}"))
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


# `elastic prune`: remove what jobs have left that ended long ago.


_PRUNE_EPILOG = """\b
Examples:
  elastic prune --dry_run
  elastic prune --older_than 1d --yes
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a look at all jobs has come to.

    Attributes:
        going: Jobs to remove, oldest submission first.
        kept: Jobs that are old enough too, each with what would be lost with it.
    """

    going: tuple[JobStatus, ...]
    kept: tuple[tuple[JobStatus, str], ...]


@click.command(
    "prune", short_help="Remove what jobs have left that ended long ago.", epilog=_PRUNE_EPILOG
)
@click.option("--older_than", callback=read_moment, default="7d", show_default=True,
              metavar="WHEN",
              help="Only jobs that ended before then: 12h, 7d, or a moment.")  # fmt: skip
@click.option("--with_results", is_flag=True,
              help="Also jobs that have what --resume goes on from, or results that are "
              "nowhere else.")  # fmt: skip
@click.option("--dry_run", is_flag=True, help="Print what would be removed, and remove nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@platform_option
@click.pass_context
def prune(
    context: click.Context,
    older_than: Since,
    with_results: bool,
    dry_run: bool,
    yes: bool,
    platform: str,
) -> int:
    """Remove what jobs have left that ended long ago.

    In a cluster that is the objects of a job in one namespace: pods, Services,
    the Secret of its token, and the ConfigMaps of record and status. On this
    machine it is the job's folder. Jobs that go on are left alone, and so is
    what lies elsewhere: exports, checkpoints and predictions in folders of your
    own, and whatever is on a volume.
    """
    opened = open_platform(context, platform)
    found = plan(opened, older_than, with_results)
    _show(found, opened.now_s())
    if not found.going or dry_run:
        click.echo(_count(found, "would be removed" if dry_run else "removed"))
        return ExitCode.DONE
    if not yes and not _has_agreed(context, len(found.going)):
        click.echo("nothing is removed")
        return ExitCode.DONE
    return _remove(opened, found)


def _show(found: Plan, now_s: float) -> None:
    for status in found.going:
        click.echo(_line(status, now_s))
    for status, lost in found.kept:
        click.echo(f"{_line(status, now_s)}: kept, it has {lost}: --with_results removes it too")


def _line(status: JobStatus, now_s: float) -> str:
    at_s = ended_s(status)
    ago = "" if at_s is None else f" {duration_text(max(0.0, now_s - at_s))} ago"
    return f"job {status.job_name}: {status.phase}{ago}"


def _has_agreed(context: click.Context, num_jobs: int) -> bool:
    """Ask whoever is at the terminal.

    Raises:
        UsageError: Nobody is.
    """
    if not sys.stdin.isatty():
        raise click.UsageError("nobody can be asked without a terminal: pass --yes", context)
    them = "it" if num_jobs == 1 else "them"
    return click.confirm(f"remove {_jobs(num_jobs)} and all that is kept of {them}?")


def _remove(platform: Platform, found: Plan) -> int:
    """Remove one after the other; one that cannot be does not keep the others."""
    num_removed = 0
    for status in found.going:
        try:
            remove(platform, status)
        except ElasticError as error:
            click.echo(f"error: job {status.job_name} is not removed: {error}", err=True)
        else:
            num_removed += 1
    left = len(found.going) - num_removed
    click.echo(_summary(num_removed, "removed", len(found.kept) + left))
    return ExitCode.NOT_FINISHED if left else ExitCode.DONE


def _count(found: Plan, what: str) -> str:
    return _summary(len(found.going), what, len(found.kept))


def _summary(num_going: int, what: str, num_kept: int) -> str:
    return f"{_jobs(num_going)} {what}" + (f", {num_kept} kept" if num_kept else "")


def _jobs(number: int) -> str:
    return f"{number} job" if number == 1 else f"{number} jobs"


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
