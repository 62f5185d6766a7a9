"""Parameters in one process: gradients are received and averaged, each group makes a version.

One update is made at a time. Versions are read whole.
"""

import asyncio
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic, TypeAlias, TypeVar

import numpy as np

from elastic.checkpoints.contents import CutRows
from elastic.errors import CheckpointError, TrainingError
from elastic.frameworks.base import (
    Array,
    Model,
    Tensors,
    Updater,
    UpdaterState,
    Values,
    split_state,
)
from elastic.master.parameters.strategy import NO_SERVERS, Directions, Incoming
from elastic.policy.updates.elastic_batch import GroupGradients, SquaredLengths
from elastic.rows.base import Ids
from elastic.rows.base import Values as RowValues
from elastic.rpc.layout import (
    DTYPES,
    Assembler,
    Bytes,
    Layout,
    LayoutError,
    Mappings,
    ModelBuffer,
    ModelBuffers,
    PackedModel,
    SharedHandle,
    TensorSpec,
    aligned_empty,
)

INLINE_BYTES: Final = 1 << 20
"""Below this, moving the work to a thread costs more than doing it."""

MAX_FREE: Final = 4
"""Buffers kept for the next streams; more come at once only from more workers elsewhere."""

_NEXT: Final = "the next version"
"""Holds the buffer of a version that is being made."""

R = TypeVar("R")
V = TypeVar("V", bound=Values)

Watched: TypeAlias = Callable[[str], AbstractContextManager[None]]
"""Has somebody look, while the context lasts, whether the calling thread comes to an end with the
work that is named."""


def unwatched(_name: str) -> AbstractContextManager[None]:
    """Nobody looks."""
    return nullcontext()


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
        self._squares = SquaredLengths() if is_measured else None

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
            self._squares.add(contribution.gradients, contribution.num_records)
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


