"""How fast a job would be at a size that it has not run at, learned from those that it has.

A step computes gradients and exchanges them, and part of both goes on at the same time:
`step = (compute^g + network^g)^(1/g)`, from one after the other (g = 1) to all at once (g large).
Minibatches that are accumulated before the exchange add their computing alone.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import mul
from typing import Final

from elastic.policy.cluster.snapshot import Speed

OVERLAPS: Final = (1.0, 2.0, 4.0)
"""Values of g that are tried; with few sizes seen no more can be told apart."""

PRIOR: Final = (0.1, 0.001, 0.1, 0.1, 0.3)
"""How little each part of a step is expected beside what was measured, as weights of least squares:
what one size does not tell is taken to be work that replicas share, so that more are tried."""

FREE_TRIALS: Final = (8.0,)
"""Values of g where the batch may be chosen: another batch costs nothing to try, so the exchange
is taken to hide behind computing until seen not to."""

GREATEST_GAIN: Final = 1.5
"""How much faster each replica may be at a size not seen than at the best seen: without a bound,
sizes that were equally fast would promise any speed to smaller ones."""

_ROUNDS: Final = 3
_SWEEPS: Final = 25
_SETTLED: Final = 1e-3
"""Change of a step, as a share of it, below which a part is taken to be found."""


@dataclass(frozen=True, slots=True)
class SpeedModel:
    """A job's speed by its size.

    Attributes:
        parts: Seconds of computing a minibatch and of each of its samples, and of exchanging
            gradients at all, further where they cross nodes, and for each node beyond two.
        overlap: The exponent g.
        batch: Samples of one update where the user alone chooses.
        max_local_batch: The most samples that a replica holds at once; None for no bound.
        seen: Samples a second as measured, by (replicas, nodes, batch).
        most_per_replica: Samples a second that no replica exceeds at any size.
    """

    parts: tuple[float, ...]
    overlap: float
    batch: int
    max_local_batch: int | None
    seen: Mapping[tuple[int, int, int], float]
    most_per_replica: float

    def samples_per_s(self, replicas: int, nodes: int, batch: int | None = None) -> float:
        """Measured where it was, else of the model.

        Args:
            replicas: At least 1.
            nodes: On how many nodes they are.
            batch: Samples of one update; None for the user's.
        """
        whole = self.batch if batch is None else batch
        measured = self.seen.get((replicas, nodes, whole))
        if measured is not None:
            return measured
        fixed, per_sample, within, between, further = self.parts
        accumulated, local = _split(whole, replicas, self.max_local_batch)
        compute = fixed + per_sample * local
        if replicas == 1:
            network = 0.0
        elif nodes == 1:
            network = within
        else:
            network = within + between + further * (nodes - 2)
        last = _overlapped(compute, network, self.overlap)
        most = replicas * self.most_per_replica
        step_s = accumulated * compute + last
        return most if step_s * most <= whole else whole / step_s

    @property
    def local_batches_seen(self) -> int:
        """Different numbers of samples that a replica had for a step."""
        return len({batch * 1000 // replicas for replicas, _, batch in self.seen})

    @property
    def largest_seen(self) -> int:
        """Replicas of the largest size that it ran at."""
        return max(replicas for replicas, _, _ in self.seen)


@lru_cache(maxsize=1 << 16)
def fit(
    speeds: tuple[Speed, ...],
    batch: int | None = None,
    max_local_batch: int | None = None,
    overlaps: tuple[float, ...] = OVERLAPS,
) -> SpeedModel | None:
    """Learn from what was seen; None where nothing was.

    With one size the model is linear in the replicas. A function of its arguments alone, kept since
    the same sizes are asked for at each plan.

    Args:
        speeds: In any order; of one size the mean counts.
        batch: Samples of one update, for speeds that do not tell it.
        max_local_batch: The most samples that a replica holds at once.
        overlaps: Values of g to choose from.
    """
    told = batch or max((each.global_batch_size or 0 for each in speeds), default=0) or 1
    by_size: dict[tuple[int, int, int], list[float]] = {}
    computing: dict[tuple[int, int, int], float] = {}
    for each in speeds:
        if each.samples_per_s > 0 and each.replicas > 0:
            size = (each.replicas, max(1, each.nodes), each.global_batch_size or told)
            by_size.setdefault(size, []).append(each.samples_per_s)
            if each.compute_s:
                computing[size] = each.compute_s
    if not by_size:
        return None
    seen = {size: math.fsum(rates) / len(rates) for size, rates in sorted(by_size.items())}
    steps = [
        _Step.of(size, rate, max_local_batch, computing.get(size)) for size, rate in seen.items()
    ]
    most = GREATEST_GAIN * max(rate / replicas for (replicas, _, _), rate in seen.items())
    if len(steps) == 1 and steps[0].compute_s is None:
        # Linear in the replicas is all that one size can tell.
        one = (
            0.0,
            steps[0].seconds / (steps[0].accumulated + 1) / steps[0].compute[1],
            0.0,
            0.0,
            0.0,
        )
        return SpeedModel(one, 1.0, told, max_local_batch, seen, most)
    overlap, parts = min(
        ((g, _fit_parts(steps, g)) for g in (overlaps if len(steps) > 1 else overlaps[:1])),
        key=lambda fitted: _error(steps, *fitted),
    )
    return SpeedModel(tuple(parts), overlap, told, max_local_batch, seen, most)


@dataclass(frozen=True, slots=True)
class _Step:
    """One measured size: how often each part occurs in its step, and how long the step took."""

    accumulated: int
    compute: tuple[float, float]
    network: tuple[float, float, float]
    seconds: float
    compute_s: float | None

    @classmethod
    def of(
        cls,
        size: tuple[int, int, int],
        samples_per_s: float,
        max_local_batch: int | None,
        compute_s: float | None,
    ) -> "_Step":
        replicas, nodes, batch = size
        accumulated, local = _split(batch, replicas, max_local_batch)
        network = (0.0, 0.0, 0.0)
        if replicas > 1:
            network = (1.0, 0.0, 0.0) if nodes == 1 else (1.0, 1.0, nodes - 2.0)
        return cls(accumulated, (1.0, local), network, batch / samples_per_s, compute_s)

    def row(self, parts: Sequence[float], overlap: float) -> list[float]:
        """The step's derivatives by its parts; their product with the parts is the step."""
        (one, local), (within, between, further) = self.compute, self.network
        compute = one * parts[0] + local * parts[1]
        network = within * parts[2] + between * parts[3] + further * parts[4]
        of_compute = of_network = 1.0
        if overlap != 1.0 and (last := _overlapped(compute, network, overlap)) > 0:
            of_compute = (compute / last) ** (overlap - 1)
            of_network = (network / last) ** (overlap - 1)
        times = self.accumulated + of_compute
        return [
            times * one,
            times * local,
            of_network * within,
            of_network * between,
            of_network * further,
        ]


