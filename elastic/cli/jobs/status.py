"""`elastic status`: all jobs in a table, or one in depth; for people, or as documents.

`-o json` and `-o yaml` are jobs and objects as documents, which have a JSON Schema.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click
from pydantic import TypeAdapter
from rich.console import Console, RenderableType
from rich.live import Live

from elastic.cli import exit_codes
from elastic.cli.exit_codes import ExitCode
from elastic.cli.options import (
    JobTarget,
    cluster_choice,
    job_argument,
    objects_beside,
    open_platform,
    others_named,
    platform_option,
    target_of,
)
from elastic.client.following import all_statuses, changes, statuses
from elastic.errors import InfrastructureError
from elastic.platforms.base import Platform
from elastic.policy.time_account import as_of
from elastic.spec.status import JobStatus
from elastic.spec.status.document import document
from elastic.spec.status.objects import ListedJobStatus, Listing, ObjectStatus
from elastic.spec.yaml_text import dump_value
from elastic.telemetry.display import can_move_cursor
from elastic.telemetry.screens import job_screen, jobs_table, listing_table, object_screen

View = JobStatus | list[JobStatus] | ObjectStatus | Listing
"""What one look at a platform has seen: a job, all of them, or the same in a cluster."""

_SCHEMA_URI: Final = "https://json-schema.org/draft/2020-12/schema"
_OBJECT: Final[TypeAdapter[ObjectStatus]] = TypeAdapter(ObjectStatus)
_OUTPUT: Final[TypeAdapter[Any]] = TypeAdapter(
    JobStatus | ObjectStatus | list[ListedJobStatus | ObjectStatus]
)


if TYPE_CHECKING:
    from elastic.controller.inspection.objects import Objects

_PIPE_WIDTH: Final = 1 << 16
"""Wider than any line that goes into a pipe, where none is cut or folded."""

_EPILOG = """\b
The exit code tells how the named job stands: 0 while it runs or when it has
succeeded, 100 when it has failed, 103 when it was cancelled, 102 when there
is no such job.
\b
Examples:
  elastic status
  elastic status mnist -o json
  elastic status mnist --watch
  elastic status trainingjob/paddlejob
  elastic status --all_namespaces
  elastic status mnist -o json | jq .progress.loss
  elastic status --schema
