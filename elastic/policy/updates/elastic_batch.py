"""How many records make an update, where the user lets the master choose: `--elastic_batch`.

How much the gradients of minibatches differ tells what a larger batch would be worth.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import fsum
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from elastic.policy.cluster import ElasticBatch, Speed
from elastic.policy.scaling.offers import efficiency, size_at
from elastic.policy.scaling.speed import FREE_TRIALS, Seen, SpeedModel, fit
from elastic.spec.values import BatchRange

Array: TypeAlias = NDArray[Any]

MEASURED: Final = 10
"""From so many updates on the noise counts as known."""

MEMORY: Final = 50
"""Updates over which it is the mean; single ones tell next to nothing."""

LEAST_CHANGE: Final = 2.0
"""By what a batch has to be multiplied, or divided, to see how noise grows with it."""


@dataclass(frozen=True, slots=True)
class GroupGradients:
    """What the gradients of one update come to, each of as many records.

    Attributes:
        count: Gradients, at least 2.
        num_records: Behind each of them.
        mean_square: The mean of their squared lengths.
        square_of_mean: The squared length of their mean.
    """

    count: int
    num_records: int
    mean_square: float
    square_of_mean: float


class SquaredLengths:
    """Measures gradients of a group, and their mean: one more pass over each.

    Attributes:
        told: What was measured, once there is a mean; None where nothing could be.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self.told: GroupGradients | None = None
        self._lengths: list[float] = []
        self._num_records: set[int] = set()

    def add(self, gradient: Sequence[Array], num_records: int) -> None:
        """Take one more gradient in, of so many records."""
        self._lengths.append(_square(gradient))
        self._num_records.add(num_records)

    def end(self, mean: Sequence[Array]) -> None:
        """Take their mean; a short minibatch among them makes their lengths unlike."""
        count = len(self._lengths)
        if count < 2 or len(self._num_records) != 1:
            return
        (num_records,) = self._num_records
        self.told = GroupGradients(count, num_records, fsum(self._lengths) / count, _square(mean))


@dataclass(frozen=True, slots=True)
class GradientNoise:
    """Means over updates.

    Attributes:
        sqr: Squared length of the true gradient; below 0 where noise hides it.
        var: Variance of the gradient of one record, summed over all parameters.
        num_updates: From how many updates.
    """

    sqr: float = 0.0
    var: float = 0.0
    num_updates: int = 0

    @property
    def is_known(self) -> bool:
        """Whether enough updates were seen."""
        return self.num_updates >= MEASURED

    @property
    def scale(self) -> float | None:
        """Records of an update in which noise and gradient weigh the same; None where unknown."""
        return max(0.0, self.var) / self.sqr if self.is_known and self.sqr > 0 else None

    def after(self, group: GroupGradients) -> "GradientNoise":
        """Have one more update count.

        Both are estimates without bias, from batches of two sizes: a gradient's own, and all of
        its update. Lengths that are not finite, as where a loss has overflowed, do not count.

        Source:
            McCandlish et al., "An Empirical Model of Large-Batch Training", 2018, appendix A.1.
        """
        one, whole = group.num_records, group.num_records * group.count
        sqr = (whole * group.square_of_mean - one * group.mean_square) / (whole - one)
        var = (group.mean_square - group.square_of_mean) / (1 / one - 1 / whole)
        if not (abs(sqr) < float("inf") and abs(var) < float("inf")):
            return self
        known = min(self.num_updates + 1, MEMORY)
        return GradientNoise(
            self.sqr + (sqr - self.sqr) / known,
            self.var + (var - self.var) / known,
            self.num_updates + 1,
        )


