"""`elastic logs`: what a job's replicas have written."""

import sys
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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
from elastic.client.following import replica_names
from elastic.platforms.base import LogLine, Platform
from elastic.spec.roles import ROLES
from elastic.spec.status import JobPhase
from elastic.spec.values.since import Since
from elastic.telemetry.display import takes_colours

_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "bright_cyan", "bright_green")


def _own_roles(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    return [role for role in ROLES if role.startswith(incomplete)]


_EPILOG = """\b
Flags are those of kubectl where kubectl has them. On one machine the time of
a line is what it begins with; a line without one belongs to the line before.
\b
Examples:
  elastic logs mnist -f
  elastic logs mnist --role worker --index 1 --tail 100
  elastic logs mnist --since 10m --timestamps
  elastic logs tfjob/mnist --role ps -f
"""


@click.command("logs", short_help="Print the logs of a job's replicas.", epilog=_EPILOG)
@job_argument()
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended.")
@click.option("--tail", type=click.IntRange(min=-1), metavar="N",
              help="Only the last N lines of each replica; -1 for all.")  # fmt: skip
@click.option("--since", "--since_time", "since", callback=read_moment, metavar="WHEN",
              help="Only lines from then on: 90s, 10m, 1h30m, 2d, or a moment.")  # fmt: skip
@click.option("--timestamps", is_flag=True, help="Begin each line with its time.")
@click.option("--role", metavar="ROLE", shell_complete=_own_roles,
              help=f"Only replicas of this role: {' or '.join(ROLES)}; those of other kinds "
              "are in elastic status KIND/NAME.")  # fmt: skip
@click.option("--index", type=click.IntRange(min=0), metavar="I",
              help="Only the replica of this index; a worker unless --role says else.")  # fmt: skip
@click.option("-p", "--previous", is_flag=True,
              help="Of the life before; the last lines of a replaced worker.")  # fmt: skip
@platform_option
@click.pass_context
def command(
    context: click.Context,
    job: str,
    follow: bool,
    tail: int | None,
    since: Since | None,
    timestamps: bool,
    role: str | None,
    index: int | None,
    previous: bool,
    platform: str,
) -> int:
    """Print the logs of JOB, each line after the name of its replica.

    JOB may be an object of another kind, KIND/NAME, whose pods are read then.
    """
    if follow and previous:
        raise click.UsageError("--follow and --previous exclude each other", context)
    opened = open_platform(context, platform)
    objects = objects_beside(opened, platform)
    target = target_of(job, opened, objects)
    which = Which(follow, None if tail == -1 else tail, previous, since)
    if isinstance(target, ObjectTarget):
        has_lines = _print_object(target, role, index, which, timestamps)
        if not has_lines and not follow:
            click.echo(f"note: the pods of {target.reference} have written nothing", err=True)
        return ExitCode.DONE
    if role is not None and role not in ROLES:
        raise click.BadParameter(
            f"{role!r} is not one of {', '.join(map(repr, ROLES))}.",
            context,
            param_hint="'--role'",
        )
    with others_named(context, job, objects):
        _print_job(opened, target.name, replica_names(role, index), which, timestamps)
    return ExitCode.DONE


@dataclass(frozen=True, slots=True)
class Which:
    """Which lines are wanted; see `Platform.logs`."""

    follow: bool
    tail: int | None
    previous: bool
    since: Since | None


def _print_object(
    target: ObjectTarget, role: str | None, index: int | None, which: Which, timestamps: bool
) -> bool:
    """Print what the pods of an object have written; whether they have."""
    from elastic.controller.inspection.logs import read, replicas_named

    names = replicas_named(target.reference, role, index)
    lines = read(
        target.objects,
        target.reference,
        names,
        which.follow,
        which.tail,
        which.previous,
        which.since,
    )
    return _print(lines, timestamps)


def _print_job(
    platform: Platform, job: str, names: Sequence[str], which: Which, timestamps: bool
) -> None:
    if which.follow:
        # Nothing may come for long.
        _note_pending(platform, job)
    lines = platform.logs(job, names, which.follow, which.tail, which.previous, which.since)
    if not _print(lines, timestamps) and not which.follow:
        _note_pending(platform, job)


def _print(lines: Iterable[LogLine], timestamps: bool) -> bool:
    """Print lines; whether there were any."""
    coloured = takes_colours(sys.stdout)
    has_lines = False
    for line in lines:
        has_lines = True
        click.echo(_prefixed(line, coloured, timestamps))
    return has_lines


def _note_pending(platform: Platform, job: str) -> None:
    """Say why a job that waits to start has no lines; whoever reads the lines is not disturbed."""
    status = platform.status(job)
    if status.phase is JobPhase.PENDING:
        why = ": ".join(filter(None, (status.reason, status.message)))
        click.echo(f"note: nothing of job {job} runs yet: {why or 'it is Pending'}", err=True)


def _prefixed(line: LogLine, coloured: bool, timestamps: bool) -> str:
    prefix = f"[{line.replica}]"
    if coloured:
        # Not hash(): a replica keeps its colour from one call to the next.
        prefix = click.style(prefix, fg=_COLOURS[zlib.crc32(line.replica.encode()) % len(_COLOURS)])
    parts = (prefix, line.stamp, line.text) if timestamps and line.stamp else (prefix, line.text)
    return " ".join(parts)
