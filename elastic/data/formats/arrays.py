"""NumPy files: a record is one row of every array."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from elastic.data.base import Chunks, ReadTask
from elastic.data.formats.columns import RecentlyUsed, record_maker
from elastic.data.formats.npy import ArrayLayout, load_array, read_layouts
from elastic.data.formats.registry import ReaderOptions
from elastic.data.picking import (
    FAR_BYTES,
    ShardPicks,
    by_shard,
    chunk_bytes,
    cut_shard,
    is_in_runs,
    mixed_of,
    read_runs,
)
from elastic.data.storage.files import OpenFiles, SourceFile
from elastic.errors import DataError
from elastic.policy.records import Picks, Shard

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
        return chain.from_iterable(self._picked_blocks(picks))

    def _picked_blocks(self, picks: Picks) -> Iterator[Iterable[Any]]:
        layouts = self._layouts_of(self._files.get(picks.shards[0].name))
        row_bytes = sum(layout.row_bytes for layout in layouts)
        make = record_maker(tuple(layout.key for layout in layouts))
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
            small = {key: self._picked(files, groups, key) for key in keys if key not in large}
            numbers = {name: number for number, name in enumerate(files)}
            owners = np.array([numbers[shard.name] for shard in part.shards])[part.owners]
            sources = list(files.values())
            offsets = {key: self._offsets(sources, owners, part.indices, key) for key in large}
            for begin in range(0, len(part), at_once):
                end = min(begin + at_once, len(part))
                columns = [
                    self._read_each(sources, owners[begin:end], offsets[key][begin:end], key)
                    if key in large
                    else small[key][begin:end]
                    for key in keys
                ]
                yield make(*columns) if self._is_archive else columns[0]

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

    def _picked(
        self, files: Mapping[str, SourceFile], groups: Sequence[ShardPicks], key: str
    ) -> NDArray[Any]:
        """One array of the records, in memory of its own."""
        layouts = {name: self._layout_of(file, key) for name, file in files.items()}
        # Texts of several files may have several lengths.
        dtype = np.result_type(*(each.dtype.newbyteorder("=") for each in layouts.values()))
        num_rows = sum(len(places) for _, places, _ in groups)
        rows = np.empty((num_rows, *next(iter(layouts.values())).shape[1:]), dtype)
        row_bytes = dtype.itemsize * prod(rows.shape[1:])
        if row_bytes * max(layout.shape[0] for layout in layouts.values()) <= _WHOLE_BYTES:
            for name, layout in layouts.items():
                chosen = [group for group in groups if group[0].name == name]
                if not chosen:
                    continue
                whole = self._cache.get(
                    (name, layout.key), partial(self._whole, files[name], layout)
                )
                rows[_together(places for _, places, _ in chosen)] = whole[
                    _together(indices for _, _, indices in chosen)
                ]
            return rows
        for shard, places, indices in groups:
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
        return chain.from_iterable(self._blocks(task))

    def _blocks(self, task: ReadTask) -> Iterator[Iterable[Any]]:
        """The records, some at a time; the file is looked at when the first are asked for."""
        file = self._files.get(task.shard.name)
        layouts = self._layouts_of(file)
        self._check_length(file, task.end)
        row_bytes = sum(layout.row_bytes for layout in layouts)
        step = max(1, _BLOCK_BYTES // max(1, row_bytes))
        make = record_maker(tuple(layout.key for layout in layouts))
        for start in range(task.start, task.end, step):
            end = min(start + step, task.end)
            columns = [self._rows(file, layout, start, end) for layout in layouts]
            yield make(*columns) if self._is_archive else columns[0]

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


def _together(arrays: Iterable[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate(list(arrays))


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
