"""How much the gradients of minibatches differ, which tells what a larger batch would be worth."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

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
