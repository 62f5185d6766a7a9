"""Measured profiles of the experiment's six applications: times of a step, gains, epochs."""

import bisect
import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

EPOCHS: Final = {
    "bert": 2,
    "cifar10": 100,
    "ncf": 10,
    "imagenet": 90,
    "deepspeech2": 80,
    "yolov3": 50,
}
MAX_LOCAL_BATCH: Final = {"yolov3": 8}
"""Smaller than the largest that was measured."""

SINGLE: Final = frozenset({"ncf"})
"""Applications that the published runs of all policies kept on one GPU."""

Times = tuple[float, float]
"""Seconds of a step, and those of them that are spent in waiting for gradients of others."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Times at one placement by the local batch."""

    batches: tuple[float, ...]
    times: tuple[Times, ...]

    def at(self, local_batch: float) -> Times:
        """Linear between the two nearest measurements, and on beyond the last."""
        if len(self.batches) == 1:
            return self.times[0]
        upper = min(max(bisect.bisect_left(self.batches, local_batch), 1), len(self.batches) - 1)
        low, high = self.batches[upper - 1], self.batches[upper]
        return _mix(self.times[upper - 1], self.times[upper], (local_batch - low) / (high - low))


@dataclass(frozen=True, slots=True)
class Epochs:
    """One line an epoch of a run with one batch."""

    grad_sqr: tuple[float, ...]
    grad_var: tuple[float, ...]


@dataclass(frozen=True)
class Profile:
    """What was measured of one application.

    Attributes:
        placements: By GPUs on each node, rotated to its smallest form.
        sizes: By (nodes, replicas), where the placement itself was not measured.
        ends: Progress at which each epoch ends, in steps of the smallest batch.
        runs: By global batch.
    """

    name: str
    placements: dict[tuple[int, ...], Curve]
    sizes: dict[int, dict[int, Curve]]
    ends: tuple[float, ...]
    runs: dict[int, Epochs]
    min_local_batch: int
    max_local_batch: int
    _times: dict[tuple[tuple[int, ...], int], Times] = field(default_factory=dict)

    @property
    def min_batch(self) -> int:
        """The batch whose steps progress is counted in."""
        return min(self.runs)

    @property
    def max_batch(self) -> int:
        """The largest global batch that was run."""
        return max(self.runs)

    def times(self, placement: Sequence[int], local_batch: int) -> Times:
        """Seconds of a step.

        Args:
            placement: GPUs on each node, none of them zero.
            local_batch: Examples on each GPU at once.
        """
        key = (smallest_rotation(placement), local_batch)
        if key not in self._times:
            curve = self.placements.get(key[0])
            self._times[key] = (
                curve.at(local_batch)
                if curve is not None
                else self._between(len(placement), sum(placement), local_batch)
            )
        return self._times[key]

    def gradients(self, batch: float, epoch: int) -> tuple[float, float]:
        """Squared norm and variance of the gradient in an epoch, linear between batches."""
        batches = sorted(self.runs)
        upper = min(max(bisect.bisect_left(batches, batch), 1), len(batches) - 1)
        low, high = batches[upper - 1], batches[upper]
        share = min(max((batch - low) / (high - low), 0.0), 1.0)
        first, second = self.runs[low], self.runs[high]
        return (
            first.grad_sqr[epoch] * (1 - share) + second.grad_sqr[epoch] * share,
            first.grad_var[epoch] * (1 - share) + second.grad_var[epoch] * share,
        )

    def _between(self, nodes: int, replicas: int, local_batch: float) -> Times:
        """Linear between the measured numbers of nodes, at the same replicas a node."""
        measured = sorted(self.sizes)
        upper = min(max(bisect.bisect_left(measured, nodes), 1), len(measured) - 1)
        low, high = measured[upper - 1], measured[upper]
        share = min(max((nodes - low) / (high - low), 0.0), 1.0)
        first, second = (
            _along(self.sizes[number], replicas * number / nodes, local_batch)
            for number in (low, high)
        )
        return _mix(first, second, share)


