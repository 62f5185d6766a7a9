"""What every source of records can do, the packages that some need, and records as minibatches
take them.
"""

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from elastic.errors import DataError
from elastic.policy.tasks.records import Columns, Picks, Shard, Task
from elastic.spec.values import pip_install


@dataclass(frozen=True, slots=True)
class ReadTask:
    """Records `[start, end)` of `shard`: the argument of a reader's `read_records`.

    `shard_name` is there for readers written for ElasticDL, which look at
    `task.shard_name`, `task.start` and `task.end`.
    """

    shard: Shard
    start: int
    end: int

    @property
    def shard_name(self) -> str:
        return self.shard.name


@dataclass(frozen=True, slots=True)
class Chunks:
    """A source as an epoch is made of it.

    Attributes:
        shards: Together every record once, in a stable order.
        mixed: The shards are chunks, to be shuffled so many at a time at least; None where each
            record can be read by itself.
        is_forward: Whether they should be read as they follow each other.
    """

    shards: Sequence[Shard]
    mixed: int | None = None
    is_forward: bool = False


class DataReader(Protocol):
    """A source of records that can be split and read in any order, by any process."""

    def create_shards(self) -> Sequence[Shard]:
        """List the shards that together hold every record once, in a stable order.

        Raises:
            DataError: The source is missing, unreadable, empty or malformed.
        """

    def create_chunks(self) -> Chunks:
        """The same records as they can be read in any order, in a stable one.

        Raises:
            DataError: As `create_shards`.
        """

    def read_picks(self, picks: Picks) -> Iterator[Any]:
        """Yield records of any shards in any order; as `read_records` but for that."""

    def read_columns(self, wanted: "ReadTask | Picks") -> Iterator[Columns] | None:
        """The same records as columns, in blocks of any size; raises the same, when asked for.

        Those before a record that cannot be read come first, and all blocks have the same fields.
        Arrays belong to the caller. None where a source has records alone.
        """

    def read_records(self, task: ReadTask) -> Iterator[Any]:
        """Yield the `task.end - task.start` records of the range, in order.

        What may fail, the look at the file included, is done when records are asked for: only then
        does an error fail the records instead of the worker.

        Raises:
            DataError: A record cannot be read; the message names shard and index.
        """


def read_task(reader: DataReader, task: Task, start: int, end: int) -> Iterator[Any]:
    """The records of `[start, end)` of a task's range, in order; raises what the reader raises."""
    picked = task.picked(start, end)
    if picked is None:
        return reader.read_records(ReadTask(task.shard, start, end))
    return reader.read_picks(picked)


def read_task_columns(
    reader: DataReader, task: Task, start: int, end: int
) -> Iterator[Columns] | None:
    """What `read_task` gives as blocks of columns; None where the source has records alone."""
    picked = task.picked(start, end)
    return reader.read_columns(ReadTask(task.shard, start, end) if picked is None else picked)


class FormatReader(Protocol):
    """How files of one format are split and read."""

    def create_shards(self, names: Sequence[str], records_per_task: int) -> list[Shard]:
        """Shards of the files, in their order."""

    def create_chunks(self, names: Sequence[str]) -> Chunks:
        """The same as chunks that can be read in any order."""

    def read_records(self, task: ReadTask) -> Iterator[Any]:
        """The records of a task, in order."""


@dataclass(frozen=True, slots=True, eq=False)
class RawRecords:
    """Records as they are stored, one after the other.

    Attributes:
        data: The bytes of all, or their text.
        begins: (n,) int64: where each one begins in `data`.
        ends: (n,) int64: one past its end.
    """

    data: bytes | str
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]


@runtime_checkable
class RawReader(Protocol):
    """A format whose records are runs of bytes or text, that are decoded many at a time.

    In any order, chunks are kept as they are stored and not as records: those take up to ten times
    the memory, and are out of the processor's cache when their turn comes.
    """

    def read_raw(self, task: ReadTask) -> RawRecords:
        """All records of a task.

        Raises:
            DataError: They cannot be read, or one of them is none; the message may name another.
        """

    def decode_raw(self, name: str, records: list[Any]) -> Sequence[Any]:
        """Decode records cut out of `RawRecords.data`, of files like `name`.

        Raises:
            DataError: One of them cannot be decoded; it does not say which.
        """


@runtime_checkable
class PickReader(Protocol):
    """A format that reads records in any order by itself."""

    def read_picks(self, picks: Picks) -> Iterator[Any]:
        """The records in their order."""


