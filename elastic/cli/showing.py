"""`elastic status`, `elastic logs` and `elastic tensorboard`: what shows jobs and changes nothing.

All jobs are a table, and one is shown in depth; for people, or as documents: `-o json` and
`-o yaml` are jobs and objects as documents, which have a JSON Schema.
"""

import json
import shlex
import sys
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from pydantic import TypeAdapter
from rich.console import Console, RenderableType
from rich.live import Live

from elastic.cli import exit_codes
from elastic.cli.exit_codes import ExitCode
from elastic.cli.options import (
    JobTarget,
    ObjectTarget,
    cluster_choice,
    job_argument,
    objects_beside,
    open_platform,
    others_named,
    platform_option,
    read_moment,
    target_of,
)
from elastic.cli.terminal import as_ctrl_c
from elastic.client.platforms import all_statuses, changes, replica_names, statuses
from elastic.errors import InfrastructureError
from elastic.platforms.base import BoardFolder, BoardInCluster, LogLine, Platform
from elastic.policy.accounts import as_of
from elastic.spec.roles import ROLES
from elastic.spec.status import (
    JobPhase,
    JobStatus,
    ListedJobStatus,
    Listing,
    ObjectStatus,
    document,
)
from elastic.spec.values import Since
from elastic.spec.yaml_text import dump_value
from elastic.telemetry.progress import can_move_cursor, takes_colours
from elastic.telemetry.screens import job_screen, jobs_table, listing_table, object_screen

if TYPE_CHECKING:
    from elastic.controller.inspection.objects import Objects


View = JobStatus | list[JobStatus] | ObjectStatus | Listing
"""What one look at a platform has seen: a job, all of them, or the same in a cluster."""

_SCHEMA_URI: Final = "https://json-schema.org/draft/2020-12/schema"
_OBJECT: Final[TypeAdapter[ObjectStatus]] = TypeAdapter(ObjectStatus)
_OUTPUT: Final[TypeAdapter[Any]] = TypeAdapter(
    JobStatus | ObjectStatus | list[ListedJobStatus | ObjectStatus]
)

_PIPE_WIDTH: Final = 1 << 16
"""Wider than any line that goes into a pipe, where none is cut or folded."""

_STATUS_EPILOG = """\b
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


@click.command("status", short_help="Show all jobs, or one in depth.", epilog=_STATUS_EPILOG)
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
def status(
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
                _print_screen(console, self._screen(view))
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


def _print_screen(console: Console, screen: RenderableType) -> None:
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


# `elastic logs`: what a job's replicas have written.


_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "bright_cyan", "bright_green")


def _own_roles(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    return [role for role in ROLES if role.startswith(incomplete)]


_LOGS_EPILOG = """\b
Flags are those of kubectl where kubectl has them. On one machine the time of
a line is what it begins with; a line without one belongs to the line before.
\b
Examples:
  elastic logs mnist -f
  elastic logs mnist --role worker --index 1 --tail 100
  elastic logs mnist --since 10m --timestamps
  elastic logs tfjob/mnist --role ps -f
"""


@click.command("logs", short_help="Print the logs of a job's replicas.", epilog=_LOGS_EPILOG)
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
def logs(
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
    from elastic.controller.inspection.objects import object_logs, replicas_named

    names = replicas_named(target.reference, role, index)
    lines = object_logs(
        target.objects,
        target.reference,
        names,
        which.follow,
        which.tail,
        which.previous,
        which.since,
    )
    return _print_lines(lines, timestamps)


def _print_job(
    platform: Platform, job: str, names: Sequence[str], which: Which, timestamps: bool
) -> None:
    if which.follow:
        # Nothing may come for long.
        _note_pending(platform, job)
    lines = platform.logs(job, names, which.follow, which.tail, which.previous, which.since)
    if not _print_lines(lines, timestamps) and not which.follow:
        _note_pending(platform, job)


def _print_lines(lines: Iterable[LogLine], timestamps: bool) -> bool:
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


# `elastic tensorboard`: the curves of a job in a browser.


@click.command(
    "tensorboard",
    short_help="Show a job's curves in TensorBoard.",
    epilog="\b\nExamples:\n  elastic tensorboard mnist --platform local\n"
    "  elastic tensorboard mnist -n team",
)
@job_argument()
@click.option("--port", type=click.IntRange(0, 65535), default=6006, show_default=True,
              metavar="N", help="Port on this machine; 0 takes a free one.")  # fmt: skip
@platform_option
@click.pass_context
def tensorboard(context: click.Context, job: str, port: int, platform: str) -> int:
    """Show the curves of JOB, which was submitted with --tensorboard_log_dir.

    Of a job of this machine TensorBoard is started here and ends with Ctrl-C,
    whether or not the job still runs. Of one in a cluster it runs there, and
    what is printed opens it.
    """
    match open_platform(context, platform).board(job):
        case BoardFolder(path):
            _serve(job, path, port)
        case BoardInCluster() as board:
            click.echo(_hint(context, job, board, port))
    return 0


def _serve(job: str, path: Path, port: int) -> None:
    # Only who looks needs it.
    from elastic.telemetry.board import Board

    with as_ctrl_c():
        address = Board(path, "127.0.0.1", port).start()
        click.echo(f"TensorBoard of job {job}: {address} (Ctrl-C ends it)")
        threading.Event().wait()


def _hint(context: click.Context, job: str, board: BoardInCluster, port: int) -> str:
    choice = cluster_choice(context)
    given = [("--kubeconfig", choice.kubeconfig), ("--context", choice.context)]
    where = [part for name, value in given if value for part in (name, value)]
    forward = [
        *("kubectl", *where, "--namespace", board.namespace, "port-forward"),
        *(f"pod/{board.pod}", f"{port or ''}:{board.port}"),
    ]
    address = f"http://localhost:{port}/" if port else "the address that it prints"
    return (
        f"TensorBoard of job {job} runs in pod {board.pod}{board.note and f' ({board.note})'}. "
        f"While this runs\n  {shlex.join(forward)}\nit is at {address}"
    )
