"""How fast a job would be at a size that it has not run at, learned from those that it has."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from elastic.policy.cluster import Speed

# The parts of a step, found from measured steps by least squares, for many jobs at once.
#
# A plan for jobs that nobody has planned before spends most of its time here, so that one operation
# serves all jobs: arrays have a row for each job. Nothing in a row depends on other rows, and all
# is sums, products and square roots in a fixed order: a job has the same parts, bit for bit,
# whichever others it is with.


PRIOR: Final = (0.1, 0.001, 0.1, 0.1, 0.3)
"""How little each part of a step is expected beside what was measured, as weights of least squares:
what one size does not tell is taken to be work that replicas share, so that more are tried."""

_ROUNDS: Final = 3
_SWEEPS: Final = 25
_SETTLED: Final = 1e-3
"""Change of a step, as a share of it, below which a part is taken to be found."""

_FEW: Final = 32
"""So many jobs are quicker done one by one."""

_AT_ONCE: Final = 4096
"""As many jobs as have arrays that stay near the processor: more take half as long again."""

_SPARSE: Final = 0.7
"""Jobs that have settled are left in the arrays until no more than this part goes on."""

Floats = npt.NDArray[np.float64]
Fitted = tuple[float, tuple[float, ...]]
"""The exponent g, and seconds of the parts: see `SpeedModel`."""


class Step(NamedTuple):
    """One measured size: how often each part occurs in its step, and how long the step took.

    Attributes:
        local: Samples of a minibatch on one replica.
        accumulated: Minibatches that only compute, before the last.
        seconds: Of the whole step.
        compute_s: Seconds of computing one minibatch; infinite where nobody has told.
        within: 1 where gradients are exchanged at all.
        between: 1 where that crosses nodes.
        further: Nodes beyond two.
    """

    local: float
    accumulated: float
    seconds: float
    compute_s: float
    within: float
    between: float
    further: float


def fit_steps(steps: Sequence[Sequence[Step]], overlaps: Sequence[float]) -> list[Fitted]:
    """Least squares of relative errors under parts that are not negative, for each job.

    Args:
        steps: By job, at least one.
        overlaps: Values of g to choose from, each a power of two; the first for a single step.
    """
    found: list[Fitted] = []
    for first in range(0, len(steps), _AT_ONCE):
        found += _fit_some(steps[first : first + _AT_ONCE], overlaps)
    return found


def _fit_some(steps: Sequence[Sequence[Step]], overlaps: Sequence[float]) -> list[Fitted]:
    measured = _MeasuredSteps.of(steps)
    start, scales = _one_after_the_other(measured)
    tried = [start if g == 1.0 else _overlapping(measured, start, scales, g) for g in overlaps]
    errors = [_error(measured, *each) for each in zip(tried, overlaps, strict=True)]
    best = np.argmin(errors, axis=0).tolist()
    return [
        (overlaps[at], tuple(tried[at][:, job].tolist()))
        for job, at in enumerate(
            at if len(of) > 1 else 0 for at, of in zip(best, steps, strict=True)
        )
    ]


@dataclass(frozen=True, slots=True)
class _MeasuredSteps:
    """The steps of all jobs; those with fewer than the most are filled up with endless ones.

    Attributes:
        uses: (steps, parts, jobs), how often a part occurs in the last minibatch of a step.
        accumulated: (steps, jobs).
        seconds: (steps, jobs); infinite where there is no step, so that nothing comes of it.
        computing: (steps, parts, jobs), of computing as it was told, relative to its seconds.
    """

    uses: Floats
    accumulated: Floats
    seconds: Floats
    computing: Floats

    @classmethod
    def of(cls, steps: Sequence[Sequence[Step]]) -> "_MeasuredSteps":
        """Lay them out."""
        most = max(map(len, steps))
        rows = [[*each, *[_NO_STEP] * (most - len(each))] for each in steps]
        filled = _table(chain.from_iterable(rows)).reshape(len(steps), most, -1)
        local, accumulated, seconds, told, *network = filled.T
        uses = np.stack([np.where(np.isinf(seconds), 0.0, 1.0), local, *network], axis=1)
        computing = np.zeros_like(uses)
        computing[:, 0], computing[:, 1] = 1.0 / told, local / told
        return cls(uses, accumulated, seconds, computing)


def _table(rows: Iterable[Sequence[float]]) -> Floats:
    """What `np.array` makes of rows of one length, in a third of the time."""
    first, *others = rows
    numbers = np.fromiter(chain(first, chain.from_iterable(others)), np.float64)
    return numbers.reshape(-1, len(first))


_NO_STEP: Final = Step(0.0, 0.0, np.inf, np.inf, 0.0, 0.0, 0.0)


def _one_after_the_other(measured: _MeasuredSteps) -> tuple[Floats, Floats]:
    """(parts, jobs) for g = 1, and how much of each part makes a whole step."""
    parts = np.zeros(measured.uses.shape[1:])
    used = measured.uses[:, 1]
    parts[1] = np.divide(measured.seconds, used, where=used > 0, out=measured.seconds.copy()).min(0)
    rows = _rows(measured, parts, 1.0)
    scales = rows.max(axis=0)
    return _nonnegative_least_squares(rows, parts, scales), scales


def _overlapping(measured: _MeasuredSteps, start: Floats, scales: Floats, overlap: float) -> Floats:
    """(parts, jobs) for another g, from those for 1."""
    parts = start.copy()
    # Beside computing an exchange of no length says nothing about a longer one: none starts at 0.
    parts[2:] = np.maximum(parts[2:], measured.seconds.min(axis=0) / 4)
    for _ in range(_ROUNDS):
        parts = _nonnegative_least_squares(_rows(measured, parts, overlap), parts, scales)
    return parts


def _rows(measured: _MeasuredSteps, parts: Floats, overlap: float) -> Floats:
    """(rows, parts, jobs), of the steps and of what was told of computing.

    The derivatives of each step by its parts, relative to it: their product with the parts is 1
    where the parts are right.
    """
    derivatives = _derivatives(measured, parts, overlap)
    return np.concatenate((derivatives / measured.seconds[:, np.newaxis], measured.computing))


def _derivatives(measured: _MeasuredSteps, parts: Floats, overlap: float) -> Floats:
    """(steps, parts, jobs): their product with the parts is the step."""
    uses = measured.uses
    of_compute = of_network = np.ones_like(measured.seconds)
    if overlap != 1.0:
        compute = uses[:, 0] * parts[0] + uses[:, 1] * parts[1]
        network = uses[:, 2] * parts[2] + uses[:, 3] * parts[3] + uses[:, 4] * parts[4]
        last = _all_overlapped(compute, network, overlap)
        last[last == 0] = np.inf
        of_compute = np.where(np.isinf(last), 1.0, _power(compute / last, overlap - 1))
        of_network = np.where(np.isinf(last), 1.0, _power(network / last, overlap - 1))
    times = measured.accumulated + of_compute
    shares = (times, times, of_network, of_network, of_network)
    return np.stack([share * uses[:, part] for part, share in enumerate(shares)], axis=1)


def _all_overlapped(compute: Floats, network: Floats, overlap: float) -> Floats:
    """`(compute^g + network^g)^(1/g)`, in numbers that stay small."""
    most = np.maximum(compute, network)
    least = np.minimum(compute, network) / np.where(most > 0, most, 1.0)
    total = 1.0 + _power(least, overlap)
    while overlap > 1.0:
        total, overlap = np.sqrt(total), overlap / 2
    return np.asarray(most * total)


def _power(base: Floats, exponent: float) -> Floats:
    """By products alone, which are the same wherever they are computed."""
    power = base
    for _ in range(int(exponent) - 1):
        power = power * base
    return power


def _nonnegative_least_squares(rows: Floats, start: Floats, scales: Floats) -> Floats:
    """The x of at least 0 for which each row's product with it is nearest to 1.

    By coordinate descent, which is the same at each run and stays where x may be.

    Args:
        rows: (rows, parts, jobs).
        start: (parts, jobs), where to begin.
        scales: (parts, jobs), of which nothing occurs where it is 0.

    Returns:
        (parts, jobs).
    """
    x = np.where(scales > 0, start, 0.0)
    used = np.flatnonzero(scales.any(axis=1)).tolist()
    normal = np.empty((len(used), len(used), rows.shape[2]))
    for at, one in enumerate(used):
        for beside, other in enumerate(used[: at + 1]):
            normal[at, beside] = normal[beside, at] = _sum(rows[:, one] * rows[:, other])
    for at, part in enumerate(used):
        held = PRIOR[part] * scales[part]
        normal[at, at] += held * held
    wanted = np.stack([_sum(rows[:, part]) for part in used])
    descend = _descend_together if x.shape[1] > _FEW else _descend_each
    x[used] = descend(normal, wanted, x[used], scales[used])
    return x


def _sum(rows: Floats) -> Floats:
    """From the first to the last, which NumPy's own sum does not promise."""
    if rows[0].size <= _FEW:
        return np.asarray(np.add.accumulate(rows)[-1])
    total: Floats = rows[0]
    for row in rows[1:]:
        total = total + row
    return total