class VersionStore(Generic[V]):
    """The one copy that counts: of a whole model, or of a share of one."""

    def __init__(
        self,
        model: V,
        updater: Updater | None,
        watched: Watched = unwatched,
        num_mapped: int = 1,
    ) -> None:
        """Take a model.

        Args:
            model: Of which one copy is kept.
            updater: What updates it; None where its parameters stay as they are.
            watched: Around all work in threads, in which the user's code may hang.
            num_mapped: How many buffers of a worker's memory stay mapped.
        """
        self._model = model
        self._updater = updater
        self._watched = watched
        self.version = 0
        self.applied_learning_rate = 0.0
        self.lock = asyncio.Lock()
        parameters, state = model.parameters(), model.state()
        self.parameter_layout = Layout.of(parameters)
        self.state_layout = Layout.of(state)
        self.layout = Layout.of(parameters, state)
        self._buffers = ModelBuffers(self.layout)
        self._packed: PackedModel | None = None
        self._is_read = False
        self._kept: dict[int, PackedModel] = {}
        self._receiver = GradientReceiver(
            self.parameter_layout, self.state_layout, self.layout, num_mapped
        )
        self._group = WeightedSum(self.parameter_layout, self.state_layout)
        self._on_group: Callable[[GroupGradients], None] | None = None

    @property
    def model(self) -> V:
        return self._model

    @property
    def updater(self) -> Updater:
        """The optimizer of the parameters that are trained."""
        assert self._updater is not None, "parameters that are not trained are not updated"
        return self._updater

    @property
    def learning_rate(self) -> float:
        return self.updater.learning_rate()

    async def receive(self, incoming: Incoming) -> Contribution:
        """See `Strategy`."""
        incoming.check_no_rows()
        return await self._receiver.receive(incoming)

    def give_back(self, contribution: Contribution) -> None:
        """See `Strategy`."""
        self._receiver.give_back(contribution)

    def left(self, session: str) -> None:
        """See `Strategy`."""
        self._receiver.left(session)
        self.release(session)

    def stage(self, contribution: Contribution, learning_rate_scale: float) -> None:
        """See `Strategy`."""
        contribution.learning_rate_scale = learning_rate_scale
        self._group.add(contribution)

    def own_staged(self) -> None:
        """See `Strategy`."""
        self._group.own()

    def measure(self, on_group: Callable[[GroupGradients], None]) -> None:
        """Have the gradients of each update measured from now on, and `on_group` told of it."""
        self._on_group = on_group
        self._group = WeightedSum(self.parameter_layout, self.state_layout, is_measured=True)

    def drop_staged(self) -> None:
        """See `Strategy`."""
        self._group = self._group.successor()

    async def commit(self, state_share: float = 1.0, rate_scale: float = 1.0) -> int:
        """See `Strategy`."""
        # The average may begin the memory in which the next one is made.
        group, (gradients, state, scale) = self._group, self._group.mean()
        self._group = group.successor()
        self.applied_learning_rate = self.learning_rate
        if self._on_group is not None and group.gradients is not None:
            self._on_group(group.gradients)
        update = partial(self._apply, gradients, state, scale * rate_scale, state_share)
        if not self._is_read:
            await self._run("update", update)
            self.version += 1
            self._drop_packed()
            return self.version
        # Who read the last version waits for this one: packed in the same breath.
        self._is_read = False
        buffer = self._buffers.take(_NEXT)
        try:
            packed = await self._run("update", partial(self._apply_and_pack, update, buffer))
            self.version += 1
            self._drop_packed()
            buffer.readers.add(self)
            self._packed = packed
        finally:
            self._buffers.release(_NEXT)
        return self.version

    def end_epoch(self) -> None:
        """Advance a schedule that counts epochs."""
        self.updater.end_epoch()

    async def packed(self, reader: Hashable, version: int | None = None) -> PackedModel | None:
        """A version packed once for all who ask; it stays until `release`.

        Args:
            reader: Who holds it from now on.
            version: A version that is kept, or None for the newest.

        Returns:
            The packed model, or None when that version is not kept (any more).
        """
        async with self.lock:
            newest = await self._pack_newest()
            wanted = newest if version in (None, newest.version) else self._kept.get(version or 0)
            if wanted is not None:
                wanted.buffer.readers.add(reader)
                self._is_read = self._is_read or wanted is newest
            return wanted

    async def keep(self, reader: Hashable) -> None:
        """Keep the newest version until `reader` releases it; the caller holds `lock`."""
        packed = await self._pack_newest()
        packed.buffer.readers.add(reader)
        self._kept[packed.version] = packed

    async def keep_values(
        self,
        reader: Hashable,
        version: int,
        parameters: Tensors,
        state: Tensors,
        rows: CutRows | None = None,  # noqa: ARG002
    ) -> None:
        """Keep an older version, by its values, until `reader` releases it.

        Raises:
            CheckpointError: They are not those of this model.
        """
        if Layout.of(parameters, state).specs != self.layout.specs:
            raise CheckpointError(f"version {version} does not fit this model")
        buffer = self._buffers.take(reader)
        arrays = [*parameters.values(), *state.values()]
        await self._run("copy", partial(_copy_each, arrays, buffer.arrays))
        self._kept[version] = PackedModel(
            version, self.layout, len(parameters), buffer.arrays, buffer
        )

    def kept(self, version: int) -> tuple[Tensors, Tensors] | None:
        """Parameters and state of a version that somebody keeps, as views; None for no such."""
        packed = self._kept.get(version)
        if packed is None:
            return None
        names = [spec.name for spec in packed.layout.specs]
        pairs = list(zip(names, packed.arrays, strict=True))
        return dict(pairs[: packed.num_parameters]), dict(pairs[packed.num_parameters :])

    def release(self, reader: Hashable) -> None:
        """A reader is done with the version it got last."""
        self._buffers.release(reader)
        self._kept = {v: p for v, p in self._kept.items() if p.buffer.readers - {self}}

    async def copy(self, *, with_optimizer: bool = True) -> tuple[Tensors, Tensors, UpdaterState]:
        """Parameters, state and optimizer for a cut; the caller holds `lock`."""
        return await self._run("copy", partial(self._copy, with_optimizer))

    def take(
        self,
        version: int,
        parameters: Mapping[str, Array],
        state: Mapping[str, Array],
        optimizer: UpdaterState | None,
    ) -> None:
        """Go to the values of another version.

        Raises:
            CheckpointError: They do not fit the model or the optimizer.
        """
        # Gradients that waited for others of their group are of other values, and have not counted.
        self.drop_staged()
        self._model.load(parameters, state)
        if optimizer is not None:
            self.updater.load_state(optimizer)
        self.version = version
        self._drop_packed()

    def _apply(
        self, gradients: list[Array], state: list[Array], scale: float, state_share: float
    ) -> None:
        try:
            self.updater.apply(self.parameter_layout.named(gradients), scale)
        except Exception as error:
            raise TrainingError(
                f"the optimizer failed at step {self.version + 1}: {type(error).__name__}: {error}"
            ) from error
        if not state:
            return
        new_state: Mapping[str, Array] = self.state_layout.named(state)
        if state_share < 1.0:
            new_state = _mixed(self._model.state(), new_state, state_share)
        self._model.load(None, new_state)

    async def _pack_newest(self) -> PackedModel:
        if self._packed is None:
            buffer = self._buffers.take(self)
            self._packed = await self._run("copy", partial(self._pack, buffer, self.version))
        return self._packed

    def _apply_and_pack(self, update: Callable[[], None], buffer: ModelBuffer) -> PackedModel:
        update()
        return self._pack(buffer, self.version + 1)

    def _pack(self, buffer: ModelBuffer, version: int) -> PackedModel:
        arrays = buffer.arrays
        split = len(self.parameter_layout.specs)
        self._model.copy_into(
            self.parameter_layout.named(arrays[:split]), self.state_layout.named(arrays[split:])
        )
        return PackedModel(version, self.layout, split, arrays, buffer)

    def _drop_packed(self) -> None:
        # The store itself is a reader of the newest version, so that its buffer is not taken.
        self._packed = None
        self._buffers.release(self)

    def _copy(self, with_optimizer: bool) -> tuple[Tensors, Tensors, UpdaterState]:
        optimizer = self.updater.state() if with_optimizer else UpdaterState()
        return (
            {name: array.copy() for name, array in self._model.parameters().items()},
            {name: array.copy() for name, array in self._model.state().items()},
            UpdaterState({n: a.copy() for n, a in optimizer.tensors.items()}, optimizer.values),
        )

    async def _run(self, name: str, work: Callable[[], R]) -> R:
        if self.layout.size_bytes < INLINE_BYTES:
            return work()
        return await asyncio.get_running_loop().run_in_executor(None, self._run_watched, name, work)

    def _run_watched(self, name: str, work: Callable[[], R]) -> R:
        with self._watched(name):
            return work()


