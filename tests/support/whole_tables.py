"""A reader of rows that holds whole tables, as ordinary layers do."""

import numpy as np


class WholeTables:
    """Gives rows of arrays, and notes what was asked for.

    Attributes:
        arrays: By table, row `i` for the id `i`; others begin with random numbers.
        asked: Table and ids of each read.
    """

    def __init__(self, num_rows: int = 20) -> None:
        self.arrays = {}
        self.asked = []
        self._num_rows = num_rows

    def read(self, table, ids):
        assert (np.diff(ids) > 0).all(), "ids ascend strictly"
        assert ids.dtype == np.int64
        self.asked.append((table.name, ids.tolist()))
        return self.of(table.name, table.dim)[ids]

    def of(self, name, dim):
        """The table of that name."""
        if name not in self.arrays:
            rng = np.random.default_rng(len(self.arrays))
            self.arrays[name] = rng.normal(size=(self._num_rows, dim)).astype(np.float32)
        return self.arrays[name]


class AwayError(Exception):
    """What a reader may raise that no framework knows."""


class Away:
    """A reader that has nothing."""

    def read(self, table, ids):
        raise AwayError(f"{table.name} {ids.tolist()}")
