"""NumPy files: a record is one row of every array, of a `.npy` file or of an `.npz` archive."""

import ast
import io
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from math import prod
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from elastic.data.base import VALUE_FIELD, Chunks, ReadTask
from elastic.data.formats.columns import RecentlyUsed, made_records
from elastic.data.formats.registry import ReaderOptions
from elastic.data.picking import (
    FAR_BYTES,
    ShardPicks,
    by_shard,
    chunk_bytes,
    cut_shard,
    is_in_long_runs,
    is_in_runs,
    mixed_of,
    read_runs,
)
from elastic.data.storage import OpenFiles, SourceFile
from elastic.errors import DataError
from elastic.policy.tasks.records import Columns, Picks, Shard

_MAX_HEADER_BYTES: Final = 1 << 16
_LOCAL_HEADER: Final = struct.Struct("<4s22xHH")
"""Of a zip member: signature, then the lengths of its name and of its extra field."""

ARCHIVE_ERRORS: Final = (
    zipfile.BadZipFile,
    zlib.error,
    ValueError,
    EOFError,
    KeyError,
    NotImplementedError,
    SyntaxError,
    TypeError,
    tokenize.TokenError,
    struct.error,
)
"""What `zipfile` and NumPy raise for bytes that are not what their headers promise."""

_CHUNK_BYTES: Final = 256 << 10

_WINDOW_BYTES: Final = 16 << 20
"""Rows are in memory what they are in the file, so that larger chunks can be mixed."""

_PICKED_ROWS: Final = 1 << 13

_PICKED_BYTES: Final = 8 << 20

_COPIED_BYTES: Final = 1 << 10

_LARGE_ROW_BYTES: Final = 1 << 12
"""From here on, a row is read by itself, which copies it once: the system keeps the rest of its
chunk at hand."""

_ROWS_BYTES: Final = 1 << 20
"""Of such rows at a time: more than a minibatch, and still in the cache when it is used."""

_WHOLE_BYTES: Final = 4 << 20
"""An array of a file that is no larger is kept whole, as labels are beside images."""

_BLOCK_BYTES: Final = 2 << 20
"""Rows read at a time: bounds the memory of a task whose rows are large."""


@dataclass(frozen=True, slots=True)
class ArrayLayout:
    """One array on disk.

    Attributes:
        key: Its name in the archive; empty for a `.npy` file.
        dtype: Without Python objects.
        shape: At least one dimension; the first counts records.
        offset: Where the first row begins in the file, or None where rows do not lie one after
            the other: compressed, or in Fortran order.
    """

    key: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int | None

    @property
    def row_bytes(self) -> int:
        return self.dtype.itemsize * prod(self.shape[1:])


def read_layouts(file: SourceFile, is_archive: bool) -> tuple[ArrayLayout, ...]:
    """Read the headers of all arrays of a file, not the arrays.

    Raises:
        DataError: The file is damaged, or an array has no rows that could be records.
    """
    try:
        layouts = _archive_layouts(file) if is_archive else (_file_layout(file),)
    except ARCHIVE_ERRORS as error:
        kind = "npz archive" if is_archive else "npy file"
        raise DataError(
            f"{file.name} is no readable {kind} ({error}): it is damaged or of another format; "
            "write it again with numpy"
        ) from error
    _check_lengths(file, layouts)
    return layouts


def load_array(file: SourceFile, layout: ArrayLayout) -> np.ndarray[Any, np.dtype[Any]]:
    """Read one whole array, decompressed, in C order.

    Raises:
        DataError: The archive is damaged.
    """
    try:
        if not layout.key:
            array = np.load(file.stream(), allow_pickle=False)
        else:
            with (
                zipfile.ZipFile(file.stream()) as archive,
                archive.open(f"{layout.key}.npy") as member,
            ):
                array = np.lib.format.read_array(member, allow_pickle=False)
    except (*ARCHIVE_ERRORS, OSError) as error:
        where = f"array {layout.key!r} of {file.name}" if layout.key else file.name
        raise DataError(f"{where} is damaged ({error}): write the file again") from error
    return np.ascontiguousarray(array)


