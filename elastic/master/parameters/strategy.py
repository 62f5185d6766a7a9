"""Where the parameters live, as seen by the master: what a strategy has to do for it.

The ledger is the only judge. `Updates` stages the records of an accepted gradient there and the
gradient here, has the group applied here and commits its records there in one step, under `lock`.
Nothing else knows which strategy runs.
"""

import asyncio
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import numpy as np

from elastic.checkpoints.contents import CutRows
from elastic.errors import InfrastructureError
from elastic.frameworks.base import Array, Model, Tensors, UpdaterState
from elastic.policy.updates.server_shares import Share, Sized, Slice
from elastic.rows.base import Ids, RowGradients, Values
from elastic.rpc.layout import Layout, PackedModel, SharedHandle
from elastic.rpc.wire import Chunks


@dataclass(frozen=True, slots=True)
class Incoming:
    """What a worker's report brings of its gradient, beside the records that it names.

    Attributes:
        session: Key of the worker's session.
        num_records: Behind the gradient, > 0.
        gradients: What is said to come; None where a layout that is known already is meant.
        state: The same of the state that is not trained.
        shared: Where it lies in the worker's memory; None where it comes in chunks.
        chunks: Else the bytes, in order.
        sequence: Which report of the session it is.
        is_staged: It is staged on the servers, and no bytes come.
        rows: Gradients of rows of embeddings.
    """

    session: str
    num_records: int
    gradients: Layout | None
    state: Layout | None
    shared: SharedHandle | None
    chunks: Chunks
    sequence: int = 0
    is_staged: bool = False
    rows: RowGradients = field(default_factory=dict)

    def check_no_rows(self) -> None:
        """Refuse rows where there are none.

        Raises:
            ValueError: Some have come.
        """
        if self.rows:
            raise ValueError(f"rows of {', '.join(self.rows)}, and the model has no such table")


@dataclass(frozen=True, slots=True)
class ServerPlace:
    """Where a share of the parameters is, and how a worker reaches it.

    Attributes:
        proof: A buffer of the server; whoever can map it may hand tensors over in memory.
    """

    address: str
    share: Share
    proof: SharedHandle | None


@dataclass(frozen=True, slots=True)
class Directions:
    """What a worker is told of where parameters are; no servers where the master has them.

    Attributes:
        era: Everything since the servers were loaded last.
    """

    era: str
    servers: Sequence[ServerPlace]


NO_SERVERS: Final = Directions("", ())


class ParametersLostError(InfrastructureError):
    """Some of the newest version is nowhere any more: the job goes back to its newest cut."""


C = TypeVar("C")
"""What one worker gives to an update, for a range of records: a gradient, a commit id, a vote."""