class NoiseGrowth(NamedTuple):
    """How noise grows with the batch, seen where the batch was changed.

    Attributes:
        power: Of the batch, by which it grows; the mean over changes.
        num_changes: From how many changes.
    """

    power: float = 0.0
    num_changes: int = 0

    @property
    def told(self) -> float | None:
        """None until it was seen."""
        return self.power if self.num_changes else None

    def after(self, change: float, before: GradientNoise, now: GradientNoise) -> "NoiseGrowth":
        """Have one more change count; a small one says nothing.

        Args:
            change: What the batch was multiplied by.
            before: At the batch before.
            now: At the present one.
        """
        is_large = abs(math.log(change)) >= math.log(LEAST_CHANGE)
        if not (is_large and before.scale and now.scale):
            return self
        power = math.log(now.scale / before.scale) / math.log(change)
        count = self.num_changes + 1
        return NoiseGrowth(self.power + (power - self.power) / count, count)


def _square(arrays: Sequence[Array]) -> float:
    """The squared length of all of them as one vector."""
    return fsum(_dot(array.reshape(-1)) for array in arrays)


def _dot(flat: Array) -> float:
    # Half floats would overflow.
    wide = flat if flat.dtype.itemsize >= np.dtype(np.float32).itemsize else flat.astype(np.float32)
    return float(np.dot(wide, wide))


# How many records make an update, where the user lets the master choose: `--elastic_batch`.
#
# A larger batch makes fewer updates, and so more records a second; each of its records advances
# training less, by the noise of the gradients. Chosen is the batch with the greatest product of
# both, by the function that the policy `goodput` plans with.
#
#   MIN ──noise known──▶ another, to see its speed ──measured──▶ what is better by LEAST_GAIN ──▶ …


LEAST_GAIN: Final = 0.05
"""What another batch has to promise: speeds that are measured twice differ by a few percent."""


def elastic_batch(
    limits: BatchRange,
    minibatch_size: int,
    noise: GradientNoise,
    measured_at: int | None = None,
    noise_growth: float | None = None,
) -> ElasticBatch:
    """A job's batch as policies see it."""
    low, high = limits.minimum, limits.maximum
    if not noise.is_known:
        return ElasticBatch(low, high, step=minibatch_size)
    sqr, var = max(0.0, noise.sqr), max(0.0, noise.var)
    return ElasticBatch(low, high, sqr, var / low, minibatch_size, measured_at, noise_growth)


def rate_gain(batch: ElasticBatch, num_records: int) -> float:
    """How many updates of the smallest batch one of so many records is worth, at least 1.

    By what was measured alone: what noise is taken to be elsewhere is for choosing a batch.

    Source:
        Johnson et al., "AdaScale SGD", ICML 2020.
    """
    scale = num_records / batch.min
    if scale <= 1 or not batch.is_measured:
        return 1.0
    return efficiency(replace(batch, noise_growth=None), num_records) * scale


class EarlierBatch(NamedTuple):
    """What was told of the batch of a job that goes on: see `BatchChoice`."""

    batch: int
    noise: GradientNoise = GradientNoise()
    first_noise: GradientNoise = GradientNoise()
    measured_at: int = 0
    growth: NoiseGrowth = NoiseGrowth()


