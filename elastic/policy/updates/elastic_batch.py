"""How many records make an update, where the user lets the master choose: `--elastic_batch`.

How much the gradients of minibatches differ tells what a larger batch would be worth.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
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


def elastic_batch(limits: BatchRange, minibatch_size: int, noise: GradientNoise) -> ElasticBatch:
    """A job's batch as policies see it."""
    low, high = limits.minimum, limits.maximum
    if not noise.is_known:
        return ElasticBatch(low, high, step=minibatch_size)
    sqr, var = max(0.0, noise.sqr), max(0.0, noise.var)
    return ElasticBatch(low, high, sqr, var / low, minibatch_size)


def rate_gain(batch: ElasticBatch, num_records: int) -> float:
    """How many updates of the smallest batch one of so many records is worth, at least 1.

    Source:
        Johnson et al., "AdaScale SGD", ICML 2020.
    """
    scale = num_records / batch.min
    is_worth_more = scale > 1 and batch.is_measured
    return efficiency(batch, num_records) * scale if is_worth_more else 1.0


class EarlierBatch(NamedTuple):
    """What was told of the batch of a job that goes on: see `BatchChoice`."""

    batch: int
    noise: GradientNoise = GradientNoise()
    first_noise: GradientNoise = GradientNoise()


@dataclass(slots=True)
class BatchChoice:
    """The batch of one job, and what it is chosen by.

    Attributes:
        limits: What the user allows.
        minibatch_size: Records of one gradient; all batches are multiples.
        is_proportional: Whether a step of the user's optimizer is in proportion to the gradient.
        batch: Records of an update, from the next that begins.
        noise: As measured so far.
        first_noise: Of the first updates alone, which jobs of the same program begin by.
    """

    limits: BatchRange
    minibatch_size: int
    is_proportional: bool
    batch: int
    noise: GradientNoise = field(default_factory=GradientNoise)
    first_noise: GradientNoise = field(default_factory=GradientNoise)

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
        batch, noise, first_noise = earlier or EarlierBatch(limits.minimum)
        is_allowed = limits.minimum <= batch <= limits.maximum and not batch % minibatch_size
        first = batch if is_allowed else limits.minimum
        return cls(limits, minibatch_size, is_proportional, first, noise, first_noise)

    @property
    def num_gradients(self) -> int:
        """Gradients of an update."""
        return self.batch // self.minibatch_size

    @property
    def told(self) -> ElasticBatch:
        """As policies see it."""
        return elastic_batch(self.limits, self.minibatch_size, self.noise)

    def take(self, group: GroupGradients) -> None:
        """Learn from the gradients of an update."""
        self.noise = self.noise.after(group)
        if self.noise.num_updates <= MEMORY:
            self.first_noise = self.noise

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
        self.batch = batch
        why = "to see how fast it is" if is_trial else f"{gained:.0%} more progress a second"
        worth = efficiency(told, batch)
        return f"updates of {batch} records instead of {before}, each worth {worth:.0%}: {why}"

    def _present(self, model: SpeedModel, told: ElasticBatch, workers: int, nodes: int) -> float:
        return model.samples_per_s(workers, nodes, self.batch) * efficiency(told, self.batch)
