"""The gradients of one group, averaged by records as they come."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from elastic.frameworks.base import Array
from elastic.rpc.layout import DTYPES, Bytes, Layout, TensorSpec, aligned_empty


@dataclass(slots=True)
class Contribution:
    """One received gradient.

    Its arrays are borrowed: whoever reads them after the reply reads those of the next one.

    Attributes:
        buffer: Where they lie, if that is not the worker's own memory.
    """

    gradients: Sequence[Array]
    state: Sequence[Array]
    num_records: int
    learning_rate_scale: float = 1.0
    buffer: Bytes | None = None


class WeightedSum:
    """The average so far. One gradient alone is passed through untouched; half floats are summed
    in float32.
    """

    def __init__(self, parameters: Layout, state: Layout) -> None:
        """Describe what is summed: the model's parameters and its non-trained state."""
        self._layouts = parameters, state
        self._split = len(parameters.specs)
        self._totals: list[Array] | None = None
        self._first: Contribution | None = None
        self._unit = 0
        """Records that a weight of one stands for in the totals; 0 while there are none."""
        self.num_records = 0
        self.count = 0

    def successor(self) -> "WeightedSum":
        """The next group, in the same memory: its first `add` ends the arrays of `mean`.

        Fresh memory costs a page fault every 4 KiB, several times the sum itself.
        """
        following = WeightedSum(*self._layouts)
        following._totals = self._totals
        return following

    def add(self, contribution: Contribution) -> None:
        """Take one more gradient into the average."""
        self.count += 1
        self.num_records += contribution.num_records
        if self._first is None:
            self._first = contribution
            return
        totals = self._started(self._first)
        if self._unit not in (1, contribution.num_records):
            self._count_records(totals)
        weight = contribution.num_records // self._unit
        for total, array in zip(
            totals, (*contribution.gradients, *contribution.state), strict=True
        ):
            _accumulate(total, array, weight)

    def own(self) -> None:
        """Copy what is borrowed, since the group outlives the call that brought it."""
        if self._first is not None:
            self._started(self._first)

    def mean(self) -> tuple[list[Array], list[Array], float]:
        """Gradients, state and the learning-rate scale of the update; to be asked once."""
        first = self._first
        assert first is not None
        if self._totals is None or not self._unit:
            return list(first.gradients), list(first.state), first.learning_rate_scale
        weight = self.num_records // self._unit
        specs = (spec for layout in self._layouts for spec in layout.specs)
        means = [
            _divided(total, weight, spec) for total, spec in zip(self._totals, specs, strict=True)
        ]
        return means[: self._split], means[self._split :], first.learning_rate_scale

    def _started(self, first: Contribution) -> list[Array]:
        """The totals, which begin with the first gradient."""
        if self._totals is None:
            wide = Layout(tuple(_wide(s) for layout in self._layouts for s in layout.specs))
            self._totals = wide.views(aligned_empty(wide.size_bytes))
        if not self._unit:
            self._unit = first.num_records
            for total, array in zip(self._totals, (*first.gradients, *first.state), strict=True):
                np.copyto(total, array, casting="unsafe")
        return self._totals

    def _count_records(self, totals: list[Array]) -> None:
        """Go over to weights in records, since minibatches differ after all."""
        for total in totals:
            if total.dtype.kind == "f":
                total *= total.dtype.type(self._unit)
        self._unit = 1


def _wide(spec: TensorSpec) -> TensorSpec:
    is_half = spec.dtype in ("float16", "bfloat16")
    return TensorSpec(spec.name, "float32", spec.shape) if is_half else spec


def _accumulate(total: Array, array: Array, weight: int) -> None:
    if total.dtype.kind != "f":
        # Integers here are counters (batches seen); they have no meaningful average.
        np.maximum(total, array, out=total)
        return
    if array.dtype != total.dtype:
        array = array.astype(total.dtype)
    # Minibatches are of one size but for the last of a task.
    total += array if weight == 1 else array * total.dtype.type(weight)


def _divided(total: Array, weight: int, spec: TensorSpec) -> Array:
    if total.dtype.kind == "f" and weight != 1:
        total /= total.dtype.type(weight)
    return total if total.dtype.name == spec.dtype else total.astype(DTYPES[spec.dtype])