class Strategy(Protocol[C]):
    """The master's half of a strategy. All methods run on the event loop."""

    @property
    def version(self) -> int:
        """The newest version: the number of updates."""

    @property
    def lock(self) -> asyncio.Lock:
        """Makes an update and what is committed with it one step.

        Whoever reads parameters and ledger together holds it.
        """

    @property
    def model(self) -> Model:
        """The model, whatever version it holds: for what does not depend on its values."""

    async def whole(self) -> Model:
        """The model with the newest version; the caller holds `lock`.

        Raises:
            ParametersLostError: There is none any more.
        """

    @property
    def learning_rate(self) -> float:
        """Of the next update."""

    @property
    def applied_learning_rate(self) -> float:
        """Of the newest update, before what scales it."""

    # -- where they are ------------------------------------------------------------------------

    async def start(self) -> None:
        """Bring what was loaded to where workers find it, before anything is handed out.

        Raises:
            ParametersLostError: That is gone again.
            UserError: What the user has to mend.
        """

    async def lost(self) -> str:
        """Return when some of the newest version is lost; never where that is in the master.

        Returns:
            What is lost, in words.
        """

    def directions(self) -> Directions:
        """What a worker has to know to find them."""

    async def close(self) -> None:
        """Nothing more is done with this object; who waits for it gets `ParametersLostError`."""

    # -- updates -------------------------------------------------------------------------------

    async def receive(self, incoming: Incoming) -> C:
        """Take in what a worker gives; `give_back` ends its use.

        Raises:
            ValueError: It is not what this model's workers give.
        """

    def give_back(self, contribution: C) -> None:
        """It is applied, summed up or refused, so its memory is free."""

    def left(self, session: str) -> None:
        """A worker's session has ended: nothing more comes of it, and it reads nothing."""

    def stage(self, contribution: C, learning_rate_scale: float) -> None:
        """Put it into the open group; the caller holds `lock`."""

    def own_staged(self) -> None:
        """Copy what is only borrowed for a call, which ends before the group is complete."""

    def drop_staged(self) -> None:
        """Forget the open group."""

    async def commit(self, state_share: float = 1.0, rate_scale: float = 1.0) -> int:
        """Make the open group one update; the caller holds `lock`.

        Args:
            state_share: How far the state that is not trained moves to the reported one.
            rate_scale: Multiplies the learning rate of this update, beside what each gradient was
                staged with.

        Returns:
            The version that is there now.

        Raises:
            UserError: The user's optimizer failed; the job must end.
            ParametersLostError: It is applied nowhere, or not everywhere.
        """

    def end_epoch(self) -> None:
        """Advance a schedule that counts epochs."""

    # -- reading versions ----------------------------------------------------------------------

    async def packed(self, reader: Hashable, version: int | None = None) -> PackedModel | None:
        """A whole version in one buffer, until `release`; None if that is not kept."""

    async def keep(self, reader: Hashable) -> None:
        """Keep the newest version until `release`; the caller holds `lock`."""

    async def keep_values(
        self,
        reader: Hashable,
        version: int,
        parameters: Tensors,
        state: Tensors,
        rows: CutRows | None = None,
    ) -> None:
        """Keep an older version, by its values, until `release`.

        Raises:
            CheckpointError: They are not those of this model.
        """

    def kept(self, version: int) -> tuple[Tensors, Tensors] | None:
        """Parameters and state of a version that is kept, as views."""

    def release(self, reader: Hashable) -> None:
        """A reader is done with whatever it held."""

    async def rows(self, table: str, ids: Ids, version: int | None = None) -> Values | None:
        """Rows of a table, of shape (ids, dim); None if that version is not kept.

        Args:
            table: By its name.
            ids: Strictly ascending.
            version: One that is kept, or None for the newest.

        Raises:
            ValueError: The model has no such table.
            RowMissingError: One is known and not there: the job must end.
            ParametersLostError: They are nowhere any more.
        """

    async def hold_rows(self) -> CutRows | None:
        """Rows of the newest version until their `let_go`; the caller holds `lock`.

        None where the model has no tables.
        """

    async def hold_rows_since(self, version: int | None) -> CutRows | None:
        """The same for the cuts that follow each other, beyond the life of this process if it can.

        Args:
            version: Of the last of these cuts; None where there is none. What has changed since is
                told, if it is known.
        """

    async def copy(self) -> tuple[Tensors, Tensors, UpdaterState]:
        """Parameters, state and optimizer for a cut; the caller holds `lock`."""

    def load(
        self,
        version: int,
        parameters: Mapping[str, Array],
        state: Mapping[str, Array],
        optimizer: UpdaterState | None,
    ) -> None:
        """Go to the values of a cut, before anything is handed out.

        Raises:
            CheckpointError: They do not fit the model or the optimizer.
        """


AnyStrategy: TypeAlias = Strategy[Any]
"""A strategy, for those who pass on what workers give without a look."""


# A whole model as the shares of servers, and back, and so its optimizer's state.


SLOTS: Final = "slots"
"""What an optimizer keeps of each parameter, by name, where that is no tensor."""


def sized(layout: Layout) -> list[Sized]:
    """Tensors, as `spread` takes them."""
    return [Sized(each.name, each.shape, each.numpy_dtype.itemsize) for each in layout.specs]


def described(layout: Layout) -> Tensors:
    """Arrays of a layout's shapes and dtypes, without memory."""
    return {
        spec.name: np.broadcast_to(np.zeros((), spec.numpy_dtype), spec.shape)
        for spec in layout.specs
    }


