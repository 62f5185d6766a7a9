"""What simulations came to, for people and for programs: policies side by side. Pure."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from elastic.planning.telling import aligned
from elastic.simulation.metrics import Metrics
from elastic.simulation.outcome import JobRun, Outcome


@dataclass(frozen=True, slots=True)
class Result:
    """One simulation.

    Attributes:
        policy: The name of who decided.
        wall_s: How long the simulation took, in seconds of the real clock.
    """

    policy: str
    outcome: Outcome
    metrics: Metrics
    wall_s: float


def result_lines(results: Sequence[Result]) -> list[str]:
    """A column for each policy, a row for each number."""
    columns = [_cells(each) for each in results]
    labels = list(dict.fromkeys(label for column in columns for label in column))
    rows = [["", *(each.policy for each in results)]]
    rows += [[label, *(column.get(label, "-") for column in columns)] for label in labels]
    return aligned(rows, right=range(1, len(results) + 1))


def _cells(result: Result) -> dict[str, str]:
    metrics = result.metrics
    cells = {
        "jobs": str(metrics.num_jobs),
        "never started": str(metrics.num_never_started),
        "not ended": str(metrics.num_not_ended),
        "pending, mean s": _number(metrics.pending.mean_s),
        "pending, p99 s": _number(metrics.pending.p99_s),
        "completion, mean s": _number(metrics.completion.mean_s),
        "completion, p99 s": _number(metrics.completion.p99_s),
        "makespan, s": _number(metrics.makespan_s),
        "scale actions": str(metrics.scale_actions),
    }
    for span in metrics.spans:
        where = f" ({span.name}, {span.from_s:.0f} to {span.to_s:.0f} s)"
        where = "" if span is metrics.whole else where
        for resource, used in span.utilisation.items():
            cells[f"{resource} in use{where}"] = f"{100 * used:.1f}%"
        if span.jain is not None:
            cells[f"fairness{where}"] = f"{span.jain:.3f}"
        if span.card_use is not None:
            cells[f"shared GPUs in use{where}"] = f"{100 * span.card_use:.1f}%"
    cells["plans"] = str(metrics.num_plans)
    cells["took, s"] = f"{result.wall_s:.1f}"
    return cells


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


def result_document(results: Sequence[Result]) -> dict[str, Any]:
    """The same and each job, as plain values."""
    return {"policies": {each.policy: _document(each) for each in results}}


def _document(result: Result) -> dict[str, Any]:
    metrics = asdict(result.metrics)
    metrics["spans"] = {span["name"]: span for span in metrics["spans"]}
    return {
        "metrics": metrics,
        "wall_s": result.wall_s,
        "jobs": [_job(each) for each in result.outcome.jobs],
        "notes": dict(result.outcome.notes),
    }


def _job(job: JobRun) -> dict[str, Any]:
    return {
        "name": job.name,
        "submitted_s": job.submitted_s,
        "started_s": job.started_s,
        "ended_s": job.ended_s,
        "scale_actions": job.scale_actions,
        "sizes": [list(each) for each in job.sizes],
    }