class ParameterStore(VersionStore[Model]):
    """The strategy in which the master has the parameters."""

    def load(
        self,
        version: int,
        parameters: Mapping[str, Array],
        state: Mapping[str, Array],
        optimizer: UpdaterState | None,
    ) -> None:
        """Go to the values of a cut, which has what is frozen among the state.

        Raises:
            CheckpointError: They do not fit the model or the optimizer.
        """
        moving, frozen = split_state(self.model, state)
        self.take(version, parameters, moving, optimizer)
        self.model.load_frozen(frozen)

    async def copy(self, *, with_optimizer: bool = True) -> tuple[Tensors, Tensors, UpdaterState]:
        """See `Strategy`: with what is frozen, which need not be copied."""
        parameters, state, optimizer = await super().copy(with_optimizer=with_optimizer)
        return parameters, state | self.model.frozen(), optimizer

    async def keep_values(
        self,
        reader: Hashable,
        version: int,
        parameters: Tensors,
        state: Tensors,
        rows: CutRows | None = None,
    ) -> None:
        """See `Strategy`: what is frozen is the same in all versions."""
        moving, _ = split_state(self.model, state)
        await super().keep_values(reader, version, parameters, moving, rows)

    def directions(self) -> Directions:
        """See `Strategy`."""
        return NO_SERVERS

    async def start(self) -> None:
        """See `Strategy`: everything is here."""

    async def lost(self) -> str:
        """See `Strategy`: what is here is lost with this process alone."""
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    async def whole(self) -> Model:
        """See `Strategy`."""
        return self.model

    async def close(self) -> None:
        """See `Strategy`."""

    async def rows(self, table: str, ids: Ids, version: int | None = None) -> RowValues | None:  # noqa: ARG002
        """See `Strategy`: there are none."""
        raise ValueError(f"the model has no table {table!r}")

    async def hold_rows(self) -> CutRows | None:
        """See `Strategy`: there are none."""
        return None

    async def hold_rows_since(self, version: int | None) -> CutRows | None:  # noqa: ARG002
        """See `Strategy`: there are none."""
        return None


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


def _copy_each(arrays: Sequence[Array], targets: Sequence[Array]) -> None:
    for array, target in zip(arrays, targets, strict=True):
        np.copyto(target, array)


def _mixed(old: Mapping[str, Array], new: Mapping[str, Array], share: float) -> Tensors:
    """Move floats by `share` towards the new values; counters only upwards."""
    result: Tensors = {}
    for name, value in new.items():
        before = old[name]
        if _is_float(value):
            wide = before.astype(np.float64)
            result[name] = (wide + share * (value.astype(np.float64) - wide)).astype(value.dtype)
        else:
            result[name] = np.maximum(before, value)
    return result


def _is_float(array: Array) -> bool:
    # ml_dtypes' bfloat16 has kind 'V'.
    return array.dtype.kind in "fV"
