"""`elastic status`: all jobs in a table, or one in depth; for people, or as JSON with a schema."""

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import click
from pydantic import TypeAdapter
from rich.console import Console, RenderableType
from rich.live import Live

from elastic.cli import exit_codes
from elastic.cli.exit_codes import ExitCode
from elastic.cli.options import job_argument, open_platform, platform_option
from elastic.client.following import all_statuses, statuses
from elastic.errors import InfrastructureError
from elastic.policy.time_account import as_of
from elastic.spec.status import JobStatus
from elastic.spec.yaml_text import dump_value
from elastic.telemetry.display import can_move_cursor
from elastic.telemetry.screens import job_screen, jobs_table

_SCHEMA_URI: Final = "https://json-schema.org/draft/2020-12/schema"
_STATUS: Final[TypeAdapter[JobStatus]] = TypeAdapter(JobStatus)
_OUTPUT: Final[TypeAdapter[JobStatus | list[JobStatus]]] = TypeAdapter(JobStatus | list[JobStatus])


def document(status: JobStatus) -> dict[str, Any]:
    """The status in JSON's values; `null` where JSON has no number."""
    plain: dict[str, Any] = _finite(_STATUS.dump_python(status, mode="json"))
    return plain


def status_schema() -> dict[str, Any]:
    """The JSON Schema of `elastic status -o json`, with and without the name of a job.

    Fields may be added without another version, so none that is unknown is forbidden.
    """
    schema: dict[str, Any] = _open(_OUTPUT.json_schema(mode="serialization"))
    head = {
        "$schema": _SCHEMA_URI,
        "title": "elastic status",
        "description": "What `elastic status JOB -o json` prints, or without JOB a list of it.",
    }
    return head | schema


def _finite(value: Any) -> Any:
    match value:
        case dict():
            return {key: _finite(item) for key, item in value.items()}
        case list():
            return [_finite(item) for item in value]
        case float() if not math.isfinite(value):
            return None
    return value


def _open(schema: Any) -> Any:
    """The same schema without what forbids unknown fields, and without titles that only repeat."""
    match schema:
        case Mapping():
            return {
                key: _open(item)
                for key, item in schema.items()
                if not (key == "additionalProperties" and item is False)
                and not (key == "title" and isinstance(item, str))
            }
        case Sequence() if not isinstance(schema, str):
            return [_open(item) for item in schema]
    return schema


# Wider than any line that goes into a pipe, where none is cut or folded.
_PIPE_WIDTH = 1 << 16

_View = JobStatus | list[JobStatus]

_EPILOG = """\b
The exit code tells how the named job stands: 0 while it runs or when it has
succeeded, 100 when it has failed, 103 when it was cancelled, 102 when there
is no such job.
\b
Examples:
  elastic status
  elastic status mnist -o json
  elastic status mnist --watch
  elastic status mnist -o json | jq .progress.loss
  elastic status --schema
"""


@click.command("status", short_help="Show all jobs, or one in depth.", epilog=_EPILOG)
@job_argument(required=False)
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table",
              show_default=True, help="Form of the output.")  # fmt: skip
@click.option("-w", "--watch", is_flag=True, help="Show every change until the job has ended.")
@click.option("--schema", is_flag=True,
              help="Print the JSON Schema of -o json, and look at no job.")  # fmt: skip
@platform_option
@click.pass_context
def command(
    context: click.Context, job: str | None, output: str, watch: bool, schema: bool, platform: str
) -> int:
    """Show all jobs, or the one named JOB in depth."""
    if schema:
        click.echo(schema_text(), nl=False)
        return ExitCode.DONE
    opened = open_platform(context, platform)
    views: Iterator[_View]
    if watch:
        views = statuses(opened, job) if job else all_statuses(opened)
    else:
        views = iter([opened.status(job) if job else list(opened.statuses())])
    try:
        last = _show(views, output, watch, opened.now_s)
    except InfrastructureError as error:
        if not watch:
            raise
        click.echo(f"error: {job or 'jobs'} can no longer be watched: {error}", err=True)
        return ExitCode.NOT_FINISHED
    return exit_codes.of_phase(last.phase) if isinstance(last, JobStatus) else ExitCode.DONE


def _show(
    views: Iterator[_View], output: str, watch: bool, wall_clock: Callable[[], float]
) -> _View | None:
    """Print each view; returns the last one."""
    view: _View | None = None
    if output != "table":
        for view in views:
            click.echo(_document(view, output, watch, wall_clock()), nl=False)
        return view
    console = Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH)
    if not (watch and can_move_cursor(sys.stdout)):
        for view in views:
            _print(console, _screen(view, wall_clock()))
        return view
    with Live(console=console, auto_refresh=False) as live:
        for view in views:
            live.update(_screen(view, wall_clock()), refresh=True)
    return view


def _print(console: Console, screen: RenderableType) -> None:
    if console.is_terminal:
        console.print(screen)
        return
    with console.capture() as drawn:
        console.print(screen)
    # Rich fills up every cell of a table, those at the end of a line too.
    click.echo("\n".join(line.rstrip() for line in drawn.get().splitlines()))


def _screen(view: _View, now_s: float) -> RenderableType:
    return job_screen(view, now_s) if isinstance(view, JobStatus) else jobs_table(view, now_s)


def _document(view: _View, output: str, watch: bool, now_s: float) -> str:
    """JSON or YAML; while watching, one JSON line or YAML document per change."""
    content = (
        document(as_of(view, now_s))
        if isinstance(view, JobStatus)
        else [document(as_of(status, now_s)) for status in view]
    )
    if output == "yaml":
        return ("---\n" if watch else "") + dump_value(content)
    return json.dumps(content, indent=None if watch else 2) + "\n"


def schema_text() -> str:
    """The JSON Schema as it stands in `docs/status.schema.json`."""
    return json.dumps(status_schema(), indent=2) + "\n"
