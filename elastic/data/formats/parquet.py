"""Parquet files: a record is one row, as a dict of its columns.

What a column gives depends on its type only, never on its values, so that all files of one schema
give records of one form.
"""

import io
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, chain, pairwise
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from elastic.data.base import Chunks, Placed, ReadTask, objects, placed, texts
from elastic.data.formats.columns import Packed, RecentlyUsed, made_records, merged
from elastic.data.formats.registry import ReaderOptions
from elastic.data.picking import LEAST_MIXED, by_shard, is_in_long_runs, is_in_runs, read_runs
from elastic.data.storage import OpenFiles, SourceFile
from elastic.errors import DataError
from elastic.policy.tasks.records import Columns, Picks, Shard
from elastic.spec.values import nearest

Rows: TypeAlias = NDArray[Any]
"""Of numbers, or of Python's objects: text, bytes, and arrays that differ in length."""


@dataclass(frozen=True, slots=True)
class ColumnForm:
    """What a column gives to a record.

    Attributes:
        dtype: Of NumPy, or None for text and bytes.
        shape: Of the array that each record has; empty for a scalar.
        is_ragged: Whether each record has its own number of arrays of `shape`.
        is_text: Without a dtype: `str`, else `bytes`.
        unit: What whole numbers that are times count, such as `timestamp[ms]`.
    """

    dtype: np.dtype[Any] | None = None
    shape: tuple[int, ...] = ()
    is_ragged: bool = False
    is_text: bool = False
    unit: str = ""

    def is_like(self, other: "ColumnForm") -> bool:
        """Whether records have the same, of whatever length where one file leaves that open.

        Arrays of which a file happens to hold equal lengths only may be written as fixed ones.
        """
        if self.is_ragged == other.is_ragged:
            return self == other
        ragged, fixed = (self, other) if self.is_ragged else (other, self)
        return (
            fixed.shape[1:] == ragged.shape
            and replace(fixed, shape=ragged.shape, is_ragged=True) == ragged
        )

    def __str__(self) -> str:
        if self.dtype is None:
            return "str" if self.is_text else "bytes"
        sizes = ("*" if self.is_ragged else None, *self.shape)
        shape = ", ".join(str(size) for size in sizes if size is not None)
        unit = f" of {self.unit}" if self.unit else ""
        return f"{self.dtype}{f' ({shape})' if shape else ''}{unit}"


class Column(Protocol):
    """One column of a row group, decoded."""

    nbytes: int
    nulls: NDArray[np.intp]
    """The rows without a value."""

    def rows(self, start: int, end: int) -> Rows:
        """The values of some rows, in memory of their own."""

    def take(self, rows: NDArray[np.intp]) -> Rows:
        """The values of some rows in any order, in memory of their own."""


class Arrays:
    """Rows of one NumPy array."""

    def __init__(self, values: NDArray[Any], nulls: NDArray[np.intp]) -> None:
        self.values = values
        self.nulls = nulls
        self.nbytes = values.nbytes

    def rows(self, start: int, end: int) -> Rows:
        return self.values[start:end].copy()

    def take(self, rows: NDArray[np.intp]) -> Rows:
        return self.values[rows]


class _RaggedArrays:
    """Rows of different lengths, one after the other in one array."""

    def __init__(
        self, values: NDArray[Any], offsets: NDArray[Any], nulls: NDArray[np.intp]
    ) -> None:
        self._values = values
        self._offsets = offsets
        self.nulls = nulls
        self.nbytes = values.nbytes + offsets.nbytes

    def rows(self, start: int, end: int) -> Rows:
        offsets = self._offsets[start : end + 1]
        values = self._values[offsets[0] : offsets[-1]].copy()
        bounds = (offsets - offsets[0]).tolist()
        return objects([values[low:high] for low, high in pairwise(bounds)])

    def take(self, rows: NDArray[np.intp]) -> Rows:
        lows, highs = self._offsets[rows].tolist(), self._offsets[rows + 1].tolist()
        bounds = zip(lows, highs, strict=True)
        return objects([self._values[low:high].copy() for low, high in bounds])


class _Objects:
    """Text or bytes; kept as Arrow keeps them, which takes a third of the memory of objects."""

    def __init__(self, array: Any, nulls: NDArray[np.intp]) -> None:
        self._array = array
        self.nulls = nulls
        self.nbytes = int(array.nbytes)

    def rows(self, start: int, end: int) -> Rows:
        return texts(self._array.slice(start, end - start).to_pylist())

    def take(self, rows: NDArray[np.intp]) -> Rows:
        return texts(self._array.take(pa.array(rows)).to_pylist())