def cut_out(slices: Sequence[Slice], arrays: Mapping[str, Array]) -> Tensors:
    """The pieces of a share, as views."""
    return {each.name: piece(arrays[each.name], each) for each in slices}


def piece(array: Array, rows: Slice) -> Array:
    """Some rows of a tensor, as a view; the whole of one without dimensions."""
    return array[rows.start : rows.end] if array.ndim else array


def share_of_optimizer(
    share: Share, whole: Mapping[str, Array], state: UpdaterState
) -> UpdaterState:
    """What a server needs of an optimizer's state: of its own parameters, and of none.

    Args:
        share: The server's.
        whole: The model's trained parameters, or others of their shapes.
        state: Of the optimizer over all of them.
    """
    owners = Owners(whole)
    own = {each.name: each for each in share.parameters}
    tensors: Tensors = {}
    for name, array in state.tensors.items():
        owner = owners.of(name)
        if owner is None:
            tensors[name] = array
        elif owner in own:
            # A slot of the parameter's shape has a number for each of its own.
            is_alike = array.ndim > 0 and array.shape == whole[owner].shape
            tensors[name] = piece(array, own[owner]) if is_alike else array
    values = dict(state.values)
    if SLOTS in values:
        values[SLOTS] = {name: slot for name, slot in values[SLOTS].items() if name in own}
    return UpdaterState(tensors, values)


def joined(
    names: Sequence[str], shares: Sequence[Sequence[Slice]], parts: Sequence[Mapping[str, Array]]
) -> Tensors:
    """The whole of tensors that are spread over servers.

    Args:
        names: In the order of the model.
        shares: What each server has of them.
        parts: Its values.
    """
    pieces: dict[str, list[tuple[int, Array]]] = {}
    for share, arrays in zip(shares, parts, strict=True):
        for each in share:
            pieces.setdefault(each.name, []).append((each.start, arrays[each.name]))
    return {name: _whole(pieces[name]) for name in names}


def joined_optimizer(
    whole: Mapping[str, Array], shares: Sequence[Share], states: Sequence[UpdaterState]
) -> UpdaterState:
    """The state of the optimizer over all parameters, from those of the servers.

    Args:
        whole: The model's trained parameters, or others of their shapes.
        shares: What each server has.
        states: Of its optimizer.
    """
    owners = Owners(whole)
    found: dict[str, list[tuple[int, Array]]] = {}
    for share, state in zip(shares, states, strict=True):
        own = {each.name: each for each in share.parameters}
        for name, array in state.tensors.items():
            owner = owners.of(name)
            rows = None if owner is None else own.get(owner)
            is_piece = (
                rows is not None
                and array.ndim > 0
                and array.shape == piece(whole[rows.name], rows).shape
            )
            if is_piece and rows is not None:
                found.setdefault(name, []).append((rows.start, array))
            else:
                # The same on all servers, as a count of steps.
                found.setdefault(name, [(0, array)])
    values = dict(states[0].values)
    if SLOTS in values:
        slots: dict[str, Any] = {}
        for state in states:
            slots |= {name: slot for name, slot in state.values[SLOTS].items() if name in whole}
        others = {name: each for name, each in values[SLOTS].items() if name not in whole}
        values[SLOTS] = {name: slots[name] for name in whole if name in slots} | others
    return UpdaterState({name: _whole(pieces) for name, pieces in found.items()}, values)


class Owners:
    """Says of which parameter a tensor of an optimizer is, by its name: `fc.weight/exp_avg`."""

    def __init__(self, parameters: Mapping[str, Array]) -> None:
        self._parameters = parameters

    def of(self, name: str) -> str | None:
        """The parameter with the longest name that fits; None for what belongs to none."""
        at = name.rfind("/")
        while at > 0:
            if name[:at] in self._parameters:
                return name[:at]
            at = name.rfind("/", 0, at)
        return None


def _whole(pieces: Sequence[tuple[int, Array]]) -> Array:
    if len(pieces) == 1:
        return pieces[0][1]
    return np.concatenate([array for _, array in sorted(pieces, key=lambda each: each[0])])
