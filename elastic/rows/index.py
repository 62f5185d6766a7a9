"""Which ids a table has: each has a position, given in the order in which they came.

Arrays and no dict, of which a hundred million ids would take ten times the memory: open addressing,
each step for all ids of a call at once.
"""

from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from elastic.rows.base import Ids, Values

Positions: TypeAlias = NDArray[np.int64]
"""Places in the arrays of a table, one dimension; -1 for none."""

Number = TypeVar("Number", bound=np.generic)

FEWEST_BITS: Final = 10
FREE: Final = -1
GONE: Final = -2
"""What a cell holds whose id has been removed: those that were placed behind it are still found."""

MULTIPLIER: Final = np.uint64(0x9E3779B97F4A7C15)
"""2^64 by the golden ratio: ids that follow each other are spread over the whole table."""

MOST_REMEMBERED: Final = 1 << 16
"""Ids of a call whose positions are remembered: more than a minibatch has."""


@dataclass(frozen=True, slots=True)
class _Found:
    """What was looked for last.

    Attributes:
        num_changes: Of the index when it was begun to be looked for.
    """

    num_changes: int
    ids: Ids
    positions: Positions


class IdIndex:
    """Ids and their positions, from 0 without gaps: in the order in which they came, but for those
    that were moved to where others have been removed.
    """

    def __init__(self) -> None:
        self._ids: NDArray[np.int64] = np.empty(1 << FEWEST_BITS, np.int64)
        self._num_ids = 0
        self._num_gone = 0
        self._num_changes = 0
        self._last: _Found | None = None
        self._clear(FEWEST_BITS)

    def __len__(self) -> int:
        return self._num_ids

    @property
    def ids(self) -> Ids:
        """All ids by position: a view, of which nothing changes before `remove` or `cut`."""
        return self._ids[: self._num_ids]

    def size_bytes(self) -> int:
        """Memory that it takes, but for the answer that is remembered: that of one minibatch."""
        return self._ids.nbytes + self._cells.nbytes

    def find(self, ids: Ids) -> Positions:
        """The position of each id; -1 where it has none."""
        # Who updates rows asks for them when he reads them, when he looks at what they were, and
        # when he writes them.
        last, num_changes = self._last, self._num_changes
        if last is not None and last.num_changes == num_changes and np.array_equal(last.ids, ids):
            return last.positions.copy()
        found = self._look_for(ids)
        if len(ids) <= MOST_REMEMBERED:
            self._last = _Found(num_changes, ids.copy(), found.copy())
        return found

    def _look_for(self, ids: Ids) -> Positions:
        # Nearly all are in their first cell, so nobody is picked before that is known.
        cells = self._first_cells(ids)
        found = self._cells.take(cells)
        asked = np.flatnonzero(self._is_other(found, ids))
        cells, ids = cells.take(asked), ids.take(asked)
        while len(asked):
            cells = self._next(cells)
            there = self._cells.take(cells)
            found[asked] = there
            left = np.flatnonzero(self._is_other(there, ids))
            asked, cells, ids = asked.take(left), cells.take(left), ids.take(left)
        return found

    def add(self, ids: Ids) -> None:
        """Give the next positions to ids that have none, each of them once."""
        start, self._num_ids = self._num_ids, self._num_ids + len(ids)
        self._ids = with_room(self._ids, self._num_ids)
        self._ids[start : self._num_ids] = ids
        if 2 * (self._num_ids + self._num_gone) > len(self._cells):
            self._fill_again()
        else:
            self._place(np.arange(start, self._num_ids))
        self._num_changes += 1

    def remove(self, positions: Positions) -> tuple[Positions, Positions]:
        """Forget the ids at these positions, and move the last ones to where they were.

        Args:
            positions: Each once.

        Returns:
            The positions that were moved, and those where they are now: whatever else is kept by
            position has to be moved alike, and cut to the new length.
        """
        cells = self._cells_of(positions)
        length = self._num_ids - len(positions)
        is_gone = np.zeros(self._num_ids - length, np.bool_)
        is_gone[positions[positions >= length] - length] = True
        moved, places = length + np.flatnonzero(~is_gone), positions[positions < length]
        self._cells[self._cells_of(moved)] = places
        self._cells[cells] = GONE
        self._ids[places] = self._ids[moved]
        self._num_ids, self._num_gone = length, self._num_gone + len(cells)
        self._num_changes += 1
        return moved, places

    def cut(self, num_ids: int) -> None:
        """Forget all but the first ids."""
        self._num_ids = num_ids
        self._fill_again()
        self._num_changes += 1

    def _fill_again(self) -> None:
        self._clear(max(FEWEST_BITS, (4 * self._num_ids - 1).bit_length()))
        self._place(np.arange(self._num_ids))

    def _clear(self, bits: int) -> None:
        self._shift = np.uint64(64 - bits)
        self._cells = np.full(1 << bits, FREE, np.int64)
        self._num_gone = 0

    def _cells_of(self, positions: Positions) -> Positions:
        """The cell that holds each position."""
        cells = self._first_cells(self._ids[positions])
        asked = np.flatnonzero(self._cells[cells] != positions)
        while len(asked):
            cells[asked] = self._next(cells[asked])
            asked = asked[self._cells[cells[asked]] != positions[asked]]
        return cells

    def _place(self, positions: Positions) -> None:
        cells = self._first_cells(self._ids[positions])
        while len(positions):
            free = self._cells[cells] < 0
            # Of several that want one cell the last has it; the others try the next.
            self._cells[cells[free]] = positions[free]
            is_left = self._cells[cells] != positions
            positions, cells = positions[is_left], self._next(cells[is_left])

    def _is_other(self, there: Positions, ids: Ids) -> NDArray[np.bool_]:
        """Of what is in the cells of ids: whether these have to be looked for behind them."""
        # Nobody minds which id is compared where a cell is free.
        is_other: NDArray[np.bool_] = (there >= 0) & (self._ids.take(there, mode="wrap") != ids)
        if self._num_gone:
            is_other |= there == GONE
        return is_other

    def _first_cells(self, ids: Ids) -> Positions:
        return ((ids.view(np.uint64) * MULTIPLIER) >> self._shift).view(np.int64)

    def _next(self, cells: Positions) -> Positions:
        return (cells + 1) & (len(self._cells) - 1)


def with_room(array: NDArray[Number], length: int) -> NDArray[Number]:
    """The array, or one twice as long with the same beginning, so that `length` rows fit."""
    if length <= len(array):
        return array
    larger: NDArray[Number] = np.empty((max(length, 2 * len(array)), *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger


def put_rows(array: Values, positions: Positions, values: Values) -> None:
    """Store rows of whole width, each as one element: short ones in half the time."""
    row = np.dtype((np.void, array.itemsize * array.shape[1]))
    array.view(row)[positions, 0] = np.ascontiguousarray(values, array.dtype).view(row)[:, 0]