@dataclass(slots=True)
class BatchChoice:
    """The batch of one job, and what it is chosen by.

    Attributes:
        limits: What the user allows.
        minibatch_size: Records of one gradient; all batches are multiples.
        is_proportional: Whether a step of the user's optimizer is in proportion to the gradient.
        batch: Records of an update, from the next that begins.
        noise: As measured with one batch.
        first_noise: Of the first updates alone, which jobs of the same program begin by.
        measured_at: That batch: the present one, but for the first updates after a change.
        growth: How noise grows with the batch.
    """

    limits: BatchRange
    minibatch_size: int
    is_proportional: bool
    batch: int
    noise: GradientNoise = field(default_factory=GradientNoise)
    first_noise: GradientNoise = field(default_factory=GradientNoise)
    measured_at: int = 0
    growth: NoiseGrowth = field(default_factory=NoiseGrowth)
    _next: GradientNoise = field(default_factory=GradientNoise)
    """With the present batch, until enough is known of it to go by that."""
    _before: tuple[int, GradientNoise] | None = None
    """The batch before this one, and the noise with it."""

    def __post_init__(self) -> None:
        """Nothing was measured yet, or it was with the present batch."""
        self.measured_at = self.measured_at or self.batch

    @classmethod
    def begun(
        cls,
        limits: BatchRange,
        minibatch_size: int,
        is_proportional: bool,
        earlier: EarlierBatch | None,
    ) -> "BatchChoice":
        """Begin with the smallest batch, or go on from what was told before.

        Args:
            limits: See the class.
            minibatch_size: See the class.
            is_proportional: See the class.
            earlier: What an earlier life of the master told; a batch that is allowed no more is
                forgotten.
        """
        told = earlier or EarlierBatch(limits.minimum)
        batch = told.batch
        is_allowed = limits.minimum <= batch <= limits.maximum and not batch % minibatch_size
        return cls(
            limits,
            minibatch_size,
            is_proportional,
            batch if is_allowed else limits.minimum,
            told.noise,
            told.first_noise,
            told.measured_at or batch,
            told.growth,
        )

    @property
    def num_gradients(self) -> int:
        """Gradients of an update."""
        return self.batch // self.minibatch_size

    @property
    def told(self) -> ElasticBatch:
        """As policies see it."""
        return elastic_batch(
            self.limits, self.minibatch_size, self.noise, self.measured_at, self.growth.told
        )

    def take(self, group: GroupGradients) -> None:
        """Learn from the gradients of an update."""
        if self.measured_at != self.batch:
            self._take_next(group)
            return
        is_begin = self.first_noise == self.noise
        self.noise = self.noise.after(group)
        if is_begin and self.noise.num_updates <= MEMORY:
            self.first_noise = self.noise
        # Few updates would do to go by, but a ratio of two such means says next to nothing.
        if self._before is not None and self.noise.num_updates == MEMORY:
            batch, before = self._before
            self.growth = self.growth.after(self.batch / batch, before, self.noise)

    def _take_next(self, group: GroupGradients) -> None:
        """Go by the noise of the batch before until that of the present one is known."""
        self._next = self._next.after(group)
        if self._next.is_known or not self.noise.is_known:
            if not self.noise.is_known:
                self.first_noise = self._next
            self._before = self.measured_at, self.noise
            self.noise, self.measured_at = self._next, self.batch

    def rate_scale(self, num_records: int) -> float:
        """What multiplies the user's learning rate in an update of so many records.

        Optimizers that divide by a length of the gradients, as Adam does, get the root: their
        noise is not in the step but in its direction.

        Source:
            Qiao et al., "Pollux", OSDI 2021, whose adaptdl scales so.
        """
        gain = rate_gain(self.told, num_records)
        return gain if self.is_proportional else gain**0.5

    def reconsider(self, speeds: Iterable[Speed], workers: int, nodes: int) -> str | None:
        """Choose again, when a speed has been measured at the present size and batch.

        Args:
            speeds: All that were measured, each with its batch.
            workers: That are at work.
            nodes: That they are on.

        Returns:
            Why the batch is another one now, for people; None where it stays.
        """
        told = self.told
        model = fit(Seen(tuple(speeds), self.batch, self.minibatch_size), FREE_TRIALS)
        if not told.is_measured or model is None:
            return None
        best = size_at(model, told, workers, nodes)
        gained = best.samples_per_s / self._present(model, told, workers, nodes) - 1
        is_trial = model.local_batches_seen < 2
        before, batch = self.batch, best.batch or self.batch
        if batch == before or not (is_trial or gained > LEAST_GAIN):
            return None
        self.batch, self._next = batch, GradientNoise()
        why = "to see how fast it is" if is_trial else f"{gained:.0%} more progress a second"
        worth = efficiency(told, batch)
        return f"updates of {batch} records instead of {before}, each worth {worth:.0%}: {why}"

    def _present(self, model: SpeedModel, told: ElasticBatch, workers: int, nodes: int) -> float:
        return model.samples_per_s(workers, nodes, self.batch) * efficiency(told, self.batch)