def smallest_rotation(placement: Sequence[int]) -> tuple[int, ...]:
    """The form under which a placement was measured: nodes are alike and stand in a ring."""
    return min((*placement[i:], *placement[:i]) for i in range(len(placement)))


def read_profiles(folder: Path) -> dict[str, Profile]:
    """All applications of `folder`, which holds one folder for each.

    Raises:
        OSError: A file is not there.
        ValueError: A cell is not a number.
    """
    return {name: _read_profile(folder / name) for name in EPOCHS}


def _read_profile(folder: Path) -> Profile:
    name = folder.name
    by_placement: dict[tuple[int, ...], dict[float, list[Times]]] = {}
    by_size: dict[tuple[int, int], dict[float, list[Times]]] = {}
    for row in _rows(folder / "placements.csv"):
        placement = tuple(int(digit) for digit in row["placement"])
        size = (len(placement), sum(placement))
        _note(by_placement.setdefault(placement, {}), row)
        _note(by_size.setdefault(size, {}), row)
    for row in _rows(folder / "scalability.csv"):
        size = (int(row["num_nodes"]), int(row["num_replicas"]))
        _note(by_size.setdefault(size, {}), row)
    sizes: dict[int, dict[int, Curve]] = {}
    for (nodes, replicas), points in by_size.items():
        sizes.setdefault(nodes, {})[replicas] = _curve(points)
    runs, ends = _read_runs(folder, EPOCHS[name])
    batches = [batch for curve in by_placement.values() for batch in curve]
    return Profile(
        name=name,
        placements={key: _curve(points) for key, points in by_placement.items()},
        sizes=sizes,
        ends=ends,
        runs=runs,
        min_local_batch=int(min(batches)),
        max_local_batch=MAX_LOCAL_BATCH.get(name, int(max(batches))),
    )


def _read_runs(folder: Path, epochs: int) -> tuple[dict[int, Epochs], tuple[float, ...]]:
    runs: dict[int, Epochs] = {}
    ends = [math.inf] * epochs
    for path in sorted(folder.glob("validation-*.csv")):
        rows = list(_rows(path))[:epochs]
        runs[int(path.stem.rpartition("-")[2])] = Epochs(
            tuple(float(row["grad_sqr"]) for row in rows),
            tuple(float(row["grad_var"]) for row in rows),
        )
        ends = [min(end, float(row["progress"])) for end, row in zip(ends, rows, strict=True)]
    return runs, tuple(ends)


def _rows(path: Path) -> Iterable[dict[str, str]]:
    with path.open(newline="") as file:
        yield from csv.DictReader(file)


def _note(points: dict[float, list[Times]], row: dict[str, str]) -> None:
    times = (float(row["step_time"]), float(row["sync_time"]))
    points.setdefault(float(row["local_bsz"]), []).append(times)


def _curve(points: dict[float, list[Times]]) -> Curve:
    batches = tuple(sorted(points))
    return Curve(batches, tuple(_mean(points[batch]) for batch in batches))


def _mean(times: Sequence[Times]) -> Times:
    return (
        math.fsum(step for step, _ in times) / len(times),
        math.fsum(sync for _, sync in times) / len(times),
    )


def _along(curves: dict[int, Curve], replicas: float, local_batch: float) -> Times:
    """Linear between the measured numbers of replicas on one number of nodes."""
    measured = sorted(curves)
    if len(measured) == 1:
        return curves[measured[0]].at(local_batch)
    upper = min(max(bisect.bisect_left(measured, replicas), 1), len(measured) - 1)
    low, high = measured[upper - 1], measured[upper]
    share = min(max((replicas - low) / (high - low), 0.0), 1.0)
    return _mix(curves[low].at(local_batch), curves[high].at(local_batch), share)


def _mix(first: Times, second: Times, share: float) -> Times:
    return (
        first[0] * (1 - share) + second[0] * share,
        first[1] * (1 - share) + second[1] * share,
    )
