"""What `elastic status` shows of other kinds: all jobs in one table, and one object in depth."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.text import Text

from elastic.spec.status.objects import (
    EventStatus,
    ListedJob,
    Listing,
    ObjectStatus,
    PodStatus,
)
from elastic.telemetry.screens import (
    MIN_WIDTH_FOR_BARS,
    add_name_column,
    facts_table,
    plain_table,
)
from elastic.telemetry.summary import age_text, duration_text, is_running, percent_text

MAX_PODS: Final = 40
"""A job whose trainers fail again and again leaves hundreds."""

MAX_EVENTS: Final = 10
_STYLES: Final = {
    "running": "green",
    "succeeded": "bold green",
    "restarting": "yellow",
    "recovering": "yellow",
    "suspended": "yellow",
    "terminating": "yellow",
    "failed": "bold red",
    "cancelled": "red",
}
"""By phases in lower case, of whatever kind."""


def phase_style(phase: str) -> str:
    """How a phase of any kind is coloured."""
    return _STYLES.get(phase.lower(), "cyan")


@dataclass(frozen=True, slots=True)
class _Row:
    """One job in the table of all kinds."""

    namespace: str
    name: str
    kind: str
    phase: str
    replicas: str
    minimum: str
    maximum: str
    age: str
    progress: str = "-"


def listing_table(listing: Listing, now_s: float, has_namespaces: bool) -> RenderableType:
    """One line for each job and each object.

    Args:
        listing: What there is.
        now_s: Seconds since the epoch, for ages.
        has_namespaces: Whether they are of several namespaces, which are shown then.
    """
    rows = [*(_of_job(each, now_s) for each in listing.jobs)]
    rows += [_of_object(each, now_s) for each in listing.objects]
    return _ListingTable(tuple(rows), has_namespaces) if rows else Text("no jobs")


@dataclass(frozen=True, slots=True)
class _ListingTable:
    """Tells how far jobs are where there is room beside their names."""

    rows: Sequence[_Row]
    has_namespaces: bool

    def __rich_console__(
        self, _console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        has_progress = options.max_width >= MIN_WIDTH_FOR_BARS
        table = plain_table()
        if self.has_namespaces:
            add_name_column(table, "NAMESPACE", [row.namespace for row in self.rows])
        add_name_column(table, "JOB", [row.name for row in self.rows])
        table.add_column("KIND", no_wrap=True)
        table.add_column("PHASE", no_wrap=True)
        for title in ("READY", "MIN", "MAX", *(["PROGRESS"] if has_progress else []), "AGE"):
            table.add_column(title, justify="right", no_wrap=True)
        for row in self.rows:
            table.add_row(
                *([row.namespace] if self.has_namespaces else []),
                row.name,
                row.kind,
                Text(row.phase, style=phase_style(row.phase)),
                row.replicas,
                row.minimum,
                row.maximum,
                *([row.progress] if has_progress else []),
                row.age,
            )
        yield table


def _of_job(job: ListedJob, now_s: float) -> _Row:
    status, limits = job.status, job.workers
    running = sum(map(is_running, status.workers))
    return _Row(
        job.namespace,
        status.job_name,
        job.kind or status.kind.value,
        str(status.phase),
        f"{running}/{status.desired_workers}",
        _number(limits.minimum if limits else None),
        _number(limits.maximum if limits else None),
        age_text(status, now_s),
        percent_text(status),
    )


def _of_object(status: ObjectStatus, now_s: float) -> _Row:
    return _Row(
        status.namespace,
        status.job_name,
        status.kind,
        status.phase or "-",
        _replicas(status),
        _number(status.replicas_min),
        _number(status.replicas_max),
        _age(status.submitted_s, now_s),
    )


def _replicas(status: ObjectStatus) -> str:
    return f"{status.replicas_ready}/{_number(status.replicas_wanted)}"


def _number(number: int | None) -> str:
    return "-" if number is None else str(number)


def _age(since_s: float | None, now_s: float) -> str:
    return "-" if since_s is None else duration_text(now_s - since_s)


def object_screen(status: ObjectStatus, now_s: float) -> RenderableType:
    """All that is told of one object."""
    parts: list[RenderableType] = [_head(status), facts_table(_facts(status, now_s))]
    if status.conditions:
        parts += [Text(), _conditions_table(status, now_s)]
    if status.pods:
        parts += [Text(), _pods_table(status.pods[:MAX_PODS], now_s)]
        if len(status.pods) > MAX_PODS:
            parts.append(Text(f"and {len(status.pods) - MAX_PODS} more"))
    if status.events:
        parts += [Text(), Text("EVENTS", style="bold")]
        parts += [_event_line(each) for each in status.events[-MAX_EVENTS:]]
    return Group(*parts)


def _head(status: ObjectStatus) -> Text:
    head = Text(status.job_name, style="bold").append("  ")
    if not status.phase:
        return head.append("no controller has seen it yet", style="yellow")
    head.append(status.phase, style=phase_style(status.phase))
    why = ": ".join(filter(None, (status.reason, status.message)))
    return head.append(f"  {why}", style="not bold") if why else head


def _facts(status: ObjectStatus, now_s: float) -> list[tuple[str, str]]:
    limits = f"min {_number(status.replicas_min)}, max {_number(status.replicas_max)}"
    return [
        ("kind", f"{status.kind} ({status.api_version})"),
        ("namespace", status.namespace),
        (f"{status.scaled_role}s", f"{_replicas(status)} run ({limits})"),
        ("age", _age(status.submitted_s, now_s)),
    ]


def _conditions_table(status: ObjectStatus, now_s: float) -> RenderableType:
    table = plain_table()
    table.add_column("CONDITION", no_wrap=True)
    table.add_column("STATUS", no_wrap=True)
    table.add_column("SINCE", justify="right", no_wrap=True)
    table.add_column("MESSAGE", overflow="fold")
    for each in status.conditions:
        why = each.message or each.reason
        table.add_row(each.type, each.status, _age(each.changed_s, now_s), Text(why))
    return table


def _pods_table(pods: Sequence[PodStatus], now_s: float) -> RenderableType:
    table = plain_table()
    table.add_column("REPLICA", overflow="fold")
    table.add_column("PHASE", no_wrap=True)
    table.add_column("READY", no_wrap=True)
    for title in ("RESTARTS", "AGE"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("NODE", overflow="fold")
    has_messages = any(each.message for each in pods)
    if has_messages:
        table.add_column("BECAUSE", overflow="fold")
    for each in pods:
        table.add_row(
            each.replica,
            Text(each.phase, style=phase_style(each.phase)),
            "yes" if each.is_ready else "no",
            str(each.restarts),
            _age(each.created_s, now_s),
            each.node or "-",
            *([Text(each.message)] if has_messages else []),
        )
    return table


def _event_line(event: EventStatus) -> Text:
    """`12:01:03 SuccessfulCreatePod: Created pod: j-worker-0`, in local time."""
    at = "-" if event.time_s is None else time.strftime("%H:%M:%S", time.localtime(event.time_s))
    times = f" ({event.count} times)" if event.count > 1 else ""
    style = "yellow" if event.type == "Warning" else ""
    return Text(f"{at} {event.reason}: {event.message}{times}", style=style)
