"""Pictures of simulations, as PNG: one of each policy, and one that compares them.

What they show, as numbers over time, is pure. matplotlib is imported here alone, and this module by
nobody who does not draw.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from elastic.simulation.outcome import JobRun, Outcome, Result

_PALETTE: Final = tuple(index for index in range(20) if index not in {14, 15})
"""Those of tab20 that are no grey."""

_MAX_LAYERS: Final = len(_PALETTE)
"""As many as colours can be told apart; of more jobs those with the most use are shown."""

_NUM_BINS: Final = 200
"""Of a line over time: what changes more often is shown by its mean."""

_SHORT: Final = {"days": "d", "hours": "h", "minutes": "min", "seconds": "s"}
_DPI: Final = 150
_GREY, _LIGHT_GREY = "#8c8c8c", "#d0d0d0"
_UNITS: Final = (
    (48 * 3600.0, 86_400.0, "days"),
    (7200.0, 3600.0, "hours"),
    (600.0, 60.0, "minutes"),
)
"""(from so many seconds on, seconds of the unit, its name)."""

OTHERS: Final = "other jobs"
SERVICES: Final = "services"


def draw(results: Sequence[Result], folder: Path) -> list[Path]:
    """Draw all simulations of one workload.

    Args:
        results: At least one.
        folder: Where the pictures go; it is there.

    Returns:
        The files that were written.
    """
    paths = []
    for result in results:
        path = folder / f"use-{result.policy}.png"
        _use(result).savefig(path, dpi=_DPI)
        paths.append(path)
    path = folder / "comparison.png"
    _comparison(results).savefig(path, dpi=_DPI)
    return [*paths, path]


def _use(result: Result) -> Figure:
    """Use of the cluster over time, by job."""
    metrics = result.metrics
    resource = metrics.main_resource
    figure = Figure(figsize=(11, 5.5), layout="constrained")
    axes = figure.add_subplot()
    shown = stack(result.outcome, resource, _MAX_LAYERS)
    unit_s, unit = _unit(metrics.makespan_s)
    if shown.layers:
        axes.stackplot(
            [each / unit_s for each in shown.times_s],
            [values for _, values in shown.layers],
            labels=[name for name, _ in shown.layers],
            colors=_colours([name for name, _ in shown.layers]),
            step="post",
            linewidth=0,
        )
    mean = metrics.whole.utilisation[resource]
    axes.axhline(mean, color="black", linewidth=1, linestyle="--")
    axes.annotate(
        f"mean {mean:.0%}", (1, mean), xycoords=("axes fraction", "data"),
        xytext=(-6, 6), textcoords="offset points", ha="right", fontsize=9,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5, "alpha": 0.8},
    )  # fmt: skip
    axes.set_xlim(0, max(metrics.makespan_s / unit_s, 1e-9))
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.set_xlabel(f"time ({unit})")
    axes.set_ylabel(f"{_name(resource)} in use")
    axes.set_title(f"Use of the cluster by job: {result.policy}", loc="left", fontweight="bold")
    if shown.layers:
        # From top to bottom as the layers are.
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(
            handles[::-1], labels[::-1], loc="outside right center", fontsize=8, frameon=False
        )
    _tidy(axes)
    return figure


def _comparison(results: Sequence[Result]) -> Figure:
    """All policies: use, waiting, completion times, and the numbers."""
    figure = Figure(figsize=(13, 8), layout="constrained")
    (use, wait), (completion, numbers) = figure.subplots(2, 2)
    colours = {each.policy: f"C{index}" for index, each in enumerate(results)}
    resource = results[0].metrics.main_resource
    unit_s, unit = _unit(max(each.metrics.makespan_s for each in results))
    for result in results:
        style = {"color": colours[result.policy], "label": result.policy, "linewidth": 1.4}
        end_s = result.metrics.makespan_s
        for axes, series in (
            (use, used(result.outcome, resource)),
            (wait, waiting(result.outcome)),
        ):
            times, values = averaged(series, end_s, _NUM_BINS)
            axes.step([each / unit_s for each in times], values, where="post", **style)
    for axes, label in ((use, f"{_name(resource)} in use"), (wait, "jobs that wait")):
        axes.set_xlabel(f"time ({unit})")
        axes.set_ylabel(label)
        axes.set_xlim(left=0)
        axes.set_ylim(0, max(1.0, axes.get_ylim()[1]))
    use.set_ylim(0, 1)
    use.yaxis.set_major_formatter(PercentFormatter(1))
    _completions(completion, results, colours)
    _numbers(numbers, results, resource)
    for axes, title in (
        (use, "Use of the cluster"),
        (wait, "Waiting"),
        (completion, "How soon jobs are done"),
        (numbers, "In numbers"),
    ):
        axes.set_title(title, loc="left", fontweight="bold")
    for axes in (use, wait, completion):
        _tidy(axes)
    handles, labels = use.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper right", ncols=len(results), frameon=False)
    return figure


def _completions(axes: Any, results: Sequence[Result], colours: dict[str, str]) -> None:
    longest_s = 0.0
    for result in results:
        longest_s = max(longest_s, *distribution(result.outcome)[0], 0.0)
    unit_s, unit = _unit(longest_s)
    for result in results:
        times, parts = distribution(result.outcome)
        # From nobody on, and to the end of the axis.
        axes.step(
            [0.0, *(each / unit_s for each in times), 1.03 * longest_s / unit_s],
            [0.0, *parts, parts[-1] if parts else 0.0],
            where="post",
            color=colours[result.policy],
            linewidth=1.4,
        )
    # So that the last step can be told from the frame.
    axes.set_xlim(0, max(1.03 * longest_s / unit_s, 1e-9))
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.set_xlabel(f"from submission to end ({unit})")
    axes.set_ylabel("of all jobs are done")


def _numbers(axes: Any, results: Sequence[Result], resource: str) -> None:
    axes.axis("off")
    rows = [
        (
            f"{_name(resource)} in use",
            [_percent(each.metrics.whole.utilisation[resource]) for each in results],
        ),
        ("pending, mean", [_seconds(each.metrics.pending.mean_s) for each in results]),
        ("completion, mean", [_seconds(each.metrics.completion.mean_s) for each in results]),
        ("completion, p99", [_seconds(each.metrics.completion.p99_s) for each in results]),
        ("makespan", [_seconds(each.metrics.makespan_s) for each in results]),
        ("scale actions", [f"{each.metrics.scale_actions:,}" for each in results]),
        ("jobs not done", [str(each.metrics.num_not_ended) for each in results]),
    ]
    table = axes.table(
        [cells for _, cells in rows],
        rowLabels=[label for label, _ in rows],
        colLabels=[each.policy for each in results],
        bbox=(0.3, 0.05, 0.7, 0.9),
        cellLoc="right",
        edges="horizontal",
    )
    table.auto_set_font_size(False)
    table.set_fontsize(10)


def _percent(part: float) -> str:
    return f"{100 * part:.1f}%"


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    unit_s, unit = _unit(seconds)
    return f"{seconds / unit_s:,.1f} {_SHORT[unit]}"


def _unit(longest_s: float) -> tuple[float, str]:
    """The unit of an axis of that length: its seconds and its name."""
    return next(
        ((unit_s, name) for from_s, unit_s, name in _UNITS if longest_s >= from_s), (1.0, "seconds")
    )


def _name(resource: str) -> str:
    return {"cpu": "CPU", "memory": "memory"}.get(
        resource, f"{resource.rpartition('/')[2].upper()}s"
    )


def _colours(names: Sequence[str]) -> list[Any]:
    """Of layers: what is no job of its own is grey."""
    palette = [colormaps["tab20"](index) for index in _PALETTE]
    grey = {SERVICES: _GREY, OTHERS: _LIGHT_GREY}
    return [grey.get(name, palette[index % len(palette)]) for index, name in enumerate(names)]


def _tidy(axes: Any) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)


@dataclass(frozen=True, slots=True)
class Stack:
    """What is in use of one resource, by who has it; values hold from each moment to the next.

    Attributes:
        times_s: Ascending.
        layers: (name, one value for each time), the lowest first; parts of the capacity, 0 to 1.
    """

    times_s: tuple[float, ...]
    layers: tuple[tuple[str, tuple[float, ...]], ...]


def stack(outcome: Outcome, resource: str, most: int) -> Stack:
    """Use over time by job.

    Args:
        outcome: Of a simulation.
        resource: Which one.
        most: So many jobs have a layer, those with the most use; the others share one.
    """
    capacity = outcome.capacity[resource]
    changes = {job.name: list(_changes(job, resource)) for job in outcome.jobs}
    named = set(sorted(changes, key=lambda name: (-_area(changes[name]), name))[:most])
    deltas: list[tuple[float, str, float]] = []
    for job in outcome.jobs:
        label = job.name.rpartition("/")[2] if job.name in named else OTHERS
        deltas += [(at_s, label, delta / capacity) for at_s, delta in changes[job.name]]
    before = 0
    for usage in outcome.usage:
        if (now := usage.services.get(resource, 0)) != before:
            deltas.append((usage.at_s, SERVICES, (now - before) / capacity))
            before = now
    labels = [job.name.rpartition("/")[2] for job in outcome.jobs if job.name in named]
    return _swept(deltas, [SERVICES, *labels, OTHERS])


def _swept(deltas: list[tuple[float, str, float]], labels: list[str]) -> Stack:
    deltas.sort()
    level: dict[str, float] = defaultdict(float)
    times: list[float] = []
    columns: dict[str, list[float]] = {label: [] for label in labels}
    for index, (at_s, label, delta) in enumerate(deltas):
        level[label] += delta
        if index + 1 < len(deltas) and deltas[index + 1][0] == at_s:
            continue
        times.append(at_s)
        for each, values in columns.items():
            # What is left of nothing after many sums is not exactly nothing.
            values.append(max(0.0, level[each]))
    used = {label for _, label, _ in deltas}
    layers = tuple((label, tuple(columns[label])) for label in labels if label in used)
    return Stack(tuple(times), layers)


def _changes(job: JobRun, resource: str) -> Iterator[tuple[float, float]]:
    """(second, by how much the use of a job changes then)."""
    each, fixed = job.amounts.get(resource, 0), job.fixed.get(resource, 0)
    before = 0
    for at_s, size in job.sizes:
        yield at_s, (size - before) * each + ((size > 0) - (before > 0)) * fixed
        before = size


def _area(changes: Sequence[tuple[float, float]]) -> float:
    """Use times time, to the last change."""
    total = level = 0.0
    for index, (at_s, delta) in enumerate(changes):
        level += delta
        if index + 1 < len(changes):
            total += level * (changes[index + 1][0] - at_s)
    return total


def waiting(outcome: Outcome) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Jobs that wait, from each moment to the next: times in seconds, and how many."""
    times = tuple(each.at_s for each in outcome.usage)
    return times, tuple(each.waiting for each in outcome.usage)


