"""What formats of columns share: rows made of columns, and fields of text made numbers.

A number in text is what Python takes for one, but for underscores. What Arrow reads, several times
as fast, are the same numbers: whatever it refuses is looked at here, and named here.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from elastic.data.base import ReadTask, joined, placed, texts
from elastic.data.picking import by_shard, is_in_long_runs, read_runs
from elastic.errors import DataError
from elastic.policy.tasks.records import Columns, Picks, Shard
from elastic.spec.values import nearest

_FIRST_PICKED: Final = 1 << 10
_PICKED: Final = 1 << 13
_PICKED_BYTES: Final = 8 << 20
"""Records that are taken at a time: many of each chunk, as each costs as much however few. But all
chunks that they are of have to be there first."""

_KEPT_PICKED: Final = 1 << 15
"""The same where they are."""

_SPACIOUS: Final = 4
"""Chunks are decoded ahead where so many times those of the records at hand are kept."""

_TEXT_BYTES: Final = 49
"""Of a Python text beside its characters."""

_Value = TypeVar("_Value")

RecordMaker = Callable[..., Iterator[dict[str, Any]]]
"""Of one column for each field: the rows as dicts, made as they are asked for."""

Kind: TypeAlias = "np.dtype[Any] | None"
"""Of a column: a dtype of numbers, or None for text."""

ALL_COLUMNS: Final = "*"
TYPED_ROWS: Final = 1000
"""Rows of the first file that tell what its columns hold, at most."""

_WHOLE: Final = np.dtype(np.int64)
_REAL: Final = np.dtype(np.float64)


@lru_cache(maxsize=64)
def record_maker(fields: tuple[str, ...]) -> RecordMaker:
    """A function of one column for each field that gives the rows as dicts.

    A dict display within one generator: a call for each row costs a sixth more, and
    `dict(zip(fields, values))` twice as much, which is most of what a record of a few small values
    costs.
    """
    indices = range(len(fields))
    keys = ", ".join(f"k{index}" for index in indices)
    columns = ", ".join(f"c{index}" for index in indices)
    values = "".join(f"v{index}, " for index in indices)
    items = ", ".join(f"k{index}: v{index}" for index in indices)
    # Nothing of the user's is in this text: the names of the fields are passed as values.
    make: RecordMaker = eval(  # noqa: S307
        f"lambda {keys}: lambda {columns}: ({{{items}}} for {values} in zip({columns}))"
    )(*fields)
    return make


def made_records(columns: Columns) -> Iterator[dict[str, Any]]:
    """Columns as records."""
    return record_maker(tuple(columns.arrays))(*columns.arrays.values())


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """Columns whose numbers of one type lie together, record by record.

    A record of ten numbers is in one place of memory then, and is taken as one. To take each of its
    columns by itself takes several times as long.

    Attributes:
        fields: Of all columns, in their order.
        blocks: The fields of one type, and their values: (n, number of fields).
        others: Text, and arrays that are values themselves: field → (n, …).
    """

    fields: tuple[str, ...]
    blocks: tuple[tuple[tuple[str, ...], NDArray[Any]], ...]
    others: dict[str, NDArray[Any]]

    @classmethod
    def apart(cls, arrays: Mapping[str, NDArray[Any]]) -> "Packed":
        """The same columns each by itself, without a copy."""
        return cls(tuple(arrays), (), dict(arrays))

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[Any]]) -> "Packed":
        """Copies numbers, and keeps what else there is."""
        by_type: dict[np.dtype[Any], list[str]] = {}
        others = {}
        for field, array in arrays.items():
            if array.ndim == 1 and array.dtype.kind in "biuf":
                by_type.setdefault(array.dtype, []).append(field)
            else:
                others[field] = array
        blocks = tuple(
            (tuple(fields), np.stack([arrays[field] for field in fields], axis=1))
            for fields in by_type.values()
        )
        return cls(tuple(arrays), blocks, others)

    def take(self, rows: NDArray[Any]) -> "Packed":
        """Some of the records in any order, in memory of their own."""
        # `take` copies whole rows, in a third of the time that an index does it.
        blocks = tuple([(fields, block.take(rows, axis=0)) for fields, block in self.blocks])
        others = {field: array[rows] for field, array in self.others.items()}
        return Packed(self.fields, blocks, others)

    @property
    def columns(self) -> dict[str, NDArray[Any]]:
        """Each by itself, as views."""
        views = {
            field: block[:, at] for fields, block in self.blocks for at, field in enumerate(fields)
        }
        return {
            field: views[field] if field in views else self.others[field] for field in self.fields
        }

    @property
    def form(self) -> list[tuple[tuple[str, ...], np.dtype[Any]]]:
        """Which fields are packed, and as what."""
        return [(fields, block.dtype) for fields, block in self.blocks]


def merged(parts: Sequence[tuple[NDArray[np.intp], Packed]]) -> dict[str, NDArray[Any]]:
    """Records that were taken from several places, each at its place among all."""
    first = parts[0][1]
    num_rows = sum(len(places) for places, _ in parts)
    if any(packed.form != first.form for _, packed in parts):
        columns = [(places, packed.columns) for places, packed in parts]
        return {
            field: placed([(places, each[field]) for places, each in columns], num_rows)
            for field in first.fields
        }
    # NumPy puts rows where they belong in three times as long as it takes them from there.
    back = np.empty(num_rows, np.intp)
    back[np.concatenate([places for places, _ in parts])] = np.arange(num_rows)
    found: dict[str, NDArray[Any]] = {}
    for number, (fields, _) in enumerate(first.blocks):
        together = np.concatenate([packed.blocks[number][1] for _, packed in parts])
        # Each column is one run of memory then, as who uses it expects.
        found |= zip(fields, np.ascontiguousarray(together.take(back, axis=0).T), strict=True)
    for field in first.others:
        found[field] = placed([(places, each.others[field]) for places, each in parts], num_rows)
    return {field: found[field] for field in first.fields}


class ColumnPicking:
    """Reads picks of columns out of chunks, which are decoded once and kept as columns."""

    def __init__(self, read: Callable[[ReadTask], Iterator[Columns]], max_bytes: int) -> None:
        """Begin with no chunks.

        Args:
            read: Gives the records of a range, and names the one at fault where it fails.
            max_bytes: Of the chunks that are kept.
        """
        self._read = read
        self._chunks = RecentlyUsed[_Chunk](max_bytes, _size_bytes)

    def read(self, picks: Picks) -> Iterator[Columns]:
        """The records in their order."""
        if is_in_long_runs(picks):
            yield from read_runs(self._read, picks)
            return
        start, count = 0, _FIRST_PICKED
        while start < len(picks):
            part = picks.part(start, start + count)
            num_good = self._num_good(part)
            if num_good == 0:
                # By itself: what failed may have been a moment's, and if not it is named.
                part = part.part(0, 1)
                yield from read_runs(self._read, part)
            else:
                part = part.part(0, num_good)
                block, row_bytes = self._picked(part)
                rest = picks.part(start + len(part), len(picks))
                yield from self._given(block, part, rest)
                count = self._num_at_once(rest, row_bytes)
            start += len(part)

    def _num_at_once(self, rest: Picks, row_bytes: int) -> int:
        """How many of the rest are taken next."""
        most = max(1, _PICKED_BYTES // max(1, row_bytes))
        are_kept = not self._missing(rest.part(0, _KEPT_PICKED))
        return min(_KEPT_PICKED if are_kept else _PICKED, most)

    def _given(self, block: Columns, picks: Picks, rest: Picks) -> Iterator[Columns]:
        """A block in parts, between which chunks of the rest are decoded.

        All chunks of a window are wanted by the first records of it. Who asks for a minibatch at a
        time would wait for all of them then, and before have had nobody read.
        """
        if not self._chunks.is_spacious(_SPACIOUS * len(_shards_of(picks))):
            yield block
            return
        next_one, later = rest.part(0, _PICKED), rest.part(_PICKED, 2 * _PICKED)
        missing = self._missing(next_one)
        further = [each for each in self._missing(later) if each not in missing]
        ahead = missing + further[: -(-len(further) // 2)]
        num_parts = -(-len(block) // _FIRST_PICKED) if ahead else 1
        size, loaded = -(-len(block) // num_parts), 0
        for number in range(num_parts):
            yield block.part(number * size, (number + 1) * size)
            due = len(ahead) * (number + 1) // num_parts
            for shard in ahead[loaded:due]:
                self._chunk(shard)
            loaded = due

    def _missing(self, picks: Picks) -> list[Shard]:
        return [shard for shard in _shards_of(picks) if shard not in self._chunks]

    def _num_good(self, picks: Picks) -> int:
        """How many records come before the first one that could not be read."""
        firsts = [len(picks)]
        for shard, places, indices in by_shard(picks):
            chunk = self._chunk(shard)
            if chunk.is_bad is not None:
                firsts += places[chunk.is_bad[indices - shard.start]][:1].tolist()
        return min(firsts)

    def _picked(self, picks: Picks) -> tuple[Columns, int]:
        """Records in their order, and about how many bytes each has."""
        # Taken at once, so that a chunk which is not kept is not held either.
        parts = [
            (places, self._chunk(shard).packed.take(indices - shard.start))
            for shard, places, indices in by_shard(picks)
        ]
        arrays = merged(parts)
        row_bytes = sum(array[:1].nbytes for array in arrays.values())
        return Columns(arrays, len(picks)), row_bytes

    def _chunk(self, shard: Shard) -> "_Chunk":
        return self._chunks.get(shard, partial(self._read_chunk, shard))

    def _read_chunk(self, shard: Shard) -> "_Chunk":
        parts: list[Columns] = []
        good: list[NDArray[np.intp]] = []
        is_bad = np.zeros(shard.num_records, np.bool_)
        at = shard.start
        while at < shard.end:
            try:
                for block in self._read(ReadTask(shard, at, shard.end)):
                    parts += [block] if len(block) else []
                    good.append(np.arange(at, at + len(block)) - shard.start)
                    at += len(block)
            except DataError:
                # Told of the record that is at fault, when it is its turn.
                is_bad[at - shard.start] = True
                at += 1
        if not is_bad.any():
            return _Chunk(Packed.of(joined(parts).arrays))
        whole = joined(parts).arrays if parts else {}
        places = np.concatenate(good) if parts else np.empty(0, np.intp)
        arrays = {
            field: placed([(places, array)], shard.num_records) for field, array in whole.items()
        }
        return _Chunk(Packed.of(arrays), is_bad)


def _shards_of(picks: Picks) -> list[Shard]:
    """Of which any record is."""
    counts = np.bincount(picks.owners, minlength=len(picks.shards))
    return [picks.shards[owner] for owner in np.flatnonzero(counts).tolist()]


@dataclass(frozen=True, slots=True, eq=False)
class _Chunk:
    """The records of a shard; what stands where one is bad has no meaning."""

    packed: Packed
    is_bad: NDArray[np.bool_] | None = None


def _size_bytes(chunk: _Chunk) -> int:
    """About what a chunk takes, its text included."""
    total = 0
    for array in chunk.packed.columns.values():
        total += array.nbytes
        if array.dtype.hasobject:
            total += sum(len(text) for text in array if text is not None) + _TEXT_BYTES * len(array)
    return total


class RecentlyUsed(Generic[_Value]):
    """The values used last stay, up to `max_bytes` together.

    The newest value stays even when it alone is larger: the task at hand needs it. Safe to use from
    several threads; two that miss at once both load. `cachetools` refuses such a value, and makes
    room for one only when it has been loaded: it and what it replaces are in memory at once.
    """

    def __init__(self, max_bytes: int, size_of: Callable[[_Value], int]) -> None:
        self._max_bytes = max_bytes
        self._size_of = size_of
        self._lock = threading.Lock()
        self._values: OrderedDict[Hashable, _Value] = OrderedDict()
        self._total = 0
        self._has_dropped = False

    def __contains__(self, key: Hashable) -> bool:
        """Whether the value of a key is kept."""
        return key in self._values

    def is_spacious(self, count: int) -> bool:
        """Whether so many values are kept, as far as there have been as many."""
        return not self._has_dropped or len(self._values) >= count

    def get(self, key: Hashable, load: Callable[[], _Value]) -> _Value:
        """The value of a key, loaded where it is not kept."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
            newest = next(reversed(self._values.values()), None)
            # Of those before, so that they and the next one, likely as large, have room together.
            self._shrink(0 if newest is None else self._size_of(newest), least=0)
        # Or it would live on while the next one is loaded.
        del newest
        value = load()
        with self._lock:
            replaced = self._values.pop(key, None)
            self._total -= 0 if replaced is None else self._size_of(replaced)
            self._values[key] = value
            self._total += self._size_of(value)
            self._shrink(0, least=1)
        return value

    def _shrink(self, room_bytes: int, least: int) -> None:
        # Counted along: there may be thousands of them.
        while self._total + room_bytes > self._max_bytes and len(self._values) > least:
            self._has_dropped = True
            self._total -= self._size_of(self._values.popitem(last=False)[1])