@runtime_checkable
class ColumnReader(Protocol):
    """A format that has its records as columns."""

    def read_columns(self, task: ReadTask) -> Iterator[Columns]:
        """The records of a task in order, in blocks."""

    def pick_columns(self, picks: Picks) -> Iterator[Columns]:
        """Records in any order, in blocks."""


@dataclass(frozen=True, slots=True)
class Extra:
    """What a format needs that is not installed with elastic.

    Attributes:
        name: The extra of this package, as `pip_install` takes it.
        modules: What it installs, as imported.
    """

    name: str
    modules: tuple[str, ...]


def check_extra(extra: Extra, what: str) -> None:
    """Refuse to go on without the packages of an extra.

    Args:
        extra: What is needed.
        what: What is read with it, in the plural.

    Raises:
        DataError: One is not installed.
    """
    missing = [module for module in extra.modules if importlib.util.find_spec(module) is None]
    if missing:
        raise DataError(
            f"{what} are read with the package {missing[0]}, which is not installed here: "
            + how_to_get(extra)
        )


def how_to_get(extra: Extra) -> str:
    """What to do where an extra is missing, here and in a cluster."""
    return f"{pip_install(extra.name)}; in a cluster, the model_zoo's requirements.txt names it"


# Records as columns: what fields they have, and arrays of values, of which none becomes another.
#
# NumPy makes doubles of whole numbers beside floating-point ones, and of signed ones of 64 bits
# beside unsigned ones. Beyond 2**53 doubles lack most whole numbers: hashes and ids would change.


VALUE_FIELD: Final = "value"
"""What the one field of a record is called that is no dict and no tuple."""

TEXT_FIELD: Final = "text"
"""The same of a record that is text."""

Placed: TypeAlias = tuple[NDArray[np.intp], NDArray[Any]]
"""Some records' places among all, and their values of one field."""

_EXACT: Final = 2**53
"""Whole numbers beyond it are not all of double precision."""

_ALL_EXACT: Final = 2.0**53
"""Doubles have every whole number below."""
_OF_WHOLE_NUMBERS: Final = "dgDG"
"""Doubles and what is wider: NumPy puts whole numbers of more bits than a narrower type has only
there."""


def fields_of(record: Any) -> Mapping[str, Any]:
    """A record as a dict: tuples have the fields `c0`, `c1`, …, everything else has one."""
    if isinstance(record, Mapping):
        return record
    if isinstance(record, tuple):
        return dict(zip(unnamed(len(record)), record, strict=True))
    return {TEXT_FIELD if isinstance(record, str) else VALUE_FIELD: record}


def unnamed(count: int) -> tuple[str, ...]:
    """What fields are called to which nobody gave a name."""
    return tuple(f"c{index}" for index in range(count))


def objects(values: Sequence[Any]) -> NDArray[Any]:
    """An array of one dimension that holds values as they are, be they arrays themselves."""
    array = np.empty(len(values), object)
    for index, value in enumerate(values):
        array[index] = value
    return array


def texts(values: Sequence[str] | Sequence[bytes]) -> NDArray[Any]:
    """The same of text or bytes alone, which NumPy takes all at once."""
    array = np.empty(len(values), object)
    array[:] = values
    return array


def columns_of(records: Sequence[Any]) -> Columns:
    """Records as columns, where their source has none: a minibatch, of the user's reader say.

    Raises:
        DataError: A record has other fields than the first one, or a number would be rounded.
    """
    rows = [fields_of(record) for record in records]
    names = list(rows[0]) if rows else []
    for row in rows:
        if row.keys() != rows[0].keys():
            raise DataError(
                f"a record has the fields {', '.join(map(str, row))}, but the first one of its "
                f"minibatch has {', '.join(map(str, names))}: columns need all of them in each "
                "record"
            )
    arrays = {name: _column(name, [row[name] for row in rows]) for name in names}
    return Columns(arrays, len(rows))


def _column(name: str, values: list[Any]) -> NDArray[Any]:
    """The values of a field: an array of numbers, or of Python objects where they are none."""
    if any(type(value) in (str, bytes) for value in values):
        # NumPy's own text has a fixed length, and bytes lose zeros at their end.
        return objects(values)
    try:
        array = np.asarray(values)
    except ValueError:
        # Of different shapes.
        return objects([np.asarray(value) for value in values])
    if array.dtype.kind == "f" and array.ndim == 1:
        for value in values:
            if isinstance(value, int) and abs(value) > _EXACT:
                raise DataError(
                    f"field {name!r} holds {value} and floating-point numbers, which would round "
                    "it: give the field one type in all records"
                )
    return array