"""


@click.command("status", short_help="Show all jobs, or one in depth.", epilog=_EPILOG)
@job_argument(required=False)
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table",
              show_default=True, help="Form of the output.")  # fmt: skip
@click.option("-w", "--watch", is_flag=True, help="Show every change until the job has ended.")
@click.option("-A", "--all_namespaces", is_flag=True,
              help="Show the jobs of all namespaces of a cluster.")  # fmt: skip
@click.option("--schema", is_flag=True,
              help="Print the JSON Schema of -o json, and look at no job.")  # fmt: skip
@platform_option
@click.pass_context
def command(
    context: click.Context,
    job: str | None,
    output: str,
    watch: bool,
    all_namespaces: bool,
    schema: bool,
    platform: str,
) -> int:
    """Show all jobs, or the one named JOB in depth.

    In a cluster these are also the objects of the kinds that elastic controller
    looks after: KIND/NAME means one of them, such as tfjob/mnist.
    """
    if schema:
        click.echo(schema_text(), nl=False)
        return ExitCode.DONE
    if all_namespaces:
        _refuse_one_place(context, job)
    opened = open_platform(context, platform)
    objects = objects_beside(opened, platform)
    if objects is None and all_namespaces:
        click.echo(f"note: unused with --platform {platform}: --all_namespaces", err=True)
    screens = Screens(opened, objects, all_namespaces)
    try:
        with others_named(context, job or "", objects):
            last = screens.show(screens.views(job, watch), output, watch)
    except InfrastructureError as error:
        if not watch:
            raise
        click.echo(f"error: {job or 'jobs'} can no longer be watched: {error}", err=True)
        return ExitCode.NOT_FINISHED
    match last:
        case JobStatus():
            return exit_codes.of_phase(last.phase)
        case ObjectStatus():
            return exit_codes.of_phase(last.phase.capitalize())
    return ExitCode.DONE


def _refuse_one_place(context: click.Context, job: str | None) -> None:
    if job:
        raise click.UsageError(
            "a job is in one namespace: leave out JOB, or --all_namespaces", context
        )
    if cluster_choice(context).namespace:
        raise click.UsageError("--namespace and --all_namespaces exclude each other", context)


class Screens:
    """What is looked at, and how it is printed."""

    def __init__(self, platform: Platform, objects: "Objects | None", all_namespaces: bool) -> None:
        self._platform = platform
        self._objects = objects
        self._all_namespaces = all_namespaces

    def views(self, job: str | None, watch: bool) -> Iterator[View]:
        """One look at what is asked for, or one whenever it changes."""
        if job is None:
            return self._views_of_all(watch)
        target = target_of(job, self._platform, self._objects)
        if isinstance(target, JobTarget):
            name = target.name
            return statuses(self._platform, name) if watch else iter([self._platform.status(name)])
        look = target.objects.status
        if watch:
            return until_final(changes(lambda: look(target.reference)))
        return iter([look(target.reference)])

    def _views_of_all(self, watch: bool) -> Iterator[View]:
        objects = self._objects
        if objects is not None:
            everywhere = self._all_namespaces
            if watch:
                return changes(lambda: objects.listing(everywhere))
            return iter([objects.listing(everywhere)])
        return all_statuses(self._platform) if watch else iter([list(self._platform.statuses())])

    def show(self, views: Iterator[View], output: str, watch: bool) -> View | None:
        """Print each view; returns the last one."""
        view: View | None = None
        if output != "table":
            for view in views:
                click.echo(view_text(view, output, watch, self._platform.now_s()), nl=False)
            return view
        console = Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH)
        if not (watch and can_move_cursor(sys.stdout)):
            for view in views:
                _print(console, self._screen(view))
            return view
        with Live(console=console, auto_refresh=False) as live:
            for view in views:
                live.update(self._screen(view), refresh=True)
        return view

    def _screen(self, view: View) -> RenderableType:
        now_s = self._platform.now_s()
        match view:
            case JobStatus():
                return job_screen(view, now_s)
            case ObjectStatus():
                return object_screen(view, now_s)
            case Listing() if (
                view.objects or self._all_namespaces or any(job.kind for job in view.jobs)
            ):
                return listing_table(view, now_s, self._all_namespaces)
            case Listing():
                # With nothing else beside them, our own jobs tell more.
                return jobs_table([job.status for job in view.jobs], now_s)
        return jobs_table(view, now_s)


def until_final(views: Iterator[ObjectStatus]) -> Iterator[ObjectStatus]:
    """The same, up to the one in which the object has ended."""
    for view in views:
        yield view
        if view.is_final:
            return


def _print(console: Console, screen: RenderableType) -> None:
    if console.is_terminal:
        console.print(screen)
        return
    with console.capture() as drawn:
        console.print(screen)
    # Rich fills up every cell of a table, those at the end of a line too.
    click.echo("\n".join(line.rstrip() for line in drawn.get().splitlines()))


def listed_document(status: JobStatus, namespace: str = "") -> dict[str, Any]:
    """The document of a job in a list.

    Args:
        status: Of a job.
        namespace: Where it is; empty where its platform has none.
    """
    return document(status) | {"namespace": namespace}


def object_document(status: ObjectStatus) -> dict[str, Any]:
    """An object in JSON's values."""
    plain: dict[str, Any] = _OBJECT.dump_python(status, mode="json")
    return plain


def view_text(view: View, output: str, watch: bool, now_s: float) -> str:
    """JSON or YAML; while watching, one JSON line or YAML document per change."""
    content = _content(view, now_s)
    if output == "yaml":
        return ("---\n" if watch else "") + dump_value(content)
    return json.dumps(content, indent=None if watch else 2) + "\n"


def _content(view: View, now_s: float) -> Any:
    match view:
        case JobStatus():
            return document(as_of(view, now_s))
        case ObjectStatus():
            return object_document(view)
        case Listing():
            jobs = [
                listed_document(as_of(each.status, now_s), each.namespace) for each in view.jobs
            ]
            return [*jobs, *map(object_document, view.objects)]
    return [listed_document(as_of(status, now_s)) for status in view]


def status_schema() -> dict[str, Any]:
    """The JSON Schema of `elastic status -o json`, with and without the name of a job.

    Fields may be added without another version, so none that is unknown is forbidden.
    """
    schema: dict[str, Any] = _open(_OUTPUT.json_schema(mode="serialization"))
    head = {
        "$schema": _SCHEMA_URI,
        "title": "elastic status",
        "description": "What `elastic status JOB -o json` prints: a JobStatus, or an ObjectStatus "
        "where JOB is KIND/NAME. Without JOB it is a list of all, with the namespace of each.",
    }
    return head | schema


def schema_text() -> str:
    """The JSON Schema as it stands in `docs/status.schema.json`."""
    return json.dumps(status_schema(), indent=2) + "\n"


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
