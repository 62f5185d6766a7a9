"""Gradients as they come: received from memory or a stream, averaged by records in their group."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from typing import Final

import numpy as np

from elastic.frameworks.base import Array
from elastic.master.parameters.strategy import Incoming
from elastic.policy.updates.gradient_noise import GroupGradients
from elastic.rpc.layout import (
    DTYPES,
    Assembler,
    Bytes,
    Layout,
    LayoutError,
    TensorSpec,
    aligned_empty,
)
from elastic.rpc.shared import Mappings, SharedHandle

MAX_FREE: Final = 4
"""Buffers kept for the next streams; more come at once only from more workers elsewhere."""


@dataclass(slots=True)
class Contribution:
    """One received gradient.

    Its arrays are borrowed: whoever reads them after the reply reads those of the next one.

    Attributes:
        gradients: As they came: bfloat16 where a worker has rounded those of float32.
        buffer: Where they lie, if that is not the worker's own memory.
    """

    gradients: Sequence[Array]
    state: Sequence[Array]
    num_records: int
    learning_rate_scale: float = 1.0
    buffer: Bytes | None = None


class GradientReceiver:
    """Receives into memory that is used again: fresh pages cost more than the bytes in them."""

    def __init__(
        self, parameters: Layout, state: Layout, whole: Layout, num_mapped: int = 1
    ) -> None:
        """Describe what is received: the model's parameters, its non-trained state, and both.

        Args:
            num_mapped: How many buffers of a worker's memory stay mapped.
        """
        self._num_mapped = num_mapped
        self._parameters = parameters
        self._state = state
        self._whole = whole
        self._narrow = whole.narrowed(len(parameters.specs))
        self._mappings: dict[str, Mappings] = {}
        self._free: list[Bytes] = []

    async def receive(self, incoming: Incoming) -> Contribution:
        """The gradient and state that are announced; `give_back` ends their use.

        Raises:
            LayoutError: They are not the model's tensors.
        """
        layout = self._layout_of(incoming)
        if incoming.shared is not None:
            arrays = self._mapped(incoming.session, incoming.shared, layout)
            return self._contribution(incoming, arrays, None)
        buffer = self._free.pop() if self._free else aligned_empty(self._whole.size_bytes)
        assembler = Assembler(layout, buffer)
        # Where this does not come to its end, what comes may yet be written there: it is not kept.
        incoming.chunks.lie_in(assembler.room)
        async for chunk in incoming.chunks:
            assembler.add(chunk)
        arrays = assembler.finish()
        return self._contribution(incoming, arrays, buffer)

    def give_back(self, contribution: Contribution) -> None:
        """Its gradient is applied, summed up or refused, so its memory is free."""
        if contribution.buffer is not None:
            self._keep(contribution.buffer)
            contribution.buffer = None

    def _layout_of(self, incoming: Incoming) -> Layout:
        """What is announced: the model's tensors, or the same with rounded gradients.

        Raises:
            LayoutError: It is neither.
        """
        split = len(self._parameters.specs)
        if incoming.state is not None:
            incoming.state.require(self._state, "state")
        if incoming.gradients is None:
            return self._whole
        if incoming.gradients.specs == self._narrow.specs[:split]:
            return self._narrow
        incoming.gradients.require(self._parameters, "gradient")
        return self._whole

    def _contribution(
        self, incoming: Incoming, arrays: Sequence[Array], buffer: Bytes | None
    ) -> Contribution:
        split = len(self._parameters.specs)
        return Contribution(arrays[:split], arrays[split:], incoming.num_records, buffer=buffer)

    def _keep(self, buffer: Bytes) -> None:
        if len(self._free) < MAX_FREE:
            self._free.append(buffer)

    def left(self, session: str) -> None:
        """Map the memory of a worker no longer, whose session has ended."""
        self._mappings.pop(session, None)

    def _mapped(self, session: str, handle: SharedHandle, layout: Layout) -> Sequence[Array]:
        """Tensors in the worker's memory, mapped once a session.

        Raises:
            LayoutError: It is not there, or too small.
        """
        mappings = self._mappings.setdefault(session, Mappings(self._num_mapped))
        arrays = mappings.views(handle, layout)
        if arrays is None:
            raise LayoutError("the shared memory of the report cannot be mapped, or is too small")
        return arrays


class WeightedSum:
    """The average so far. One gradient alone is passed through untouched, or made as wide as its
    parameter where it was rounded on its way; half floats are summed in float32.
    """

    def __init__(self, parameters: Layout, state: Layout, *, is_measured: bool = False) -> None:
        """Describe what is summed: the model's parameters and its non-trained state.

        Args:
            parameters: Of the gradients.
            state: What is not trained.
            is_measured: Whether the lengths of the gradients are wanted too.
        """
        self._layouts = parameters, state
        self._split = len(parameters.specs)
        self._totals: list[Array] | None = None
        self._first: Contribution | None = None
        self._unit = 0
        """Records that a weight of one stands for in the totals; 0 while there are none."""
        self.num_records = 0
        self.count = 0
        self._squares = _Squares() if is_measured else None

    @property
    def gradients(self) -> GroupGradients | None:
        """What was measured, once `mean` was asked for; None where nothing could be."""
        return None if self._squares is None else self._squares.told

    def successor(self) -> "WeightedSum":
        """The next group, in the same memory: its first `add` ends the arrays of `mean`.

        Fresh memory costs a page fault every 4 KiB, several times the sum itself.
        """
        following = WeightedSum(*self._layouts, is_measured=self._squares is not None)
        following._totals = self._totals
        return following

    def add(self, contribution: Contribution) -> None:
        """Take one more gradient into the average."""
        self.count += 1
        self.num_records += contribution.num_records
        if self._squares is not None:
            self._squares.add(contribution)
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
        if not self._unit and self._is_rounded(first):
            self._started(first)
        if self._totals is None or not self._unit:
            return list(first.gradients), list(first.state), first.learning_rate_scale
        weight = self.num_records // self._unit
        specs = (spec for layout in self._layouts for spec in layout.specs)
        means = [
            _divided(total, weight, spec) for total, spec in zip(self._totals, specs, strict=True)
        ]
        if self._squares is not None:
            self._squares.end(means[: self._split])
        return means[: self._split], means[self._split :], first.learning_rate_scale

    def _is_rounded(self, contribution: Contribution) -> bool:
        return any(
            array.dtype != spec.numpy_dtype
            for array, spec in zip(contribution.gradients, self._layouts[0].specs, strict=True)
        )

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


class _Squares:
    """Squared lengths of the gradients of a group, and of their mean: one more pass over each."""

    def __init__(self) -> None:
        self.told: GroupGradients | None = None
        self._lengths: list[float] = []
        self._num_records: set[int] = set()

    def add(self, contribution: Contribution) -> None:
        """Take one more gradient in."""
        self._lengths.append(_square(contribution.gradients))
        self._num_records.add(contribution.num_records)

    def end(self, mean: Sequence[Array]) -> None:
        """Take their mean; a short minibatch among them makes their lengths unlike."""
        count = len(self._lengths)
        if count < 2 or len(self._num_records) != 1:
            return
        (num_records,) = self._num_records
        self.told = GroupGradients(count, num_records, fsum(self._lengths) / count, _square(mean))


def _square(arrays: Sequence[Array]) -> float:
    """The squared length of all of them as one vector."""
    return fsum(_dot(array.reshape(-1)) for array in arrays)


def _dot(flat: Array) -> float:
    # Half floats would overflow.
    wide = flat if flat.dtype.itemsize >= np.dtype(np.float32).itemsize else flat.astype(np.float32)
    return float(np.dot(wide, wide))


def _wide(spec: TensorSpec) -> TensorSpec:
    is_half = spec.dtype in ("float16", "bfloat16")
    return TensorSpec(spec.name, "float32", spec.shape) if is_half else spec


def _accumulate(total: Array, array: Array, weight: int) -> None:
    if total.dtype.kind != "f":
        # Integers here are counters (batches seen); they have no meaningful average.
        np.maximum(total, array, out=total)
        return
    # Minibatches are of one size but for the last of a task.
    total += array if weight == 1 else np.multiply(array, weight, dtype=total.dtype)


def _divided(total: Array, weight: int, spec: TensorSpec) -> Array:
    if total.dtype.kind == "f" and weight != 1:
        total /= total.dtype.type(weight)
    return total if total.dtype.name == spec.dtype else total.astype(DTYPES[spec.dtype])