def form_of(name: str, field: Any) -> ColumnForm:
    """What a field of a schema gives.

    Args:
        name: The file, for the error.
        field: A `pyarrow.Field`.

    Raises:
        DataError: Columns of this type are not read.
    """
    form = _form(field.type)
    if form is None:
        raise DataError(
            f"{name}: column {field.name!r} is of type {field.type}, which is no text, bytes, "
            "number or array of numbers: convert it, or name the other columns with "
            "--data_reader_params columns=[...]"
        )
    return form


def is_read(kind: Any) -> bool:
    """Whether columns of a `pyarrow.DataType` are read."""
    return _form(kind) is not None


def decode(column: Any, form: ColumnForm) -> Column:
    """Make a column of a row group ready for reading by rows.

    Args:
        column: A `pyarrow.ChunkedArray` of a type that `form_of` takes.
        form: What it gives.
    """
    array = _plain(column)
    if form.dtype is None:
        return _Objects(array, _null_places(array))
    if not form.is_ragged:
        return Arrays(*_numbers(array, form))
    offsets = array.offsets.to_numpy()
    values, missing = _numbers(array.values, form)
    missing = missing[(missing >= offsets[0]) & (missing < offsets[-1])]
    owners = np.searchsorted(offsets, missing, side="right") - 1
    return _RaggedArrays(values, offsets, np.union1d(_null_places(array), owners))


def _form(kind: Any) -> ColumnForm | None:
    if isinstance(kind, pa.FixedShapeTensorType):
        dtype = _dtype(kind.value_type)
        in_order = kind.permutation is None or list(kind.permutation) == sorted(kind.permutation)
        return ColumnForm(dtype, tuple(kind.shape)) if dtype and in_order else None
    if isinstance(kind, pa.BaseExtensionType):
        return _form(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return _form(kind.value_type)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return ColumnForm(is_text=True)
    if (
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    ):
        return ColumnForm()
    is_ragged = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    kind = kind.value_type if is_ragged else kind
    shape = []
    while pa.types.is_fixed_size_list(kind) and kind.list_size:
        shape.append(kind.list_size)
        kind = kind.value_type
    dtype = _dtype(kind)
    unit = str(kind) if pa.types.is_temporal(kind) else ""
    return None if dtype is None else ColumnForm(dtype, tuple(shape), is_ragged, unit=unit)


def _dtype(kind: Any) -> np.dtype[Any] | None:
    """The dtype of numbers and of times, which are counts of their unit; None for all else."""
    if pa.types.is_temporal(kind):
        has_value = kind.bit_width in (32, 64) and not pa.types.is_interval(kind)
        return np.dtype(f"int{kind.bit_width}") if has_value else None
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        dtype: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
        return dtype
    return None


def _plain(column: Any) -> Any:
    """One array without dictionary or extension type."""
    kind = column.type
    if column.num_chunks != 1 and (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        # Several chunks are there because together they are too large for 32-bit offsets.
        column = column.cast(pa.large_string() if pa.types.is_string(kind) else pa.large_binary())
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    while isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _numbers(array: Any, form: ColumnForm) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """The values, and the rows that lack one.

    A number that is missing is NaN among floating-point numbers, and has no value among others.
    """
    assert form.dtype is not None, "text and bytes are kept as they are"
    rows, size = len(array), 1
    missing: list[NDArray[np.intp]] = []
    while pa.types.is_fixed_size_list(array.type):
        missing.append(_null_places(array) // size)
        width = array.type.list_size
        array = array.values.slice(array.offset * width, len(array) * width)
        size *= width
    if pa.types.is_temporal(array.type):
        array = array.view(pa.from_numpy_dtype(form.dtype))
    if form.dtype.kind != "f" and array.null_count:
        missing.append(_null_places(array) // size)
        array = array.fill_null(pa.scalar(0).cast(array.type))
    values = array.to_numpy(zero_copy_only=False).reshape(rows, *form.shape)
    return values, np.unique(np.concatenate(missing)) if missing else np.empty(0, np.intp)


def _null_places(array: Any) -> NDArray[np.intp]:
    if not array.null_count:
        return np.empty(0, np.intp)
    return np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))


_BLOCK_BYTES: Final = 1 << 20
"""Rows copied at a time: so many that what is done once for all costs little, and so few that the
copy is still in the cache when they are used."""

_FIRST_PICKED: Final = 256
_PICKED_BYTES: Final = 8 << 20
"""Rows taken at a time where they are wanted in any order: many of each row group, since to take
some costs as much however few they are."""

_MAX_IDLE_FILES: Final = 4
"""More than threads read at once; each keeps its file open."""

_PACKED_BYTES: Final = 64 << 20
"""Of the numbers of a row group that are packed, at most: they are in memory twice meanwhile."""

_MAX_LAYOUTS_BYTES: Final = 64 << 20
"""Footers that a process keeps parsed."""

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """A row group, decoded.

    Attributes:
        columns: By field.
        packed: Those that hold a number for each record; each by itself where these are very many.
    """

    columns: dict[str, Column]
    packed: Packed

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self.columns.values())


@dataclass(frozen=True, slots=True)
class FileLayout:
    """What the footer of a file tells.

    Attributes:
        forms: What each column that is read gives, in the order of the records' fields.
        group_starts: The first record of each row group, and the number of all records.
        footer: A `pyarrow.parquet.FileMetaData`, so that it need not be parsed again.
    """

    forms: dict[str, ColumnForm]
    group_starts: tuple[int, ...]
    footer: Any

    @property
    def num_records(self) -> int:
        return self.group_starts[-1]


class _Stream(io.RawIOBase):
    """A source file as Arrow reads it: by position, with the errors of the file."""

    def __init__(self, file: SourceFile) -> None:
        super().__init__()
        self._file = file
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._file.size}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, size: int = -1) -> bytes:
        data = self._file.read_at(self._position, self._file.size if size < 0 else size)
        self._position += len(data)
        return data