def _descend_together(normal: Floats, wanted: Floats, x: Floats, scales: Floats) -> Floats:
    """All jobs by one operation, until each has settled: what comes of it later is not taken."""
    found, left = x.copy(), np.arange(x.shape[1])
    goes_on, curvatures = np.full(len(left), fill_value=True), _curvatures(normal)
    for _ in range(_SWEEPS):
        moved = np.zeros(len(left))
        for part, row in enumerate(normal):
            before = x[part].copy()
            better = before + (wanted[part] - _sum(row * x)) / curvatures[part]
            np.maximum(better, 0.0, out=x[part])
            np.maximum(moved, np.abs((x[part] - before) * scales[part]), out=moved)
        settled = goes_on & ~(moved >= _SETTLED)
        if not settled.any():
            continue
        found[:, left[settled]] = x[:, settled]
        goes_on &= ~settled
        if np.count_nonzero(goes_on) <= _SPARSE * len(left):
            left, normal, x = left[goes_on], normal[:, :, goes_on], x[:, goes_on]
            wanted, scales = wanted[:, goes_on], scales[:, goes_on]
            goes_on, curvatures = np.full(len(left), fill_value=True), _curvatures(normal)
        if not len(left):
            break
    found[:, left[goes_on]] = x[:, goes_on]
    return found