@dataclass(frozen=True, slots=True)
class BadFieldError(Exception):
    """A field is no number of its column's type.

    Attributes:
        row: Which of the rows.
        name: Of the column.
        text: What stands there.
        kind: What should.
    """

    row: int
    name: str
    text: str
    kind: np.dtype[Any]

    def __str__(self) -> str:
        what = f"holds {self.text!r}, which is no {self.kind}" if self.text.strip() else "is empty"
        kind = "float64" if _can_be(_real, self.text) else "str"
        return (
            f"column {self.name!r} {what}, as its other fields are: mend the row, or say what the "
            f"column holds with --data_reader_params 'types={{{self.name}: {kind}}}'"
        )


def inferred(names: Sequence[str], rows: Sequence[Sequence[str]]) -> dict[str, Kind]:
    """What columns hold: whole numbers, numbers some of which may be missing, or text.

    Whole numbers that begin with a zero, as codes do, are text.
    """
    # A row with another number of fields is an error of who reads it.
    whole = [row for row in rows if len(row) == len(names)]
    return {name: _inferred([row[at] for row in whole]) for at, name in enumerate(names)}


def chosen(found: Mapping[str, Kind], declared: Mapping[str, Kind], where: str) -> dict[str, Kind]:
    """The types that somebody has declared, and the inferred ones of the other columns.

    Raises:
        DataError: A column is declared that is not there.
    """
    for name in declared:
        if name not in found and name != ALL_COLUMNS:
            near = nearest(name, found)
            raise DataError(
                f"{where} has no column {name!r}, which --data_reader_params types names: "
                f"{f'did you mean {near}? ' if near else ''}(it has {', '.join(found)})"
            )
    return {
        name: declared.get(name, declared.get(ALL_COLUMNS, kind)) for name, kind in found.items()
    }


