"""Ids of rows: made of integers and texts, found in a table, spread over servers, and noted.

Integers are ids as they are, texts are hashed to integers. The hash is part of what a job keeps: a
text has the same id in every process, in every version of this project, and on every machine.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from elastic.errors import ModelDefError
from elastic.rows.base import CANDIDATES, Change, Ids, Life, Noted, Notes, Values, no_ids

Words: TypeAlias = NDArray[np.uint64]
"""Numbers of 64 bits, of any shape."""

_WORD_BYTES: Final = 8
_STEP: Final = 0x9E3779B97F4A7C15
_MOST_BITS: Final = 63
_EMPTY_TEXT: Final = 0xCBF29CE484222325


def to_ids(values: Any) -> Ids:
    """Ids of an array's elements, in its shape.

    Args:
        values: Integers of any type, of which those of uint64 wrap above 2**63; or texts, str or
            bytes, which have equal ids where their UTF-8 is equal. NULs at a text's end do not
            count.

    Raises:
        ModelDefError: They are something else.
    """
    array = np.asarray(values)
    if not array.size:
        # NumPy takes an empty list for floats.
        return np.empty(array.shape, np.int64)
    if array.dtype.kind == "O":
        array = _of_one_kind(array)
    if array.dtype.kind in "iu":
        return array.astype(np.int64, copy=False)
    if array.dtype.kind in "SUT":
        return _hashed(_as_bytes(array).reshape(-1)).view(np.int64).reshape(array.shape)
    raise ModelDefError(
        f"ids of an embedding are of type {array.dtype}: give integers or texts, such as "
        "numbers cut into ranges by numpy.digitize"
    )


def distinct(ids: Ids) -> Ids:
    """Each id once, ascending.

    Sorted and compared: `numpy.unique` fills a hash table from 2.3 on, at 10 to 50 times the time.
    """
    in_order = np.sort(ids, axis=None)
    return in_order[_begins(in_order)]


def distinct_with_places(ids: Ids) -> tuple[Ids, Ids]:
    """Each id of an array of one dimension once, ascending, and for each of all which one it is."""
    bits = max(len(ids) - 1, 0).bit_length()
    lowest, highest = (int(ids.min()), int(ids.max())) if len(ids) else (0, 0)
    if (highest - lowest).bit_length() + bits > _MOST_BITS:
        found, places = np.unique(ids, return_inverse=True)
        return found, places
    # An id and its place in one number: these are sorted in half the time of an `argsort`.
    packed = (ids - lowest) << bits
    packed |= np.arange(len(ids))
    packed.sort()
    order = packed & ((1 << bits) - 1)
    packed >>= bits
    begins = _begins(packed)
    places = np.empty(len(ids), np.int64)
    places[order] = np.cumsum(begins) - 1
    return packed[begins] + lowest, places


def _begins(in_order: Ids) -> NDArray[np.bool_]:
    """Which of ascending numbers are not the one before them."""
    begins = np.ones(len(in_order), np.bool_)
    np.not_equal(in_order[1:], in_order[:-1], out=begins[1:])
    return begins


def mixed(words: Words) -> Words:
    """Each word's bits spread over the whole word; no two words give the same.

    Source:
        Steele et al., "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014.
    """
    words = words ^ (words >> np.uint64(30))
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    return words


def random_words(seed: str, ids: Ids, width: int) -> Words:
    """Random words of shape (ids, width), each of the seed, its id and its place."""
    key = mixed(to_ids([seed]).view(np.uint64))
    rows = mixed(mixed(ids.view(np.uint64)) ^ key)
    places = np.arange(1, width + 1, dtype=np.uint64) * np.uint64(_STEP)
    return mixed(rows[:, np.newaxis] + places)


def _of_one_kind(array: NDArray[Any]) -> NDArray[Any]:
    """Python objects as an array of texts or of integers."""
    kinds = set(map(type, array.reshape(-1)))
    if kinds == {bytes}:
        return array.astype(np.bytes_)
    if all(issubclass(kind, (str, bytes)) for kind in kinds):
        return _as_objects_in_utf8(array)
    if all(issubclass(kind, (int, np.integer)) and kind is not bool for kind in kinds):
        return _as_integers(array)
    names = ", ".join(sorted(kind.__name__ for kind in kinds))
    raise ModelDefError(
        f"ids of an embedding are of the types {names}: give integers or texts alone, and one of "
        "your own for what is missing"
    )


def _as_integers(array: NDArray[Any]) -> Ids:
    try:
        return array.astype(np.int64)
    except OverflowError as error:
        raise ModelDefError(
            f"an id of an embedding is outside -2**63 to 2**63 - 1 ({error}): give it as a text"
        ) from error


def _as_objects_in_utf8(array: NDArray[Any]) -> NDArray[np.bytes_]:
    texts = [
        text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
        for text in array.reshape(-1)
    ]
    return np.array(texts, np.bytes_).reshape(array.shape)


def _as_bytes(array: NDArray[Any]) -> NDArray[np.bytes_]:
    if array.dtype.kind == "S":
        return array
    try:
        # Of ASCII, which most are, ten times as fast as the way below.
        return array.astype(np.bytes_)
    except UnicodeEncodeError:
        return np.char.encode(array.astype(np.str_), "utf-8", "surrogatepass")


def _hashed(texts: NDArray[np.bytes_]) -> Words:
    """A word for each text: eight of its bytes at a time, whatever the longest text is."""
    num_words = -(-texts.dtype.itemsize // _WORD_BYTES)
    wide = texts.astype(f"S{max(num_words, 1) * _WORD_BYTES}")
    words = wide.view("<u8").reshape(len(texts), -1).astype(np.uint64, copy=False)
    lengths = np.char.str_len(wide)
    hashed = np.full(len(texts), _EMPTY_TEXT, np.uint64)
    for index in range(words.shape[1]):
        has_more = lengths > index * _WORD_BYTES
        hashed[has_more] = mixed(hashed[has_more] ^ words[has_more, index])
    return hashed


# Which ids a table has: each has a position, given in the order in which they came.
#
# Arrays and no dict, of which a hundred million ids would take ten times the memory: open
# addressing, each step for all ids of a call at once.


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


# Which parameter server has a row: a pure function of its table, its id and how many there are.
#
# So is which part of a table's `max_rows` each server has.
#
# What is part of a job is the function: every worker and every server must come to the same. Cuts
# do not depend on it, so that a job may go on with another number of servers.


_HALF: Final = 32
"""Bits of an id's hash that choose its server."""