def _curvatures(normal: Floats) -> Floats:
    """(parts, jobs), of each part by itself; 1 where a job does not have it and nothing is off."""
    own = np.stack([row[part] for part, row in enumerate(normal)])
    return np.where(own > 0, own, 1.0)


def _descend_each(normal: Floats, wanted: Floats, x: Floats, scales: Floats) -> Floats:
    """One job after the other, which is quicker for a few."""
    tables = (np.moveaxis(each, -1, 0).tolist() for each in (normal, wanted, x, scales))
    return np.array([_descend(*each) for each in zip(*tables, strict=True)]).T


def _descend(
    normal: list[list[float]], wanted: list[float], x: list[float], scales: list[float]
) -> list[float]:
    parts = [(j, row, wanted[j], row[j], scales[j]) for j, row in enumerate(normal) if row[j] > 0]
    for _ in range(_SWEEPS):
        moved = 0.0
        for j, row, goal, curvature, scale in parts:
            before = x[j]
            product = 0.0
            # Not `sum`, which rounds less: arrays add up one after the other.
            for one, other in zip(row, x, strict=True):
                product += one * other
            better = before + (goal - product) / curvature
            x[j] = better = better if better > 0.0 else 0.0
            moved = max(moved, abs((better - before) * scale))
        if moved < _SETTLED:
            break
    return x


def _error(measured: _MeasuredSteps, parts: Floats, overlap: float) -> Floats:
    """(jobs,), of the steps as the parts make them."""
    made = np.moveaxis(_derivatives(measured, parts, overlap), 1, 0)
    off = _sum(made * parts[:, np.newaxis]) / measured.seconds - 1
    return _sum(np.where(np.isinf(measured.seconds), 0.0, off * off))


# How fast a job would be at a size that it has not run at, learned from those that it has.
#
# A step computes gradients and exchanges them, and part of both goes on at the same time:
# `step = (compute^g + network^g)^(1/g)`, from one after the other (g = 1) to all at once (g large).
# Minibatches that are accumulated before the exchange add their computing alone.


OVERLAPS: Final = (1.0, 2.0, 4.0)
"""Values of g that are tried; with few sizes seen no more can be told apart."""