def used(outcome: Outcome, resource: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The part of the capacity that is in use, from each moment to the next."""
    capacity = outcome.capacity[resource]
    times = tuple(each.at_s for each in outcome.usage)
    return times, tuple(each.used.get(resource, 0) / capacity for each in outcome.usage)


def averaged(
    series: tuple[Sequence[float], Sequence[float]], end_s: float, num_bins: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Means over equal spans, where a series changes more often than that; else the series itself.

    Args:
        series: Times in seconds, ascending, and what holds from each to the next; 0 before.
        end_s: Where the last span ends, > 0.
        num_bins: Spans.

    Returns:
        The beginning of each span, and its mean.
    """
    times, values = series
    if len(times) <= num_bins:
        return tuple(times), tuple(values)
    width_s, sums = end_s / num_bins, [0.0] * num_bins
    for at_s, until_s, value in zip(times, [*times[1:], end_s], values, strict=True):
        until_s = min(until_s, end_s)
        while at_s < until_s:
            index = min(int(at_s / width_s), num_bins - 1)
            # At least to the next number: widths do not add up exactly.
            step_s = min(until_s, max((index + 1) * width_s, math.nextafter(at_s, math.inf)))
            sums[index] += value * (step_s - at_s)
            at_s = step_s
    return tuple(index * width_s for index in range(num_bins)), tuple(s / width_s for s in sums)


def distribution(outcome: Outcome) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Completion times in seconds, ascending, and the part of all jobs that ended within each."""
    times = sorted(job.completion_s for job in outcome.jobs if job.completion_s is not None)
    count = len(outcome.jobs)
    return tuple(times), tuple((index + 1) / count for index in range(len(times)))
