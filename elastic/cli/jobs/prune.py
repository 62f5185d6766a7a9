"""`elastic prune`: remove what jobs have left that ended long ago."""

import sys
from dataclasses import dataclass

import click

from elastic.cli.exit_codes import ExitCode
from elastic.cli.options import open_platform, platform_option, read_moment
from elastic.errors import ElasticError, JobExistsError, JobNotFoundError, PlatformError
from elastic.platforms.base import Platform
from elastic.policy.ended_jobs import ended_before, ended_s
from elastic.spec.status import JobStatus
from elastic.spec.values.since import Since
from elastic.telemetry.summary import duration_text

_EPILOG = """\b
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
    "prune", short_help="Remove what jobs have left that ended long ago.", epilog=_EPILOG
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
def command(
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
