"""Which rows a table has, for whom the rows themselves are elsewhere."""

import numpy as np

from elastic.rows.base import Ids, Values
from elastic.rows.index import IdIndex, Positions, with_room
from elastic.rows.store import Change, Noted, Notes


class KnownRows:
    """The ids of a table's rows, with the notes of each."""

    def __init__(self, num_notes: int) -> None:
        """Begin without any.

        Args:
            num_notes: Words at the end of a row that are kept here as well.
        """
        self._index = IdIndex()
        self._noted: Noted = np.empty((0, num_notes), np.int32)

    def __len__(self) -> int:
        return len(self._index)

    def ids(self) -> Ids:
        """All of them, in no order; the caller's own."""
        return self._index.ids.copy()

    def has(self, ids: Ids) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Of each id, whether it has a row."""
        return self._index.find(ids) >= 0

    def notes(self) -> Notes:
        """Those of all rows."""
        return Notes(self.ids(), self._noted[: len(self)].copy())

    def change(self, change: Change) -> None:
        """Follow a commit."""
        self.write(change.ids, change.values)
        if len(change.removed):
            self._remove(self._index.find(change.removed))

    def add(self, ids: Ids) -> None:
        """Have rows of these ids, of which nothing is noted."""
        self._index.add(ids[~self.has(ids)])
        self._noted = with_room(self._noted, len(self))

    def write(self, ids: Ids, values: Values) -> None:
        """Have these rows, of shape (ids, width)."""
        self.add(ids)
        num_notes = self._noted.shape[1]
        last = values[:, values.shape[1] - num_notes :]
        self._noted[self._index.find(ids)] = last.view(np.int32)

    def _remove(self, positions: Positions) -> None:
        moved, places = self._index.remove(positions[positions >= 0])
        self._noted[places] = self._noted[moved]