def _archive_layouts(file: SourceFile) -> tuple[ArrayLayout, ...]:
    layouts = []
    try:
        with zipfile.ZipFile(file.stream()) as archive:
            for member in archive.infolist():
                if not member.filename.endswith(".npy"):
                    raise DataError(
                        f"{file.name} holds {member.filename!r}, which is not an array: write the "
                        "archive with numpy.savez"
                    )
                if member.flag_bits & 1:
                    raise DataError(f"{file.name} is encrypted: write it with numpy.savez")
                layouts.append(_member_layout(file, archive, member))
    except OSError as error:
        raise DataError(f"{file.name} cannot be read ({error}): check the file") from error
    if not layouts:
        raise DataError(f"{file.name} holds no arrays: fill it, or take it out of the data")
    return tuple(layouts)


def _member_layout(
    file: SourceFile, archive: zipfile.ZipFile, member: zipfile.ZipInfo
) -> ArrayLayout:
    key = member.filename.removesuffix(".npy")
    with archive.open(member) as stream:
        dtype, shape, is_fortran = _read_header(stream)
        header_bytes = stream.tell()
    _check_array(file.name, key, dtype, shape)
    expected = header_bytes + dtype.itemsize * prod(shape)
    if member.file_size != expected:
        raise zipfile.BadZipFile(f"{key!r} has {member.file_size} bytes instead of {expected}")
    if member.compress_type != zipfile.ZIP_STORED or is_fortran:
        return ArrayLayout(key, dtype, shape, None)
    local_header = file.read_at(member.header_offset, _LOCAL_HEADER.size)
    _, name_bytes, extra_bytes = _LOCAL_HEADER.unpack(local_header)
    begin = member.header_offset + _LOCAL_HEADER.size + name_bytes + extra_bytes
    if begin + expected > file.size:
        raise zipfile.BadZipFile(f"{key!r} goes beyond the end of the file")
    return ArrayLayout(key, dtype, shape, begin + header_bytes)


def _file_layout(file: SourceFile) -> ArrayLayout:
    stream = io.BytesIO(file.read_at(0, _MAX_HEADER_BYTES))
    dtype, shape, is_fortran = _read_header(stream)
    _check_array(file.name, "", dtype, shape)
    expected = stream.tell() + dtype.itemsize * prod(shape)
    if file.size < expected:
        raise DataError(
            f"{file.name} has {file.size} bytes instead of {expected}: it is truncated; "
            "write it again"
        )
    if file.size > expected:
        # NumPy appends to an open file, and reads the first array alone.
        raise DataError(
            f"{file.name} goes on for {file.size - expected} bytes after its array, which would be "
            "left out: write one array to each file, or several of one length with numpy.savez"
        )
    return ArrayLayout("", dtype, shape, None if is_fortran else stream.tell())


def _read_header(stream: IO[bytes]) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    """Read a `.npy` header: dtype, shape, and whether columns come first."""
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    elif version == (2, 0):
        shape, is_fortran, dtype = np.lib.format.read_array_header_2_0(stream)
    elif version == (3, 0):
        # NumPy reads this version, but only through private functions.
        (size_bytes,) = struct.unpack("<I", stream.read(4))
        if size_bytes > _MAX_HEADER_BYTES:
            raise ValueError(f"its header would have {size_bytes} bytes")
        header = ast.literal_eval(stream.read(size_bytes).decode("utf-8"))
        shape, is_fortran = header["shape"], header["fortran_order"]
        dtype = np.lib.format.descr_to_dtype(header["descr"])
    else:
        raise ValueError(f"its format has the version {version}")
    if any(size < 0 for size in shape):
        raise ValueError(f"its shape is {shape}")
    return dtype, shape, is_fortran and len(shape) > 1


