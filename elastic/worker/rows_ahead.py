"""Which rows the next minibatch will ask for, and those that have come with its version.

The ids that a layer asks for are mostly a column of its minibatch, as it is. Which column that is
shows in the first steps: one whose different ids are those that were asked for. Of minibatches that
are made ahead the ids of these columns are then known before the model sees them, and their rows
come with the version that they are computed on.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np

from elastic.frameworks.base import Array, Batch
from elastic.rows.base import Ids, Table, Values
from elastic.rows.ids import distinct
from elastic.rpc.client import Session
from elastic.rpc.rows.ahead import RowsAhead, WantedIds
from elastic.worker.rows import Rows

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