FREE_TRIALS: Final = (8.0,)
"""Values of g where the batch may be chosen: another batch costs nothing to try, so the exchange
is taken to hide behind computing until seen not to."""

GREATEST_GAIN: Final = 1.5
"""How much faster each replica may be at a size not seen than at the best seen: without a bound,
sizes that were equally fast would promise any speed to smaller ones."""


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

    def of_one(self, own: Mapping[tuple[int, int, int], float]) -> "SpeedModel":
        """The same for one of the jobs that it was learned of.

        Args:
            own: What that job itself was seen to do, which is taken as it is. At other sizes it
                is as much faster than the others as at its own.
        """
        seen = self.seen
        ratios = [rate / seen[size] for size, rate in own.items() if size in seen]
        ratio = math.fsum(ratios) / len(ratios) if ratios else 1.0
        return SpeedModel(
            tuple(part / ratio for part in self.parts),
            self.overlap,
            self.batch,
            self.max_local_batch,
            {size: rate * ratio for size, rate in seen.items()} | dict(own),
            self.most_per_replica * ratio,
        )


def speeds_at(
    models: Sequence[SpeedModel], replicas: Sequence[Sequence[int]], nodes: Sequence[Sequence[int]]
) -> list[tuple[float, ...]]:
    """Speeds of many jobs at once: the same, bit for bit, as `SpeedModel.samples_per_s` of each.

    Args:
        models: By job.
        replicas: By job, sizes.
        nodes: By job, on how many nodes each of these is.
    """
    if not models:
        return []
    counts = list(map(len, replicas))
    size = np.fromiter(chain.from_iterable(replicas), np.float64)
    spread = np.fromiter(chain.from_iterable(nodes), np.float64)
    # Each row of its own piece of memory: all that follows goes along them.
    each = _table(map(_model_row, models)).T.repeat(counts, axis=1)
    fixed, per_sample, within, between, further, overlap, batch, local_batch, most = each
    local = batch / size
    times = np.where(local <= local_batch, 1.0, np.ceil(local / local_batch - _SLACK))
    compute = fixed + per_sample * (local / times)
    crossing = within + between + further * (spread - 2)
    network = np.where(size == 1, 0.0, np.where(spread == 1, within, crossing))
    last = compute + network
    for power in set(overlap.tolist()) - {1.0}:
        at = overlap == power
        last[at] = _all_overlapped(compute[at], network[at], power)
    step_s = (times - 1) * compute + last
    top = size * most
    rates = np.divide(batch, step_s, out=top, where=step_s * top > batch).tolist()
    found, start = [], 0
    for model, sizes, on, count in zip(models, replicas, nodes, counts, strict=True):
        rate = rates[start : start + count]
        start += count
        for (seen_size, seen_on, seen_batch), seen_rate in model.seen.items():
            if seen_batch == model.batch and seen_size in sizes:
                place = sizes.index(seen_size)
                if on[place] == seen_on:
                    rate[place] = seen_rate
        found.append(tuple(rate))
    return found


def _model_row(model: SpeedModel) -> tuple[float, ...]:
    most = math.inf if model.max_local_batch is None else model.max_local_batch
    return (*model.parts, model.overlap, model.batch, most, model.most_per_replica)


class Seen(NamedTuple):
    """What a job's speeds are learned from.

    Attributes:
        speeds: In any order; of one size the mean counts.
        batch: Samples of one update, for speeds that do not tell it.
        max_local_batch: The most samples that a replica holds at once.
    """

    speeds: tuple[Speed, ...]
    batch: int | None = None
    max_local_batch: int | None = None


def fit(seen: Seen, overlaps: tuple[float, ...] = OVERLAPS) -> SpeedModel | None:
    """Learn from what was seen; None where nothing was.

    With one size the model is linear in the replicas.

    Args:
        seen: What there is to learn from.
        overlaps: Values of g to choose from, each a power of two.
    """
    return fit_all([seen], overlaps)[0]


def measured(seen: Seen) -> Mapping[tuple[int, int, int], float] | None:
    """Samples a second by (replicas, nodes, batch); None where nothing was seen."""
    found = _measured(seen)
    return None if found is None else found.rates


