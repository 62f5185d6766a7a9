"""Parameters in one process: one update at a time, read as whole versions."""

import asyncio
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Final, Generic, TypeAlias, TypeVar

import numpy as np

from elastic.checkpoints.rows import CutRows
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
from elastic.master.parameters.contributions import Contribution, GradientReceiver, WeightedSum
from elastic.master.parameters.strategy import NO_SERVERS, Directions, Incoming
from elastic.master.parameters.versions import ModelBuffer, ModelBuffers, PackedModel
from elastic.policy.updates.gradient_noise import GroupGradients
from elastic.rows.base import Ids
from elastic.rows.base import Values as RowValues
from elastic.rpc.layout import Layout

INLINE_BYTES: Final = 1 << 20
"""Below this, moving the work to a thread costs more than doing it."""

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


def _is_float(array: Array) -> bool:
    # ml_dtypes' bfloat16 has kind 'V'.
    return array.dtype.kind in "fV"


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