def joined(parts: Sequence[Columns]) -> Columns:
    """Records that follow each other; the part itself where it is the only one."""
    if len(parts) == 1:
        return parts[0]
    arrays = {
        name: _concatenated([part.arrays[name] for part in parts]) for name in parts[0].arrays
    }
    return Columns(arrays, sum(map(len, parts)))


def placed(parts: Sequence[Placed], num_rows: int) -> NDArray[Any]:
    """Values of one field that came from several places, each where it belongs."""
    _, first = parts[0]
    if _are_alike([values for _, values in parts]):
        dtype = np.result_type(*(values.dtype for _, values in parts))
        together = np.empty((num_rows, *first.shape[1:]), dtype)
    else:
        together = np.empty(num_rows, object)
        parts = [(places, objects(list(values))) for places, values in parts]
    for places, values in parts:
        together[places] = values
    return together


def _concatenated(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    if _are_alike(arrays):
        return np.concatenate(arrays)
    return np.concatenate([objects(list(array)) for array in arrays])


def _are_alike(arrays: Sequence[NDArray[Any]]) -> bool:
    """Whether all have rows of one shape; lists of one length are arrays in one file of several."""
    forms = {(array.shape[1:], array.dtype.hasobject) for array in arrays}
    return len(forms) == 1


class RoundedError(ValueError):
    """A whole number would become another one.

    Attributes:
        index: Of the array that holds it.
        number: What it is.
    """

    def __init__(self, index: int, number: int) -> None:
        super().__init__(f"{number} is no number of double precision")
        self.index = index
        self.number = number


def array_of(value: Any) -> NDArray[Any]:
    """A value as an array; where it is a list, its numbers stay what they are.

    Raises:
        RoundedError: No type has all numbers of a list.
        ValueError: The lists in a list differ in length.
    """
    return unrounded([value], [np.asarray(value)])[0]


def unrounded(values: Sequence[Any], arrays: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """The arrays that NumPy has made of values, or others where it has rounded items of a list.

    Raises:
        RoundedError: No type has all numbers of a list.
    """
    unsure = [
        index
        for index, (value, array) in enumerate(zip(values, arrays, strict=True))
        if isinstance(value, (list, tuple)) and array.dtype.char in _OF_WHOLE_NUMBERS
    ]
    result = list(arrays)
    large = [unsure[place] for place in _with_large([arrays[index] for index in unsure])]
    for index in large:
        result[index] = _made_again(index, values[index], arrays[index])
    if any(result[index].dtype.kind in "iu" for index in large):
        # Signed ones beside unsigned ones, which may be so in the other lists of the field too.
        for index in set(unsure).difference(large):
            result[index] = _made_again(index, values[index], arrays[index])
    return result


def _with_large(arrays: Sequence[NDArray[Any]]) -> list[int]:
    """Which of these hold a number that may have been another, whole one."""
    if not arrays:
        return []
    # All at once: to look at each takes three times as long as to make it.
    sizes = np.abs(np.concatenate([array.reshape(-1) for array in arrays]).real)
    places = np.flatnonzero((sizes >= _ALL_EXACT) & (sizes < np.inf))
    ends = np.cumsum([array.size for array in arrays])
    return [int(index) for index in np.unique(np.searchsorted(ends, places, side="right"))]


def _made_again(index: int, value: Any, array: NDArray[Any]) -> NDArray[Any]:
    items = np.asarray(value, object).flat
    try:
        kind = common_type([np.asarray(item) for item in items] or [array])
    except RoundedError as error:
        raise RoundedError(index, error.number) from error
    # Nothing was rounded where floating-point numbers are right, and the type is that of NumPy
    # then, as in lists without large numbers.
    return array if kind.kind in "fc" else np.asarray(value, kind)


def common_type(arrays: Sequence[NDArray[Any]]) -> np.dtype[Any]:
    """The type in which the values of all arrays, one at least, stay what they are.

    Raises:
        RoundedError: There is none for these numbers.
        TypeError: There is none for what they are, such as numbers and text.
    """
    kinds = dict.fromkeys(array.dtype for array in arrays)
    common = np.result_type(*kinds)
    if common.kind in "US" and any(kind.kind != common.kind for kind in kinds):
        raise TypeError("NumPy would make text of numbers")
    if len(kinds) == 1 or common.kind not in "fc":
        return common
    if all(kind.kind in "biu" for kind in kinds):
        return _whole_type(arrays)
    for index, array in enumerate(arrays):
        if array.dtype.kind in "iu":
            changed = array[_is_rounded(array, common)]
            if changed.size:
                raise RoundedError(index, int(changed.flat[0]))
    return common


def _whole_type(arrays: Sequence[NDArray[Any]]) -> np.dtype[Any]:
    """Of numbers that are whole, for which 64 bits may do with a sign or without one."""
    filled = [index for index, array in enumerate(arrays) if array.size]
    lowest = min((int(arrays[index].min()) for index in filled), default=0)
    highest = {index: int(arrays[index].max()) for index in filled}
    if lowest >= 0:
        return np.dtype(np.uint64)
    for index, number in highest.items():
        if number > np.iinfo(np.int64).max:
            raise RoundedError(index, number)
    return np.dtype(np.int64)


def _is_rounded(array: NDArray[Any], kind: np.dtype[Any]) -> NDArray[np.bool_]:
    rounded = array.astype(kind).real
    # What lies beyond the type of the whole numbers becomes an arbitrary one of them.
    is_inside = rounded < 2.0 ** (8 * array.dtype.itemsize - (array.dtype.kind == "i"))
    back = np.where(is_inside, rounded, 0).astype(array.dtype)
    result: NDArray[np.bool_] = ~is_inside | (back != array)
    return result


# The records of a task as minibatches take them: a list of objects, or columns.


class Taking(Protocol):
    """Records that are read as they are taken, in their order."""

    def take(self, count: int) -> Sequence[Any] | Columns:
        """The next so many, or as many as there are; raises what their reader raises."""

    def close(self) -> None:
        """Close what is open for reading: a generator of a reader closes its file."""


def open_task(reader: DataReader, task: Task, start: int, end: int, *, by_columns: bool) -> Taking:
    """The records of `[start, end)` of a task's range, in order.

    Args:
        reader: Of their source.
        task: Whose records they are.
        start: The first one.
        end: One past the last one.
        by_columns: What they are taken as; records of a source without columns are made such.
    """
    blocks = read_task_columns(reader, task, start, end) if by_columns else None
    if blocks is not None:
        return _Blocks(blocks)
    return _Records(iter(read_task(reader, task, start, end)), by_columns)


def read_whole(reader: DataReader, task: Task, *, by_columns: bool) -> Sequence[Any] | Columns:
    """All records of a task; raises what their reader raises, also at their end."""
    begin, end = task.records.start, task.records.end
    with closing(open_task(reader, task, begin, end, by_columns=by_columns)) as taking:
        records = taking.take(end - begin)
        # It may have seen that the records were changed.
        taking.take(1)
    return records


def repeated(records: Sequence[Any] | Columns, times: int) -> Sequence[Any] | Columns:
    """All records so many times, one after the other."""
    if isinstance(records, Columns):
        return joined([records] * times)
    return list(records) * times


class _Records:
    """Objects, one after the other."""

    def __init__(self, records: Iterator[Any], by_columns: bool) -> None:
        self._records = records
        self._by_columns = by_columns

    def take(self, count: int) -> Sequence[Any] | Columns:
        records = list(islice(self._records, count))
        return columns_of(records) if self._by_columns else records

    def close(self) -> None:
        # Plain iterators have nothing to close. And what is behind other iterators ends here.
        records, self._records = self._records, iter(())
        close = getattr(records, "close", None)
        if close is not None:
            close()


class _Blocks:
    """Columns, which are cut where minibatches end and joined where blocks do."""

    def __init__(self, blocks: Iterator[Columns]) -> None:
        self._blocks = blocks
        self._rest = Columns({}, 0)

    def take(self, count: int) -> Columns:
        parts: list[Columns] = []
        while count:
            if not len(self._rest):
                block = next(self._blocks, None)
                if block is None:
                    break
                self._rest = block
            part = self._rest.part(0, count)
            self._rest = self._rest.part(len(part), len(self._rest))
            count -= len(part)
            # An empty block says nothing of what fields there are.
            parts += [part] if len(part) else []
        return joined(parts) if parts else Columns({}, 0)

    def close(self) -> None:
        blocks, self._blocks, self._rest = self._blocks, iter(()), Columns({}, 0)
        close = getattr(blocks, "close", None)
        if close is not None:
            close()
