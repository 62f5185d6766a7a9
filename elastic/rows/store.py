"""Where rows are kept: one interface, and what every implementation promises.

A store has the rows of all tables at one version, that of the parameters, each with the optimizer's
slots behind its values: `width` words, of which the first are the row (`precision`). The last
`num_notes` are the bits of integers, by which it is decided which rows go (`life`). A store changes
no bit of a word. The master alone changes rows. Those that nobody has changed are not there, and
neither are those that were removed.

Versions that somebody still reads are *held*: a cut, an evaluation. A store keeps of them what
later commits overwrite, and no copy of a table.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from elastic.errors import InfrastructureError, TrainingError
from elastic.rows.base import Ids, Table, Values

Noted: TypeAlias = NDArray[np.int32]
"""The notes of some rows: two dimensions."""


PART_ROWS: Final = 4096
PART_BYTES: Final = 1 << 20
"""Of what is read at once where all of a table is: answers are there several times, in one form and
another."""


class RowsLostError(InfrastructureError):
    """The store is gone, or is at another version than the books: the job goes back to a cut."""


class RowMissingError(TrainingError):
    """A row that is known is not there: it must never be taken for a new one."""


def part_rows(width: int) -> int:
    """How many rows of so many numbers are read at once."""
    return max(1, min(PART_ROWS, PART_BYTES // (4 * width)))


def no_ids() -> Ids:
    """None at all."""
    return np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class TableForm:
    """A table with the slots that the job's optimizer keeps of each row.

    Attributes:
        slots: Names of the slots, each `dim` numbers behind the values, in this order.
        notes: Names of integers behind these, by which it is decided which rows stay.
    """

    table: Table
    slots: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """Words of a stored row."""
        return self.table.num_words + self.table.dim * len(self.slots) + self.num_notes

    @property
    def num_notes(self) -> int:
        """Words at its end that are integers."""
        return len(self.notes)


@dataclass(frozen=True, slots=True)
class Rows:
    """What a store has of some ids.

    Attributes:
        values: Of shape (ids, width); 0 where a row is not there.
        is_there: For each id, whether a commit has changed it, and none has removed it since.
    """

    values: Values
    is_there: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Change:
    """Rows as a commit leaves them, slots included, and rows that it removes.

    Attributes:
        ids: Strictly ascending.
        values: Of shape (ids, width).
        removed: Strictly ascending, and other ids; those without a row do not matter.
    """

    ids: Ids
    values: Values
    removed: Ids = field(default_factory=no_ids)


@dataclass(frozen=True, slots=True)
class Notes:
    """The notes of all rows of a table.

    Attributes:
        ids: In no order.
        numbers: Of shape (ids, notes).
    """

    ids: Ids
    numbers: Noted


class RowStore(Protocol):
    """Rows of all tables of one job. `read` and `scan` may run in threads beside a commit."""

    @property
    def version(self) -> int:
        """The newest version: of the last commit, or of what was loaded."""

    @property
    def is_durable(self) -> bool:
        """Whether held versions outlive the process that committed, so that `go_back` finds them.

        Else each cut has the rows themselves.
        """

    def open(self, forms: Sequence[TableForm]) -> None:
        """Name the tables, before anything else.

        Raises:
            RowsLostError: The store does not answer.
            UserError: What the user has to mend: a password, a server that evicts, other tables.
        """

    def close(self) -> None:
        """Nothing more is done with this object."""

    def erase(self) -> None:
        """Leave nothing of the job anywhere: it has come to its end.

        Raises:
            RowsLostError: The store does not answer.
        """

    def read(self, table: str, ids: Ids, version: int | None = None) -> Rows:
        """Rows of the newest version, or of one that is held; `ids` strictly ascending.

        Raises:
            KeyError: That version is not held (any more).
            RowMissingError: One is known and not there.
            RowsLostError: See there.
        """

    def commit(self, version: int, changes: Mapping[str, Change]) -> None:
        """Go from `version - 1` to `version`: all of these changes, or none.

        An id whose row was removed is from then on like one that has never been there.

        Raises:
            RowsLostError: Whether it was made is not known, or something else was.
            RowMissingError: See `read`.
            TrainingError: There is no room for it.
        """

    def hold(self, version: int) -> None:
        """Keep the newest version readable until `let_go`; counted, so that several may hold it."""

    def let_go(self, version: int) -> None:
        """One of those who hold a version is done with it; if any still does."""

    def scan(self, table: str, version: int) -> Iterator[Change]:
        """All rows of a version that is held, in parts of some thousands; in no order of ids."""

    def notes(self, table: str) -> Notes:
        """Those of the newest version, without reading rows; for who commits, between commits."""

    def load(self, version: int, tables: Mapping[str, Iterable[Change]]) -> None:
        """Forget everything, held versions included, and have these rows at this version.

        A store may go through them later, and more than once.

        Raises:
            RowsLostError, TrainingError: See `commit`.
        """

    def go_back(self, version: int) -> bool:
        """Go back to a version that is held, and hold no newer one; whether the store can.

        For a durable store also one that another process has committed and held.
        """

    @property
    def held(self) -> Sequence[int]:
        """Versions that are held, of a durable store also by a process before; oldest first."""

    def num_rows(self, table: str) -> int:
        """Rows of a table that are there at the newest version."""

    def size_bytes(self) -> int:
        """Memory that all tables take, as far as the store can tell."""
