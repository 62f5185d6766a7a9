"""How fast a job would be at a size that it has not run at, learned from those that it has.

A step computes gradients and exchanges them, and part of both goes on at the same time:
`step = (compute^g + network^g)^(1/g)`, from one after the other (g = 1) to all at once (g large).
Minibatches that are accumulated before the exchange add their computing alone.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from elastic.policy.cluster.snapshot import Speed
from elastic.policy.scaling.speeds.step_fit import Step, fit_steps

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


@dataclass(frozen=True, slots=True)
class Seen:
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


@dataclass(frozen=True, slots=True)
class _Measured:
    """The sizes that a job was seen at: what its model takes from them as it is, and the steps."""

    rates: Mapping[tuple[int, int, int], float]
    steps: tuple[Step, ...]
    batch: int
    max_local_batch: int | None

    @property
    def is_linear(self) -> bool:
        """Whether linear in the replicas is all that it can tell."""
        return len(self.steps) == 1 and self.steps[0].compute_s is None

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
    rates = {size: math.fsum(rates) / len(rates) for size, rates in sorted(by_size.items())}
    steps = tuple(_step(size, rate, most, computing.get(size)) for size, rate in rates.items())
    return _Measured(rates, steps, told, most)


def _step(
    size: tuple[int, int, int],
    samples_per_s: float,
    max_local_batch: int | None,
    compute_s: float | None,
) -> Step:
    replicas, nodes, batch = size
    accumulated, local = _split(batch, replicas, max_local_batch)
    network = (0.0, 0.0, 0.0)
    if replicas > 1:
        network = (1.0, 0.0, 0.0) if nodes == 1 else (1.0, 1.0, nodes - 2.0)
    return Step(accumulated, local, network, batch / samples_per_s, compute_s)


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
