"""`elastic logs`: what a job's replicas have written."""

import os
import sys
import zlib

import click

from elastic.cli.exit_codes import ExitCode
from elastic.cli.platform import open_platform, platform_option
from elastic.platforms.base import LogLine

_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "bright_cyan", "bright_green")


@click.command(
    "logs",
    short_help="Print the logs of a job's replicas.",
    epilog="\b\nExamples:\n  elastic logs mnist -f\n"
    "  elastic logs mnist --role worker --index 1 --tail 100",
)
@click.argument("job")
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N",
              help="Only the last N lines of each replica.")  # fmt: skip
@click.option("--role", type=click.Choice(["master", "worker"]),
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
    role: str | None,
    index: int | None,
    previous: bool,
    platform: str,
) -> int:
    """Print the logs of JOB, each line after the name of its replica."""
    if follow and previous:
        raise click.UsageError("--follow and --previous exclude each other", context)
    opened = open_platform(context, platform)
    names = [role] if role else []
    if index is not None:
        names = [f"{role or 'worker'}-{index}"]
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    for line in opened.logs(job, names, follow, tail, previous):
        click.echo(_prefixed(line, coloured))
    return ExitCode.DONE


def _prefixed(line: LogLine, coloured: bool) -> str:
    prefix = f"[{line.replica}]"
    if coloured:
        # Not hash(): a replica keeps its colour from one call to the next.
        prefix = click.style(prefix, fg=_COLOURS[zlib.crc32(line.replica.encode()) % len(_COLOURS)])
    return f"{prefix} {line.text}"