def servers_of(table: str, ids: Ids, num_servers: int) -> Positions:
    """The server of each row, from 0; ids that follow each other are spread over all.

    Args:
        table: Its name, so that one id is not on the same server in all tables. Where an id is
            counted, it gets its row.
        ids: In any order.
        num_servers: How many there are, from 1 to 2**31.
    """
    key = mixed(to_ids([table.removesuffix(CANDIDATES)]).view(np.uint64))
    words = mixed(ids.view(np.uint64) ^ key) >> np.uint64(_HALF)
    return ((words * np.uint64(num_servers)) >> np.uint64(_HALF)).view(np.int64)


def spread_rows(table: str, ids: Ids, num_servers: int) -> list[Positions]:
    """For each server, where in `ids` those of its rows stand, ascending."""
    if num_servers == 1:
        return [np.arange(len(ids))]
    servers = servers_of(table, ids, num_servers)
    return [np.flatnonzero(servers == server) for server in range(num_servers)]


def life_on(life: Life, server: int, num_servers: int) -> Life:
    """What a server decides by, which looks at its own rows alone.

    Args:
        life: Of the table, whose `max_rows` are all servers' together.
        server: From 0.
        num_servers: How many there are.
    """
    if life.max_rows is None:
        return life
    first, end = (each * life.max_rows // num_servers for each in (server, server + 1))
    return replace(life, max_rows=end - first)


# Which rows a table has, for whom the rows themselves are elsewhere.


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


# Which ids updates have been about since a cut, so that the next one need not have all rows.


MERGED_FROM: Final = 1 << 16
"""So many ids are noted, and no fewer, before those that came again are looked for."""

NotedIds: TypeAlias = Mapping[str, Sequence[Ids]]
"""Ids by table, in arrays that may have some of them more than once."""


class ChangedIds:
    """The ids that commits were about, by the cuts that they follow.

    An id is noted once or a few times, however often it comes: 8 to 32 bytes of each.
    """

    def __init__(self, version: int = 0) -> None:
        """Begin behind a version, which a cut may be of."""
        self._since: dict[int, _Interval] = {version: _Interval()}
        self._open = self._since[version]

    def add(self, changes: Mapping[str, Change]) -> None:
        """A commit is about to be made."""
        for name, change in changes.items():
            self._open.add(name, change.ids)
            self._open.add(name, change.removed)

    def since(self, version: int | None, now: int) -> NotedIds | None:
        """Ids of what has changed since the last cut that was written; None where nobody knows.

        Args:
            version: Of that cut. What came before it is forgotten.
            now: The newest version, of which a cut is about to be written.
        """
        noted: NotedIds | None = None
        if version is None or version not in self._since:
            self._since = {}
        else:
            self._since = {begun: each for begun, each in self._since.items() if begun >= version}
            noted = _joined([*self._since.values()])
        self._open = self._since.setdefault(now, _Interval())
        return noted


def _joined(intervals: Sequence["_Interval"]) -> NotedIds:
    names = {name for each in intervals for name in each.tables()}
    return {name: [ids for each in intervals for ids in each.of(name)] for name in names}


class _Interval:
    """What has changed from one cut to the next."""

    def __init__(self) -> None:
        self._tables: dict[str, _Ids] = {}

    def tables(self) -> Sequence[str]:
        return list(self._tables)

    def of(self, table: str) -> Sequence[Ids]:
        return self._tables[table].parts() if table in self._tables else ()

    def add(self, table: str, ids: Ids) -> None:
        if len(ids):
            self._tables.setdefault(table, _Ids()).add(ids)


class _Ids:
    """Ids of a table, of which those that came again are left out now and then."""

    def __init__(self) -> None:
        self._parts: list[Ids] = []
        self._num_ids = 0
        self._num_merged = 0

    def parts(self) -> Sequence[Ids]:
        return tuple(self._parts)

    def add(self, ids: Ids) -> None:
        # A view would keep all of the message that it came in.
        self._parts.append(ids.copy())
        self._num_ids += len(ids)
        if self._num_ids > 2 * self._num_merged + MERGED_FROM:
            self._parts = [merged(self._parts)]
            self._num_ids = self._num_merged = len(self._parts[0])


def merged(parts: Sequence[Ids]) -> Ids:
    """The ids of all parts, each once, ascending."""
    return distinct(np.concatenate([no_ids(), *parts]))