def _check_array(name: str, key: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    where = f"array {key!r} of {name}" if key else f"the array of {name}"
    if dtype.hasobject:
        raise DataError(
            f"{where} holds Python objects, which only pickle can read, and pickle can run code: "
            "save it with a numeric or string dtype"
        )
    if not shape:
        raise DataError(f"{where} is a single value without rows: leave it out, or give it rows")


def _check_lengths(file: SourceFile, layouts: tuple[ArrayLayout, ...]) -> None:
    lengths = {layout.key: layout.shape[0] for layout in layouts}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{key}: {length}" for key, length in lengths.items())
        raise DataError(
            f"{file.name} has arrays of different lengths ({found}): the first dimension counts "
            "the records and must be the same for all"
        )


class ArrayReader:
    """Rows of `.npz` files as dict name → row, of `.npy` files as the row itself.

    Rows belong to the caller: they are in memory of their own, may be changed, and are in this
    machine's byte order.
    """

    def __init__(self, files: OpenFiles, options: ReaderOptions, is_archive: bool) -> None:
        self._files = files
        self._is_archive = is_archive
        # Whole arrays, which cannot be read by rows.
        self._cache = RecentlyUsed[NDArray[Any]](options.cache_mb << 20, lambda array: array.nbytes)
        # Of the windows that records are wanted of.
        self._chunks = RecentlyUsed[NDArray[Any]](4 * _WINDOW_BYTES, lambda array: array.nbytes)
        self._layouts: dict[str, tuple[ArrayLayout, ...]] = {}

    def create_shards(self, names: Sequence[str], records_per_task: int) -> list[Shard]:  # noqa: ARG002 (rows are found without scanning, so any range is a shard)
        shards: list[Shard] = []
        first = self._layouts_of(self._files.get(names[0]))
        for name in names:
            layouts = self._layouts_of(self._files.get(name))
            _check_alike(names[0], first, name, layouts)
            if layouts[0].shape[0]:
                shards.append(Shard(name, 0, layouts[0].shape[0]))
        return shards

    def create_chunks(self, names: Sequence[str]) -> Chunks:
        shards = self.create_shards(names, 1)
        files = [self._files.get(name) for name in names]
        row_bytes = sum(layout.row_bytes for layout in self._layouts_of(files[0]))
        total_bytes = row_bytes * sum(shard.num_records for shard in shards)
        least = FAR_BYTES if files[0].is_far else _CHUNK_BYTES
        rows = max(1, chunk_bytes(total_bytes, least) // max(1, row_bytes))
        chunks = [chunk for shard in shards for chunk in cut_shard(shard, rows)]
        return Chunks(chunks, mixed_of(total_bytes, len(chunks), _WINDOW_BYTES))

    def read_picks(self, picks: Picks) -> Iterator[Any]:
        """Rows in any order: some at a time, copied from the chunks that they are of."""
        if is_in_runs(picks):
            return read_runs(self.read_records, picks)
        return chain.from_iterable(map(self._records_of, self._picked_blocks(picks)))

    def pick_columns(self, picks: Picks) -> Iterator[Columns]:
        """The same as columns."""
        if is_in_long_runs(picks):
            return read_runs(self.read_columns, picks)
        return self._picked_blocks(picks)

    def _records_of(self, columns: Columns) -> Iterable[Any]:
        return made_records(columns) if self._is_archive else columns.arrays[VALUE_FIELD]

    def _picked_blocks(self, picks: Picks) -> Iterator[Columns]:
        layouts = self._layouts_of(self._files.get(picks.shards[0].name))
        row_bytes = sum(layout.row_bytes for layout in layouts)
        large = self._large(picks)
        large_bytes = sum(layout.row_bytes for layout in layouts if layout.key in large)
        step = max(1, min(_PICKED_ROWS, _PICKED_BYTES // max(1, row_bytes - large_bytes)))
        at_once = max(1, _ROWS_BYTES // large_bytes) if large else step
        for start in range(0, len(picks), step):
            part = picks.part(start, start + step)
            groups = list(by_shard(part))
            files = {name: self._files.get(name) for name in {each.name for each in part.shards}}
            for shard, _, _ in groups:
                self._check_length(files[shard.name], shard.end)
            keys = [layout.key for layout in layouts]
            wanted = _Wanted(files, groups)
            small = {key: self._picked(wanted, key) for key in keys if key not in large}
            numbers = {name: number for number, name in enumerate(files)}
            owners = np.array([numbers[shard.name] for shard in part.shards])[part.owners]
            sources = list(files.values())
            offsets = {key: self._offsets(sources, owners, part.indices, key) for key in large}
            for begin in range(0, len(part), at_once):
                end = min(begin + at_once, len(part))
                columns = {
                    key or VALUE_FIELD: self._read_each(
                        sources, owners[begin:end], offsets[key][begin:end], key
                    )
                    if key in large
                    else small[key][begin:end]
                    for key in keys
                }
                yield Columns(columns, end - begin)

    def _large(self, picks: Picks) -> frozenset[str]:
        """The arrays whose rows are read by themselves, straight to where they are wanted."""
        files = [self._files.get(name) for name in {shard.name for shard in picks.shards}]
        found = set()
        for first in self._layouts_of(files[0]):
            layouts = [self._layout_of(file, first.key) for file in files]
            is_in_rows = all(
                layout.offset is not None and layout.dtype == first.dtype for layout in layouts
            )
            if first.row_bytes >= _LARGE_ROW_BYTES and is_in_rows:
                found.add(first.key)
        return frozenset() if any(file.is_far for file in files) else frozenset(found)

    def _offsets(
        self, files: Sequence[SourceFile], owners: NDArray[np.intp], rows: NDArray[Any], key: str
    ) -> list[int]:
        """Where rows of an array begin, each in that one of the files which owns it."""
        layouts = [self._layout_of(file, key) for file in files]
        begins = np.array([layout.offset for layout in layouts])
        offsets: list[int] = (begins[owners] + rows * layouts[0].row_bytes).tolist()
        return offsets

    def _read_each(
        self, files: Sequence[SourceFile], owners: NDArray[np.intp], offsets: list[int], key: str
    ) -> NDArray[Any]:
        """One array of records, each row of it read by itself; arguments as those of `_offsets`."""
        form = self._layout_of(files[0], key)
        size = form.row_bytes
        buffer = np.empty(len(offsets) * size, np.uint8)
        places = range(0, len(buffer), size)
        if len(files) == 1:
            files[0].read_rows(buffer.data, zip(places, offsets, strict=True), size)
        else:
            for number, file in enumerate(files):
                spans = [(places[at], offsets[at]) for at in np.flatnonzero(owners == number)]
                file.read_rows(buffer.data, spans, size)
        found: NDArray[Any] = np.ndarray((len(offsets), *form.shape[1:]), form.dtype, buffer)
        return found.astype(form.dtype.newbyteorder("="), copy=False)

    def _picked(self, wanted: "_Wanted", key: str) -> NDArray[Any]:
        """One array of the records, in memory of its own."""
        files = wanted.files
        layouts = {name: self._layout_of(file, key) for name, file in files.items()}
        # Texts of several files may have several lengths.
        dtype = np.result_type(*(each.dtype.newbyteorder("=") for each in layouts.values()))
        rows = np.empty((wanted.num_rows, *next(iter(layouts.values())).shape[1:]), dtype)
        row_bytes = dtype.itemsize * prod(rows.shape[1:])
        if row_bytes * max(layout.shape[0] for layout in layouts.values()) <= _WHOLE_BYTES:
            for name, (places, indices) in wanted.by_file.items():
                whole = self._cache.get(
                    (name, layouts[name].key), partial(self._whole, files[name], layouts[name])
                )
                rows[places] = whole[indices]
            return rows
        for shard, places, indices in wanted.groups:
            file, layout = files[shard.name], layouts[shard.name]
            chunk = self._chunks.get(
                (shard.name, shard.start, layout.key),
                partial(self._rows, file, layout, shard.start, shard.end),
            )
            taken = indices - shard.start
            if row_bytes < _COPIED_BYTES:
                rows[places] = chunk[taken]
                continue
            # Row by row, as the line above copies twice.
            for place, index in zip(places.tolist(), taken.tolist(), strict=True):
                rows[place] = chunk[index]
        return rows

    def read_records(self, task: ReadTask) -> Iterator[Any]:
        # Chained in C: a generator between a record and who wants it costs as much as the record.
        return chain.from_iterable(map(self._records_of, self.read_columns(task)))

    def read_columns(self, task: ReadTask) -> Iterator[Columns]:
        """The records, some at a time; the file is looked at when the first are asked for."""
        file = self._files.get(task.shard.name)
        layouts = self._layouts_of(file)
        self._check_length(file, task.end)
        row_bytes = sum(layout.row_bytes for layout in layouts)
        step = max(1, _BLOCK_BYTES // max(1, row_bytes))
        for start in range(task.start, task.end, step):
            end = min(start + step, task.end)
            columns = {
                layout.key or VALUE_FIELD: self._rows(file, layout, start, end)
                for layout in layouts
            }
            yield Columns(columns, end - start)

    def _whole(self, file: SourceFile, layout: ArrayLayout) -> NDArray[Any]:
        if layout.offset is None:
            return load_array(file, layout)
        return self._rows(file, layout, 0, layout.shape[0])

    def _check_length(self, file: SourceFile, end: int) -> None:
        length = self._layouts_of(file)[0].shape[0]
        if end > length:
            raise DataError(
                f"{file.name} has {length} records, but the task wants records up to {end}: the "
                "file is not the one that was counted; restore it and start the job again"
            )

    def _rows(self, file: SourceFile, layout: ArrayLayout, start: int, end: int) -> NDArray[Any]:
        if layout.offset is None:
            array = self._cache.get((file.name, layout.key), lambda: load_array(file, layout))
            rows: NDArray[Any] = array[start:end].copy()
        else:
            # A fresh buffer, and not a read-only view of bytes: frameworks may keep or change rows.
            buffer = np.empty((end - start) * layout.row_bytes, np.uint8)
            file.read_into(buffer.data, layout.offset + start * layout.row_bytes)
            rows = np.ndarray((end - start, *layout.shape[1:]), layout.dtype, buffer)
        return rows.astype(layout.dtype.newbyteorder("="), copy=False)

    def _layout_of(self, file: SourceFile, key: str) -> ArrayLayout:
        """Of one array; files may have them in different orders."""
        return next(layout for layout in self._layouts_of(file) if layout.key == key)

    def _layouts_of(self, file: SourceFile) -> tuple[ArrayLayout, ...]:
        layouts = self._layouts.get(file.name)
        if layouts is None:
            layouts = self._layouts[file.name] = read_layouts(file, self._is_archive)
        return layouts


class _Wanted:
    """Records of many chunks, and the same by the files that these are of."""

    def __init__(self, files: Mapping[str, SourceFile], groups: Sequence[ShardPicks]) -> None:
        self.files = files
        self.groups = groups
        self.num_rows = sum(len(places) for _, places, _ in groups)
        parts: dict[str, list[ShardPicks]] = {}
        for group in groups:
            parts.setdefault(group[0].name, []).append(group)
        self.by_file = {
            name: (
                np.concatenate([places for _, places, _ in chosen]),
                np.concatenate([indices for _, _, indices in chosen]),
            )
            for name, chosen in parts.items()
        }


def _check_alike(
    first_name: str, first: Sequence[ArrayLayout], name: str, layouts: Sequence[ArrayLayout]
) -> None:
    if _keys(layouts) != _keys(first):
        raise DataError(
            f"{name} has the arrays {', '.join(_keys(layouts))} but {first_name} has "
            f"{', '.join(_keys(first))}: make the files alike"
        )
    rows = {layout.key: _row_form(layout) for layout in first}
    for layout in layouts:
        if _row_form(layout) != rows[layout.key]:
            of_array = f" in array {layout.key!r}" if layout.key else ""
            raise DataError(
                f"{name} has rows of {_row_form(layout)}{of_array}, but {first_name} has "
                f"{rows[layout.key]}: make the files alike"
            )


def _row_form(layout: ArrayLayout) -> str:
    """What a row is, whatever the order of its bytes; texts may be of any length."""
    kind = layout.dtype.kind
    dtype = {"U": "str", "S": "bytes"}.get(kind) or str(layout.dtype.newbyteorder("="))
    return f"{dtype} {layout.shape[1:]}" if len(layout.shape) > 1 else dtype


def _keys(layouts: Sequence[ArrayLayout]) -> list[str]:
    return sorted(layout.key for layout in layouts)