def fit_all(
    seen: Sequence[Seen], overlaps: tuple[float, ...] = OVERLAPS
) -> list[SpeedModel | None]:
    """Learn of many jobs at once: the same, bit for bit, as one by one."""
    found = [_measured(each) for each in seen]
    # One size is all that a linear model needs; the others are found from their steps.
    steps = [each.steps for each in found if each is not None and not each.is_linear]
    fitted = iter(fit_steps(steps, overlaps))
    return [
        None if each is None else each.model(*(each.linear() if each.is_linear else next(fitted)))
        for each in found
    ]


class _Measured(NamedTuple):
    """The sizes that a job was seen at: what its model takes from them as it is, and the steps."""

    rates: Mapping[tuple[int, int, int], float]
    steps: tuple[Step, ...]
    batch: int
    max_local_batch: int | None

    @property
    def is_linear(self) -> bool:
        """Whether linear in the replicas is all that it can tell."""
        return len(self.steps) == 1 and math.isinf(self.steps[0].compute_s)

    def linear(self) -> tuple[float, tuple[float, ...]]:
        """The overlap and the parts of the one step."""
        step = self.steps[0]
        return 1.0, (0.0, step.seconds / (step.accumulated + 1) / step.local, 0.0, 0.0, 0.0)

    def model(self, overlap: float, parts: tuple[float, ...]) -> SpeedModel:
        """The model with what was found."""
        most = GREATEST_GAIN * max(rate / size[0] for size, rate in self.rates.items())
        return SpeedModel(parts, overlap, self.batch, self.max_local_batch, self.rates, most)


def _measured(seen: Seen) -> _Measured | None:
    speeds, most = seen.speeds, seen.max_local_batch
    told = seen.batch or max((each.global_batch_size or 0 for each in speeds), default=0) or 1
    rates: dict[tuple[int, int, int], float] = {}
    again: dict[tuple[int, int, int], list[float]] = {}
    computing: dict[tuple[int, int, int], float] = {}
    for each in speeds:
        rate = each.samples_per_s
        if rate > 0 and each.replicas > 0:
            nodes = each.nodes if each.nodes > 0 else 1
            size = (each.replicas, nodes, each.global_batch_size or told)
            if size in rates:
                again.setdefault(size, [rates[size]]).append(rate)
            else:
                rates[size] = rate
            if each.compute_s:
                computing[size] = each.compute_s
    if not rates:
        return None
    for size, several in again.items():
        rates[size] = math.fsum(several) / len(several)
    rates = dict(sorted(rates.items()))
    steps = tuple(
        [_step(size, rate, most, computing.get(size, math.inf)) for size, rate in rates.items()]
    )
    return _Measured(rates, steps, told, most)


def _step(
    size: tuple[int, int, int],
    samples_per_s: float,
    max_local_batch: int | None,
    compute_s: float,
) -> Step:
    replicas, nodes, batch = size
    accumulated, local = _split(batch, replicas, max_local_batch)
    within, between, further = 0.0, 0.0, 0.0
    if replicas > 1:
        within = 1.0
        if nodes > 1:
            between, further = 1.0, nodes - 2.0
    return Step(local, accumulated, batch / samples_per_s, compute_s, within, between, further)


def _overlapped(compute: float, network: float, overlap: float) -> float:
    """`(compute^g + network^g)^(1/g)`, in numbers that stay small."""
    most = max(compute, network)
    if overlap == 1.0 or most == 0:
        return compute + network
    least = min(compute, network) / most
    # As arrays have it: powers that the C library rounds as it likes are not the same everywhere.
    power = least
    for _ in range(int(overlap) - 1):
        power *= least
    total = 1.0 + power
    while overlap > 1.0:
        total, overlap = math.sqrt(total), overlap / 2
    return most * total


_SLACK: Final = 1e-8
"""A share of a minibatch by which rounding does not make it two."""


def _split(batch: int, replicas: int, max_local_batch: int | None) -> tuple[int, float]:
    """Accumulated minibatches before the last, and the samples of one on one replica."""
    whole = batch / replicas
    if max_local_batch is None or whole <= max_local_batch:
        return 0, whole
    times = math.ceil(whole / max_local_batch - _SLACK)
    return times - 1, whole / times
