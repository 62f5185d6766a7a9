"""What a table of an embedding is, where its rows are kept, and which of them go again.

An id is any integer of 64 bits; texts are hashed to one (`ids`). A row that nobody has changed yet
exists nowhere: its values follow from its table and its id alone (`arithmetic`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from elastic.errors import InfrastructureError, TrainingError

Ids: TypeAlias = NDArray[np.int64]
"""Ids, one dimension."""

Values: TypeAlias = NDArray[np.float32]
"""One row for each id: two dimensions."""

CANDIDATES: Final = ":candidates"
"""Behind a table's name that of its ids that have no row yet."""


@dataclass(frozen=True, slots=True)
class Life:
    """When an id gets a row, and when it loses it.

    Attributes:
        admit_after: The update in which its id comes for the so-manieth time makes a row.
        expire_after: A row goes that was in none of so many updates; None for never.
        max_rows: Where there would be more, those go that were in the fewest updates.
    """

    admit_after: int = 1
    expire_after: int | None = None
    max_rows: int | None = None

    @property
    def ends(self) -> bool:
        """Whether rows ever go."""
        return self.expire_after is not None or self.max_rows is not None


RowDtype: TypeAlias = Literal["float32", "bfloat16", "int8"]
"""What a store keeps of a number of a row."""

ROW_DTYPES: Final[Mapping[str, int]] = {"float32": 4, "bfloat16": 2, "int8": 1}
"""By name, the bytes of a number."""

