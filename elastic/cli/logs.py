"""`elastic logs`: what a job's replicas have written."""

import sys
import zlib

import click

from elastic.cli.completing import job_argument
from elastic.cli.exit_codes import ExitCode
from elastic.cli.moments import read_moment
from elastic.cli.platform import open_platform, platform_option
from elastic.client.replicas import replica_names
from elastic.platforms.base import LogLine, Platform
from elastic.spec.roles import ROLES
from elastic.spec.since import Since
from elastic.spec.status import JobPhase
from elastic.telemetry.display import takes_colours

_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "bright_cyan", "bright_green")

_EPILOG = """\b
Flags are those of kubectl where kubectl has them. On one machine the time of
a line is what it begins with; a line without one belongs to the line before.
\b
Examples:
  elastic logs mnist -f
  elastic logs mnist --role worker --index 1 --tail 100
  elastic logs mnist --since 10m --timestamps
"""


@click.command("logs", short_help="Print the logs of a job's replicas.", epilog=_EPILOG)
@job_argument()
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended.")
@click.option("--tail", type=click.IntRange(min=-1), metavar="N",
              help="Only the last N lines of each replica; -1 for all.")  # fmt: skip
@click.option("--since", "--since_time", "since", callback=read_moment, metavar="WHEN",
              help="Only lines from then on: 90s, 10m, 1h30m, 2d, or a moment.")  # fmt: skip
@click.option("--timestamps", is_flag=True, help="Begin each line with its time.")
@click.option("--role", type=click.Choice(list(ROLES)),
              help="Only replicas of this role.")  # fmt: skip
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
    """Print the logs of JOB, each line after the name of its replica."""
    if follow and previous:
        raise click.UsageError("--follow and --previous exclude each other", context)
    opened = open_platform(context, platform)
    names = replica_names(role, index)
    tail = None if tail == -1 else tail
    coloured = takes_colours(sys.stdout)
    if follow:
        # Nothing may come for long.
        _note_pending(opened, job)
    has_lines = False
    for line in opened.logs(job, names, follow, tail, previous, since):
        has_lines = True
        click.echo(_prefixed(line, coloured, timestamps))
    if not has_lines and not follow:
        _note_pending(opened, job)
    return ExitCode.DONE


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
