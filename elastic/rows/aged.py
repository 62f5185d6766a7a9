"""Rows of one table that were read of late, and beside which version each was."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from elastic.rows.base import Ids, Values
from elastic.rows.index import IdIndex

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