WORD_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class Table:
    """A table, as its layer declares it.

    Attributes:
        name: Of the layer, unique in the model.
        dim: Numbers of a row.
        initializer: How a row begins, in the words of `initializers.parse`: `uniform(0.05)`.
        life: Of its rows.
        row_dtype: What is stored of their values, which are float32 to everybody else.
    """

    name: str
    dim: int
    initializer: str
    life: Life = Life()
    row_dtype: RowDtype = "float32"

    @property
    def num_words(self) -> int:
        """Words of a stored row that are its values; of int8 one more, their scale."""
        scale = 1 if self.row_dtype == "int8" else 0
        return scale + -(-self.dim * ROW_DTYPES[self.row_dtype] // WORD_BYTES)


@dataclass(frozen=True, slots=True)
class RowGradient:
    """The gradient of some rows of a table.

    Attributes:
        ids: Strictly ascending.
        values: For each id the sum of the gradients of all places where it stands, of shape
            (ids, dim).
    """

    ids: Ids
    values: Values


RowGradients: TypeAlias = Mapping[str, RowGradient]
"""By the name of the table."""


class RowReader(Protocol):
    """Where a model gets rows from while it computes."""

    def read(self, table: Table, ids: Ids) -> Values:
        """Values of the rows of these ids, as of the version that the model is filled with.

        Args:
            table: Of which.
            ids: Strictly ascending.

        Returns:
            An array of shape (ids, dim) that is the caller's; of a row that nobody has changed yet
            its first values.
        """


# Where rows are kept: one interface, and what every implementation promises.
#
# A store has the rows of all tables at one version, that of the parameters, each with the
# optimizer's slots behind its values: `width` words, of which the first are the row (`arithmetic`).
# The last `num_notes` are the bits of integers, by which it is decided which rows go (`leaving`). A
# store changes no bit of a word. The master alone changes rows. Those that nobody has changed are
# not there, and neither are those that were removed.
#
# Versions that somebody still reads are *held*: a cut, an evaluation. A store keeps of them what
# later commits overwrite, and no copy of a table.


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


# Which ids get a row, and which rows go again: decided by counts that are stored with them.
#
# Nothing else is looked at, so that a job that goes back to a cut decides as it would have.


NOTES: Final = ("count", "seen")
"""Of a row: in how many updates it was, and the number of the last one."""

PARTS: Final = 8
"""A look at all rows comes so often in the time after which they expire, and makes room for so
many of `max_rows`: often enough, and rare enough to cost little."""


@dataclass(frozen=True, slots=True)
class Gone:
    """How many rows of a table have gone.

    Attributes:
        expired: Not trained for too long.
        evicted: To make room.
    """

    expired: int = 0
    evicted: int = 0

    def __add__(self, other: "Gone") -> "Gone":
        return Gone(self.expired + other.expired, self.evicted + other.evicted)


@dataclass(frozen=True, slots=True)
class Leaving:
    """Ids of rows that go, each once, in no order.

    Attributes:
        expired: Not trained for too long.
        evicted: To make room.
    """

    expired: Ids
    evicted: Ids

    @property
    def num(self) -> Gone:
        """How many they are."""
        return Gone(len(self.expired), len(self.evicted))

    @property
    def ids(self) -> Ids:
        """All of them, ascending."""
        return np.sort(np.concatenate([self.expired, self.evicted]))


def is_due(life: Life, step: int, num_rows: int) -> bool:
    """Whether an update looks which rows go.

    Args:
        life: Of the table.
        step: Number of the update.
        num_rows: That there would be after it.
    """
    if life.max_rows is not None and num_rows > life.max_rows:
        return True
    return life.expire_after is not None and step % max(1, life.expire_after // PARTS) == 0


def leaving(life: Life, notes: Notes, step: int) -> Leaving:
    """Which rows go with an update.

    Args:
        life: Of the table.
        notes: Of all rows, as this update leaves them.
        step: Its number.
    """
    counts, seen = notes.numbers.T.astype(np.int64)
    is_old = np.zeros(len(counts), np.bool_)
    if life.expire_after is not None:
        is_old = seen <= step - life.expire_after
    expired, ids = notes.ids[is_old], notes.ids[~is_old]
    if life.max_rows is None or len(ids) <= life.max_rows:
        return Leaving(expired, no_ids())
    surplus = len(ids) - (life.max_rows - life.max_rows // PARTS)
    ranks = (counts << 32 | seen)[~is_old]
    return Leaving(expired, _least(ids, ranks, surplus))


def noted(values: Values) -> Noted:
    """The notes in stored rows, as a view that can be changed."""
    return values[:, values.shape[1] - len(NOTES) :].view(np.int32)


def note(values: Values, step: int) -> None:
    """Note in stored rows that an update of this number has them."""
    notes = noted(values)
    notes[:, 0] += 1
    notes[:, 1] = step


def notes_after(notes: Notes, change: Change) -> Notes:
    """The notes of all rows, as a change leaves them."""
    touched = np.sort(np.concatenate([change.ids, change.removed]))
    stays = ~_among(notes.ids, touched)
    return Notes(
        np.concatenate([notes.ids[stays], change.ids]),
        np.concatenate([notes.numbers[stays], noted(change.values)]),
    )


def without(change: Change, ids: Ids) -> Change:
    """The same change, which removes these rows instead of writing them.

    Args:
        change: Which removes others.
        ids: Ascending.
    """
    stays = ~_among(change.ids, ids)
    removed = np.sort(np.concatenate([change.removed, ids]))
    return Change(change.ids[stays], change.values[stays], removed)


def _among(ids: Ids, ascending: Ids) -> NDArray[np.bool_]:
    """Of each id, whether it is one of these: in a tenth of the time that `isin` takes."""
    if not len(ascending):
        return np.zeros(len(ids), np.bool_)
    places = np.searchsorted(ascending[:-1], ids)
    is_among: NDArray[np.bool_] = ascending[places] == ids
    return is_among


def _least(ids: Ids, ranks: NDArray[np.int64], number: int) -> Ids:
    """So many ids of the least ranks; of equal ranks the least ids, wherever they are stored."""
    edge = np.partition(ranks, number - 1)[number - 1]
    below = ids[ranks < edge]
    return np.concatenate([below, np.sort(ids[ranks == edge])[: number - len(below)]])
