"""Rows of embeddings for a worker's model: asked of who has them while the model computes.

Or had already: those that were read of late where a user allows rows to be stale (`AgedRows`), and
those that have come with the version (`ForeseenRows`).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from elastic.frameworks.base import Array, Batch
from elastic.rows.base import Ids, RowReader, Table, Values
from elastic.rows.ids import IdIndex, distinct
from elastic.rpc.client import MasterClient, Session, VersionGoneError
from elastic.rpc.rows import IDS_A_CALL, RowsAhead, WantedIds
from elastic.worker.servers import ServerExchange
from elastic.worker.strategy import LeaseLostError, RowsOfVersions

_OVERHEAD_BYTES: Final = 56
"""Of a row: its version, and its id and cells in an index that is half empty."""

_NUMBER_BYTES: Final = 4


class AgedRows:
    """Rows in bounded memory. Where there is no room for others all are forgotten: those that are
    read often are back soon.
    """

    def __init__(self, dim: int, size_bytes: int) -> None:
        """Begin with none.

        Args:
            dim: Numbers of a row.
            size_bytes: About so much memory is taken.
        """
        self._max_rows = max(size_bytes // (_NUMBER_BYTES * dim + _OVERHEAD_BYTES), 1)
        self._index = IdIndex()
        # Memory that is never written takes none.
        self._values: Values = np.empty((self._max_rows, dim), np.float32)
        self._versions = np.empty(self._max_rows, np.int64)

    def __len__(self) -> int:
        return len(self._index)

    def read(self, ids: Ids, since: int) -> tuple[Values, NDArray[np.bool_]]:
        """Rows, and which of them are older than a version or not here: their values mean nothing.

        Args:
            ids: Of the rows.
            since: What was put beside a version before this is too old.

        Returns:
            An array of shape (ids, dim) that is the caller's, and one of shape (ids,).
        """
        positions = self._index.find(ids)
        values = self._values.take(positions, axis=0, mode="clip")
        is_old = self._versions.take(positions, mode="clip") < since
        return values, is_old | (positions < 0)

    def put(self, ids: Ids, values: Values, version: int) -> None:
        """Have these rows, each of ids that differ, as read beside a version."""
        positions = self._index.find(ids)
        is_new = positions < 0
        num_rows = len(self._index) + int(np.count_nonzero(is_new))
        if num_rows > self._max_rows:
            self._index = IdIndex()
            ids, values = ids[: self._max_rows], values[: self._max_rows]
            positions, is_new = np.full(len(ids), -1), np.ones(len(ids), np.bool_)
        positions[is_new] = np.arange(len(self._index), len(self._index) + np.count_nonzero(is_new))
        self._index.add(ids[is_new])
        self._values[positions], self._versions[positions] = values, version


KEPT_BYTES: Final = 64 << 20
"""Of rows of all tables that a worker keeps to use them again."""


class Rows(RowReader, RowsOfVersions, Protocol):
    """What a model reads and a strategy steers."""


class MasterRows:
    """Reads rows at the newest version, or at the one that is evaluated.

    The newest may be newer than the parameters that the model is filled with. Where updates wait
    for gradients, a gradient of the two is refused, for it is one of the older version.
    """

    def __init__(self, client: MasterClient) -> None:
        """Take the connection to the master."""
        self._client = client
        self._session: Session | None = None
        self._version: int | None = None

    def begin(self, session: Session) -> None:
        """Take the session that all calls are of from now on."""
        self._session, self._version = session, None

    def read_at(self, version: int | None, beside: int) -> None:  # noqa: ARG002 - newer ones will do
        """See `RowsOfVersions`."""
        self._version = version

    def read(self, table: Table, ids: Ids) -> Values:
        """See `RowReader`.

        Raises:
            LeaseLostError: The version is gone, since what it was kept for is over.
        """
        parts = [
            self._part(table, ids[begin : begin + IDS_A_CALL])
            for begin in range(0, len(ids), IDS_A_CALL)
        ]
        if len(parts) == 1:
            return parts[0]
        return np.concatenate([np.empty((0, table.dim), np.float32), *parts])

    def _part(self, table: Table, ids: Ids) -> Values:
        assert self._session is not None, "a session has begun"
        try:
            return self._client.get_rows(self._session, table, ids, self._version)
        except VersionGoneError as error:
            raise LeaseLostError from error


class RowsOnServers:
    """Reads rows from the servers that have them; see `MasterRows` for their version."""

    def __init__(self, exchange: ServerExchange) -> None:
        """Take the connections to the servers."""
        self._exchange = exchange
        self._version: int | None = None

    def begin(self, session: Session) -> None:  # noqa: ARG002 - the connections know it
        """Read the newest rows, in a session that the connections have begun."""
        self._version = None

    def read_at(self, version: int | None, beside: int) -> None:  # noqa: ARG002 - newer ones will do
        """See `RowsOfVersions`."""
        self._version = version

    def read(self, table: Table, ids: Ids) -> Values:
        """See `RowReader`.

        Raises:
            LeaseLostError: The version is gone, since what it was kept for is over.
        """
        try:
            return self._exchange.read_rows(table, ids, self._version)
        except VersionGoneError as error:
            raise LeaseLostError from error


class RowsUsedAgain:
    """Uses rows that were read a few updates ago, and asks for the others.

    What was read beside parameters of a version lacks no update up to that. So a row that is used
    lacks, of those that the parameters have, at most the last `staleness`.
    """

    def __init__(self, rows: Rows, tables: Sequence[Table], staleness: int) -> None:
        """Keep nothing yet.

        Args:
            rows: Who has them.
            tables: Of the model, at least one.
            staleness: How many updates a row may lack, > 0.
        """
        self._rows = rows
        self._tables = tables
        self._staleness = staleness
        self._kept = _none_kept(tables)
        self._is_newest = True
        self._beside = 0

    def begin(self, session: Session) -> None:
        """Forget all rows: they may be of updates that a job which goes back has never made."""
        self._rows.begin(session)
        self._kept = _none_kept(self._tables)

    def read_at(self, version: int | None, beside: int) -> None:
        """See `RowsOfVersions`: a version that is named is read as it is."""
        self._rows.read_at(version, beside)
        self._is_newest, self._beside = version is None, beside

    def read(self, table: Table, ids: Ids) -> Values:
        """See `RowReader`."""
        if not self._is_newest:
            return self._rows.read(table, ids)
        kept = self._kept[table.name]
        values, is_missing = kept.read(ids, self._beside - self._staleness)
        if is_missing.any():
            asked = ids[is_missing]
            found = self._rows.read(table, asked)
            kept.put(asked, found, self._beside)
            values[is_missing] = found
        return values


def _none_kept(tables: Sequence[Table]) -> dict[str, AgedRows]:
    room = KEPT_BYTES // len(tables)
    return {table.name: AgedRows(table.dim, room) for table in tables}


# Which rows the next minibatch will ask for, and those that have come with its version.
#
# The ids that a layer asks for are mostly a column of its minibatch, as it is. Which column that is
# shows in the first steps: one whose different ids are those that were asked for. Of minibatches
# that are made ahead the ids of these columns are then known before the model sees them, and their
# rows come with the version that they are computed on.


MAX_MISSES: Final = 8
"""Steps in a row that read ids of no column, or left rows that came, after which it is given up:
this model does something else with its ids, or nothing ever comes."""


class AheadSource(Protocol):
    """Where rows come from with a version: the exchange that brings these."""

    @property
    def ahead(self) -> RowsAhead | None:
        """What came with the version that was brought last."""


@dataclass(frozen=True, slots=True)
class _Column:
    """A tensor of the features, by its place among them, and the table that its ids are of."""

    place: int
    table: Table


class ForeseenRows:
    """Reads rows from what came with a version, and those that did not from who has them."""

    def __init__(self, rows: Rows, source: AheadSource) -> None:
        """Know nothing of the model yet.

        Args:
            rows: Who has them.
            source: Of rows that come before they are asked for.
        """
        self._rows = rows
        self._source = source
        # Replaced, and never changed: minibatches are made in another thread.
        self._columns: tuple[_Column, ...] = ()
        self._num_misses = 0
        self._has_missed = False
        self._features: list[Array | None] = []
        self._unused: list[tuple[WantedIds, Values]] = []
        # In this step, and in any before.
        self._have_come = False
        self._have_helped = False

    # -- what will be asked for ----------------------------------------------------------------

    def wanted(self, batch: Batch) -> tuple[WantedIds, ...]:
        """What a minibatch will ask for, as far as that is known; called by any thread."""
        columns = self._columns
        if not columns:
            return ()
        tensors = list(_tensors(batch.features))
        found = []
        for column in columns:
            ids = _distinct(tensors[column.place]) if column.place < len(tensors) else None
            if ids is not None and len(ids):
                found.append(WantedIds(column.table, ids))
        return tuple(found)

    @contextmanager
    def computing(self, batch: Batch) -> Iterator[None]:
        """Learn from what is read of a minibatch meanwhile."""
        is_learning = self._num_misses < MAX_MISSES
        self._features = list(_tensors(batch.features)) if is_learning else []
        self._has_missed = False
        try:
            yield
        finally:
            self._features = []
            self._judge(has_missed=self._has_missed or bool(self._unused))
            self._unused = []

    # -- where rows come from ------------------------------------------------------------------

    def begin(self, session: Session) -> None:
        """See `RowsOfVersions`."""
        self._rows.begin(session)
        self._unused = []

    def read_at(self, version: int | None, beside: int) -> None:
        """See `RowsOfVersions`: of a version that is named nothing comes ahead."""
        self._rows.read_at(version, beside)
        came = self._source.ahead
        is_current = version is None and came is not None and came.version == beside
        self._unused = (
            list(zip(came.wanted, came.rows, strict=True))
            if came is not None and is_current
            else []
        )
        self._have_come = bool(self._unused)

    def read(self, table: Table, ids: Ids) -> Values:
        """See `RowReader`."""
        for place, (wanted, values) in enumerate(self._unused):
            if wanted.table.name == table.name and np.array_equal(wanted.ids, ids):
                # The array is the caller's from now on.
                del self._unused[place]
                return values
        self._learn(table, ids)
        return self._rows.read(table, ids)

    def _learn(self, table: Table, ids: Ids) -> None:
        """Look for the column whose ids were asked for."""
        if not self._features or (self._have_helped and not self._have_come and self._knows(table)):
            return
        for place, tensor in enumerate(self._features):
            column = _Column(place, table)
            if column in self._columns:
                continue
            distinct = _distinct(tensor)
            if distinct is not None and np.array_equal(distinct, ids):
                self._columns = (*self._columns, column)
                return
        self._has_missed = True

    def _knows(self, table: Table) -> bool:
        return any(column.table.name == table.name for column in self._columns)

    def _judge(self, *, has_missed: bool) -> None:
        """Count a step that has missed, unless none of late has: tasks that are lost leave rows."""
        if has_missed:
            self._num_misses += 1
            if self._num_misses == MAX_MISSES:
                self._columns = ()
        elif self._have_come and self._num_misses < MAX_MISSES:
            self._num_misses, self._have_helped = 0, True


def _tensors(structure: Any) -> Iterator[Array | None]:
    """The tensors of nested dicts, lists and tuples, in an order that stays; None for no integers.

    What is on another device, or no plain tensor, is no column that ids are looked for in.
    """
    match structure:
        case Mapping():
            for part in structure.values():
                yield from _tensors(part)
        case list() | tuple():
            for part in structure:
                yield from _tensors(part)
        case _:
            yield _integers(structure)


def _integers(tensor: Any) -> Array | None:
    try:
        array = np.asarray(tensor)
    except (TypeError, ValueError, RuntimeError):
        return None
    return array if array.dtype.kind in "iu" and array.ndim else None


def _distinct(tensor: Array | None) -> Ids | None:
    return None if tensor is None else distinct(tensor.astype(np.int64, copy=False))