class _ArrowFiles:
    """Files opened by Arrow, each of which only one thread may use at a time.

    To open one for each row group costs as much as to decode fifty records of 12 KB.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[tuple[SourceFile, Any]] = []

    @contextmanager
    def use(self, file: SourceFile, footer: Any) -> Iterator[Any]:
        """A `pyarrow.parquet.ParquetFile` for the calling thread alone."""
        with self._lock:
            # By identity: a file that was opened again may be another one.
            at = next((i for i, (known, _) in enumerate(self._idle) if known is file), None)
            opened = None if at is None else self._idle.pop(at)[1]
        opened = opened or _open(file, footer)
        yield opened
        # After an error it is opened anew.
        with self._lock:
            self._idle = [*self._idle, (file, opened)][-_MAX_IDLE_FILES:]


class ParquetReader:
    """Rows of the chosen columns as dict name → value, decoded by row groups.

    Arrays belong to the caller: they are in memory of their own and may be changed.
    """

    def __init__(self, files: OpenFiles, options: ReaderOptions) -> None:
        self._files = files
        self._chosen = options.columns
        self._opened = _ArrowFiles()
        self._groups = RecentlyUsed[Group](options.cache_mb << 20, lambda group: group.nbytes)
        self._layouts = RecentlyUsed[FileLayout](
            _MAX_LAYOUTS_BYTES, lambda layout: int(layout.footer.serialized_size)
        )

    def create_shards(self, names: Sequence[str], records_per_task: int) -> list[Shard]:  # noqa: ARG002 (rows are found without scanning, so any range is a shard)
        shards: list[Shard] = []
        first = self._layout_of(self._files.get(names[0])).forms
        for name in names:
            layout = self._layout_of(self._files.get(name))
            _check_alike(names[0], first, name, layout.forms)
            if layout.num_records:
                shards.append(Shard(name, 0, layout.num_records))
        return shards

    def create_chunks(self, names: Sequence[str]) -> Chunks:
        self.create_shards(names, 1)
        groups = [
            Shard(name, start, end)
            for name in names
            for start, end in pairwise(self._layout_of(self._files.get(name)).group_starts)
            if end > start
        ]
        return Chunks(groups, LEAST_MIXED)

    def read_records(self, task: ReadTask) -> Iterator[dict[str, Any]]:
        # Chained in C: a generator between a record and who wants it costs as much as the record.
        return chain.from_iterable(map(made_records, self.read_columns(task)))

    def read_columns(self, task: ReadTask) -> Iterator[Columns]:
        """The records, some at a time; the file is looked at when the first are asked for."""
        file = self._files.get(task.shard.name)
        layout = self._layout_of(file)
        if task.end > layout.num_records:
            raise DataError(
                f"{file.name} has {layout.num_records} records, but the task wants records "
                f"[{task.start}, {task.end}): the file is not the one that was counted; "
                "restore it and start the job again"
            )
        for group, (begin, end) in enumerate(pairwise(layout.group_starts)):
            start, stop = max(begin, task.start), min(end, task.end)
            if start < stop:
                # Under no name of its own: it would live on while the next one is decoded, which
                # goes faster into the memory that this one had.
                yield from _rows(
                    file.name,
                    self._groups.get(
                        (file.name, group), partial(self._read_group, file, layout, group)
                    ),
                    range(begin, end),
                    start - begin,
                    stop - begin,
                )

    def read_picks(self, picks: Picks) -> Iterator[dict[str, Any]]:
        """Rows in any order: some at a time, those of each row group together."""
        if is_in_runs(picks):
            return read_runs(self.read_records, picks)
        # Each record is made when it is asked for, and is in the cache then.
        return chain.from_iterable(map(made_records, self._picked_blocks(picks)))

    def pick_columns(self, picks: Picks) -> Iterator[Columns]:
        """The same as columns."""
        if is_in_long_runs(picks):
            return read_runs(self.read_columns, picks)
        return self._picked_blocks(picks)

    def _picked_blocks(self, picks: Picks) -> Iterator[Columns]:
        start, count = 0, _FIRST_PICKED
        while start < len(picks):
            part = picks.part(start, start + count)
            start += count
            try:
                block, size_bytes = self._picked(part)
            except (DataError, UnicodeDecodeError):
                # One by one, so that those before the one at fault come, and it is named.
                yield from read_runs(self.read_columns, part)
                continue
            yield block
            count = max(1, _PICKED_BYTES // max(1, size_bytes // len(part)))

    def _picked(self, picks: Picks) -> tuple[Columns, int]:
        """Records in their order, and about how many bytes they have."""
        others: dict[str, list[Placed]] = {}
        numbers: list[tuple[NDArray[np.intp], Packed]] = []
        size_bytes = 0
        for shard, places, indices in by_shard(picks):
            file = self._files.get(shard.name)
            layout = self._layout_of(file)
            starts = np.asarray(layout.group_starts)
            groups = np.searchsorted(starts, indices, side="right") - 1
            for group in np.flatnonzero(np.bincount(groups)).tolist():
                chosen = groups == group
                decoded = self._groups.get(
                    (file.name, group), partial(self._read_group, file, layout, group)
                )
                rows, at = indices[chosen] - starts[group], places[chosen]
                for field, column in decoded.columns.items():
                    _check_values(field, column, rows)
                    if field not in decoded.packed.fields:
                        others.setdefault(field, []).append((at, column.take(rows)))
                numbers.append((at, decoded.packed.take(rows)))
                num_rows = int(starts[group + 1] - starts[group])
                size_bytes += len(rows) * decoded.nbytes // num_rows
        arrays = merged(numbers)
        arrays |= {field: placed(parts, len(picks)) for field, parts in others.items()}
        in_order = {field: arrays[field] for field in layout.forms}
        return Columns(in_order, len(picks)), size_bytes

    def forms(self, name: str) -> dict[str, ColumnForm]:
        """What the records of a file hold."""
        return self._layout_of(self._files.get(name)).forms

    def _read_group(self, file: SourceFile, layout: FileLayout, group: int) -> Group:
        begin, end = layout.group_starts[group : group + 2]
        where = f"{file.name}, row group {group} (records [{begin}, {end})) cannot be decoded"

        def read() -> Group:
            # One thread: the others belong to the step that is computed meanwhile.
            with self._opened.use(file, layout.footer) as opened:
                table = opened.read_row_group(group, columns=list(layout.forms), use_threads=False)
            if table.num_rows != end - begin:
                raise DataError(f"{where} (it has {table.num_rows} rows): write the file again")
            columns = {
                name: decode(table.column(name), layout.forms[name]) for name in layout.forms
            }
            return _grouped(columns)

        return _with_arrow(where, read)

    def _layout_of(self, file: SourceFile) -> FileLayout:
        return self._layouts.get(file.name, lambda: _read_layout(file, self._chosen))


def _read_layout(file: SourceFile, chosen: tuple[str, ...] | None) -> FileLayout:
    where = f"{file.name} is no readable Parquet file"
    found = _with_arrow(where, lambda: _open(file))
    schema, footer = found.schema_arrow, found.metadata
    for name in chosen or ():
        if name not in schema.names:
            near = nearest(name, schema.names)
            hint = f"did you mean {near}? " if near else ""
            raise DataError(
                f"{file.name} has no column {name!r}, which --data_reader_params columns names: "
                f"{hint}(it has {', '.join(schema.names)})"
            )
    repeated = {name for name in schema.names if schema.names.count(name) > 1}
    names = chosen or tuple(schema.names)
    for name in names:
        if name in repeated:
            raise DataError(f"{file.name} has two columns {name!r}: rename one")
    if not names:
        raise DataError(f"{file.name} has no columns: fill it, or take it out of the data")
    sizes = [footer.row_group(group).num_rows for group in range(footer.num_row_groups)]
    if min(sizes, default=0) < 0 or sum(sizes) != footer.num_rows:
        # Footers have no checksum, and too small a number would lose records.
        raise DataError(
            f"{where} (it counts {footer.num_rows} rows, but its row groups {sum(sizes)}): it is "
            "damaged; write it again"
        )
    return FileLayout(
        forms={name: form_of(file.name, schema.field(name)) for name in names},
        group_starts=tuple(accumulate(sizes, initial=0)),
        footer=footer,
    )


def _open(file: SourceFile, footer: Any = None) -> Any:
    return pq.ParquetFile(
        pa.PythonFile(_Stream(file), mode="r"),
        metadata=footer,
        page_checksum_verification=True,
        # Arrow's own choice, nanoseconds, wraps around beyond the years 1677 to 2262.
        coerce_int96_timestamp_unit="us",
        # Column chunks are read one after the other, and their memory is still in the cache.
        pre_buffer=False,
    )


def _rows(name: str, group: Group, records: range, start: int, stop: int) -> Iterator[Columns]:
    """Blocks of the rows `[start, stop)` of a row group of these records, up to a null."""
    columns = group.columns
    lacking = {
        int(places[0]): field
        for field, column in columns.items()
        if len(places := column.nulls[(column.nulls >= start) & (column.nulls < stop)])
    }
    end = min(lacking, default=stop)
    row_bytes = max(1, group.nbytes // len(records))
    step = max(1, _BLOCK_BYTES // row_bytes)
    for low in range(start, end, step):
        high = min(low + step, end)
        try:
            arrays = {field: column.rows(low, high) for field, column in columns.items()}
        except UnicodeDecodeError as error:
            raise DataError(
                f"{name}, records [{records[low]}, {records[high - 1] + 1}): column "
                f"{_not_text(columns, low, high)!r} has text that is not UTF-8 ({error}): write "
                "the file again with bytes in this column"
            ) from error
        yield Columns(arrays, high - low)
    if lacking:
        raise DataError(
            f"{name}, record {records[end]}: column {lacking[end]!r} has no value (null): fill it, "
            "or leave the column out with --data_reader_params columns=[...]"
        )


def _grouped(columns: dict[str, Column]) -> Group:
    numbers = {
        field: column
        for field, column in columns.items()
        if isinstance(column, Arrays) and column.values.ndim == 1
    }
    is_large = sum(column.nbytes for column in numbers.values()) > _PACKED_BYTES
    pack = Packed.apart if is_large else Packed.of
    packed = pack({field: column.values for field, column in numbers.items()})
    views = {
        field: Arrays(values, numbers[field].nulls) for field, values in packed.columns.items()
    }
    return Group(columns | views, packed)


def _check_values(field: str, column: Column, rows: NDArray[np.intp]) -> None:
    """Raises a `DataError` where one of the rows has no value."""
    if len(column.nulls) and np.isin(rows, column.nulls).any():
        raise DataError(f"column {field!r} has no value (null) in one of {len(rows)} rows")


def _not_text(columns: Mapping[str, Column], low: int, high: int) -> str:
    """The first column whose rows cannot be decoded."""
    for field, column in columns.items():
        try:
            column.rows(low, high)
        except UnicodeDecodeError:
            return field
    raise AssertionError("one of the columns could not be decoded before")


def _with_arrow(where: str, action: Callable[[], _Result]) -> _Result:
    """Call Arrow; what it says of damaged bytes becomes our error."""
    try:
        return action()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(
            f"{where} ({str(error).splitlines()[0]}): it is damaged, truncated or of another "
            "format; write it again"
        ) from error


def _check_alike(
    first_name: str, first: dict[str, ColumnForm], name: str, forms: dict[str, ColumnForm]
) -> None:
    for field in (*first, *forms):
        one, other = first.get(field), forms.get(field)
        if one is None or other is None or not one.is_like(other):
            raise DataError(
                f"{name} {_tell(field, other)} but {first_name} {_tell(field, one)}: make the "
                "files alike, or name the columns that they share with "
                "--data_reader_params columns=[...]"
            )


def _tell(field: str, form: ColumnForm | None) -> str:
    return f"has no column {field!r}" if form is None else f"has {form} in column {field!r}"