def _overlapped(compute: float, network: float, overlap: float) -> float:
    """`(compute^g + network^g)^(1/g)`, in numbers that stay small."""
    most = max(compute, network)
    if overlap == 1.0 or most == 0:
        return compute + network
    least = min(compute, network) / most
    return float(most * (1 + least**overlap) ** (1 / overlap))


def _split(batch: int, replicas: int, max_local_batch: int | None) -> tuple[int, float]:
    """Accumulated minibatches before the last, and the samples of one on one replica."""
    whole = batch / replicas
    if max_local_batch is None or whole <= max_local_batch:
        return 0, whole
    times = math.ceil(whole / max_local_batch - 1e-8)
    return times - 1, whole / times


def _fit_parts(steps: Sequence[_Step], overlap: float) -> list[float]:
    """Least squares of relative errors under parts that are not negative."""
    parts = [0.0, min(step.seconds / step.compute[1] for step in steps), 0.0, 0.0, 0.0]
    rows = _rows(steps, parts, 1.0)
    # How much of each part makes a whole step: what it is held small against.
    scales = [max(row[j] for row in rows) for j in range(len(parts))]
    parts = _nonnegative_least_squares(rows, parts, scales)
    if overlap == 1.0:
        return parts
    # Beside computing an exchange of no length says nothing about a longer one: none starts at 0.
    least = min(step.seconds for step in steps) / 4
    parts = [*parts[:2], *(max(part, least) for part in parts[2:])]
    for _ in range(_ROUNDS):
        parts = _nonnegative_least_squares(_rows(steps, parts, overlap), parts, scales)
    return parts


def _rows(steps: Sequence[_Step], parts: Sequence[float], overlap: float) -> list[list[float]]:
    rows = [[each / step.seconds for each in step.row(parts, overlap)] for step in steps]
    rows.extend(
        [*(each / step.compute_s for each in step.compute), 0.0, 0.0, 0.0]
        for step in steps
        if step.compute_s is not None
    )
    return rows


def _nonnegative_least_squares(
    rows: Sequence[Sequence[float]], start: Sequence[float], scales: Sequence[float]
) -> list[float]:
    """The x of at least 0 for which each row's product with it is nearest to 1.

    By coordinate descent, which is the same at each run and stays where x may be.
    """
    columns = list(zip(*rows, strict=True))
    normal = [[sum(map(mul, one, other)) for other in columns] for one in columns]
    wanted = [sum(column) for column in columns]
    for j, scale in enumerate(scales):
        normal[j][j] += (PRIOR[j] * scale) ** 2
    x = [value if scale > 0 else 0.0 for value, scale in zip(start, scales, strict=True)]
    parts = [(j, row, wanted[j], row[j], scales[j]) for j, row in enumerate(normal) if row[j] > 0]
    # The inner loop of the fit, and so of a plan of jobs nobody has planned before.
    for _ in range(_SWEEPS):
        moved = 0.0
        for j, row, goal, curvature, scale in parts:
            before = x[j]
            better = before + (goal - sum(map(mul, row, x))) / curvature
            x[j] = better = better if better > 0.0 else 0.0
            step = (better - before) * scale
            if step > moved or -step > moved:
                moved = abs(step)
        if moved < _SETTLED:
            break
    return x


def _error(steps: Sequence[_Step], overlap: float, parts: Sequence[float]) -> float:
    return math.fsum(
        (_dot(step.row(parts, overlap), parts) / step.seconds - 1) ** 2 for step in steps
    )


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    return float(sum(map(mul, left, right)))