def typed_columns(kinds: Mapping[str, Kind], rows: Sequence[Sequence[str]]) -> Columns:
    """Rows of as many fields as there are columns, as columns.

    Raises:
        BadFieldError: One is none of its column's type; the first such row.
    """
    arrays: dict[str, NDArray[Any]] = {}
    bad: list[BadFieldError] = []
    columns = list(zip(*rows, strict=True)) or [()] * len(kinds)
    for (name, kind), fields in zip(kinds.items(), columns, strict=True):
        if kind is None:
            arrays[name] = texts(fields)
            continue
        converted = _converted(fields, kind)
        if converted is None:
            row = next(at for at, field in enumerate(fields) if not _is_of(kind, field))
            bad.append(BadFieldError(row, name, fields[row], kind))
        else:
            arrays[name] = converted
    if bad:
        raise min(bad, key=lambda error: error.row)
    return Columns(arrays, len(rows))


def narrowed(numbers: NDArray[Any], kind: np.dtype[Any]) -> NDArray[Any]:
    """A copy in a type that may be narrower: what is too large for it is infinite."""
    if numbers.dtype == kind:
        return numbers.copy()
    with np.errstate(over="ignore"):
        return numbers.astype(kind)


def _inferred(fields: Sequence[str]) -> Kind:
    told = [field for field in fields if field.strip()]
    if not told or not all(_can_be(_real, field) for field in told):
        return None
    if not all(_is_of(_WHOLE, field) for field in told):
        return _REAL
    if any(_is_code(field) for field in told):
        return None
    return _WHOLE if len(told) == len(fields) else _REAL


def _is_code(field: str) -> bool:
    digits = field.strip().lstrip("+-")
    return len(digits) > 1 and digits.startswith("0")


def _converted(fields: Sequence[str], kind: np.dtype[Any]) -> NDArray[Any] | None:
    """The numbers of a column; None where one is not of its type."""
    if any("_" in field for field in fields):
        return None
    try:
        if kind.kind == "f":
            return narrowed(np.array(list(map(_real, fields)), _REAL), kind)
        numbers = list(map(int, fields))
    except ValueError:
        return None
    limits = np.iinfo(kind)
    if numbers and not limits.min <= min(numbers) <= max(numbers) <= limits.max:
        return None
    return np.array(numbers, kind)


def _real(field: str) -> float:
    try:
        return float(field)
    except ValueError:
        # Missing.
        if not field.strip():
            return float("nan")
        raise


def _is_of(kind: np.dtype[Any], field: str) -> bool:
    return _converted([field], kind) is not None


def _can_be(number: Callable[[str], float], field: str) -> bool:
    try:
        number(field)
    except ValueError:
        return False
    return "_" not in field
