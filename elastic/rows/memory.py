"""Rows in the memory of the master, or in files, of which the system keeps in it what fits."""

import mmap
import os
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import mkstemp
from typing import Final
from weakref import finalize

import numpy as np
from numpy.typing import NDArray

from elastic.errors import TrainingError
from elastic.rows.base import Change, Ids, Notes, Rows, RowsLostError, TableForm, Values
from elastic.rows.ids import IdIndex, Positions, put_rows, with_room

PART_ROWS: Final = 4096
"""Rows of one part of a scan: as long as a commit may have to wait for it."""

PART_BYTES: Final = 16 << 20
"""Of one part, which may travel as one message."""

FILE_ROOM: Final = 256 << 20
"""By so much a file is mapped anew: more and more of it, without a copy."""

SHORT_WIDTH: Final = 64
"""Words of a row up to which all of it is copied in less time than a part, number by number."""


class MemoryRows:
    """A `RowStore` of arrays that grow. Its versions go with the process.

    Attributes:
        folder: Of the files that rows are in; None where they are in memory.
    """

    is_durable: Final = False

    def __init__(self, folder: Path | None = None) -> None:
        """Have no rows yet.

        Args:
            folder: See above. The files have no names, and are gone with the process. Ids are in
                memory all the same.
        """
        self.folder = folder
        self._lock = threading.Lock()
        self._forms: tuple[TableForm, ...] = ()
        self._tables: dict[str, _Table] = {}
        self._holders: Counter[int] = Counter()
        self._version = 0

    @property
    def version(self) -> int:
        """See `RowStore`."""
        return self._version

    def open(self, forms: Sequence[TableForm]) -> None:
        """See `RowStore`."""
        self._forms = tuple(forms)
        self._tables = self._empty_tables()

    def close(self) -> None:
        """See `RowStore`."""
        self._tables = {}

    def erase(self) -> None:
        """See `RowStore`."""
        self._tables = self._empty_tables()

    def read(self, table: str, ids: Ids, version: int | None = None) -> Rows:
        """See `RowStore`."""
        with self._lock:
            held = self._held(version)
            return self._tables[table].read(ids, held)

    def read_values(
        self, table: str, ids: Ids, num_values: int, version: int | None = None
    ) -> Rows:
        """The first numbers of each row alone, without the slots behind them; see `read`."""
        with self._lock:
            held = self._held(version)
            return self._tables[table].read(ids, held, num_values)

    def commit(self, version: int, changes: Mapping[str, Change]) -> None:
        """See `RowStore`."""
        with self._lock:
            if version != self._version + 1:
                raise RowsLostError(
                    f"rows of version {version} do not follow version {self._version}, "
                    f"which the store has: the job goes back to its newest cut"
                )
            for name, change in changes.items():
                self._tables[name].write(change)
            self._version = version

    def hold(self, version: int) -> None:
        """See `RowStore`."""
        with self._lock:
            if version not in self._holders:
                self._check_newest(version)
                for table in self._tables.values():
                    table.hold(version)
            self._holders[version] += 1

    def let_go(self, version: int) -> None:
        """See `RowStore`."""
        with self._lock:
            if version not in self._holders:
                return
            self._holders[version] -= 1
            if self._holders[version] == 0:
                self._forget(version)

    def scan(self, table: str, version: int) -> Iterator[Change]:
        """See `RowStore`."""
        start: int | None = 0
        while start is not None:
            part, start = self.part(table, version, start)
            if len(part.ids):
                yield part

    def notes(self, table: str) -> Notes:
        """See `RowStore`."""
        with self._lock:
            return self._tables[table].notes()

    def part(self, table: str, version: int, start: int) -> tuple[Change, int | None]:
        """Some rows of a version that is held, and where those behind them begin, if any do.

        Args:
            table: By its name.
            version: Held.
            start: 0 for the first ones, else what the call before gave.

        Raises:
            KeyError: That version is not held.
        """
        with self._lock:
            self._check_held(version)
            return self._tables[table].part(version, start)

    def load(self, version: int, tables: Mapping[str, Iterable[Change]]) -> None:
        """See `RowStore`."""
        loaded = self._empty_tables()
        for name, changes in tables.items():
            for change in changes:
                loaded[name].write(change)
        with self._lock:
            self._tables, self._version = loaded, version
            self._holders.clear()

    def fill(self, table: str, rows: Change) -> None:
        """Have rows that belong to what was loaded; the same ones may come again."""
        with self._lock:
            self._tables[table].write(rows)

    def go_back(self, version: int) -> bool:
        """See `RowStore`."""
        with self._lock:
            if version not in self._holders:
                return False
            for table in self._tables.values():
                table.go_back(version)
            for newer in [each for each in self._holders if each > version]:
                self._forget(newer)
            self._version = version
            return True

    @property
    def held(self) -> Sequence[int]:
        """See `RowStore`."""
        with self._lock:
            return sorted(self._holders)

    def num_rows(self, table: str) -> int:
        """See `RowStore`."""
        return self._tables[table].num_rows()

    def size_bytes(self) -> int:
        """See `RowStore`."""
        with self._lock:
            return sum(table.size_bytes() for table in self._tables.values())

    def _empty_tables(self) -> dict[str, "_Table"]:
        return {
            form.table.name: _Table(form.width, form.num_notes, self.folder) for form in self._forms
        }

    def _held(self, version: int | None) -> int | None:
        """A version that is held, or None for the newest."""
        if version is None or version in self._holders:
            return version
        self._check_newest(version)
        return None

    def _check_held(self, version: int) -> None:
        if version not in self._holders:
            raise KeyError(f"version {version} is not held")

    def _check_newest(self, version: int) -> None:
        if version != self._version:
            raise KeyError(f"version {version} is not held, and {self._version} is the newest")

    def _forget(self, version: int) -> None:
        del self._holders[version]
        for table in self._tables.values():
            table.let_go(version)


class _InMemory:
    """An array of rows, with room for more."""

    def __init__(self, width: int) -> None:
        self.array: Values = np.empty((0, width), np.float32)

    def put(self, start: int, values: Values) -> None:
        """Have these rows from a position on, which is no further than the last ones' end."""
        self.array = with_room(self.array, start + len(values))
        self.array[start : start + len(values)] = values


class _InFile:
    """The same in a file."""

    def __init__(self, width: int, folder: Path) -> None:
        self.array: Values = np.empty((0, width), np.float32)
        self._folder = folder
        self._file, name = mkstemp(dir=folder, prefix=".rows-")
        finalize(self, os.close, self._file)
        Path(name).unlink()

    def put(self, start: int, values: Values) -> None:
        """See `_InMemory`.

        Raises:
            TrainingError: The disk is full.
        """
        # Written, and not laid into memory of the file: a disk that is full would end the process.
        try:
            self._write(start * self.array.strides[0], values)
        except OSError as error:
            raise TrainingError(
                f"rows of embeddings cannot be kept in files in {self._folder} ({error.strerror}): "
                "make room there",
                "EmbeddingStore",
            ) from error
        if start + len(values) > len(self.array):
            self._map(start + len(values))

    def _write(self, offset: int, values: Values) -> None:
        left = np.ascontiguousarray(values, np.float32).reshape(-1).view(np.uint8)
        while len(left):
            written = os.pwrite(self._file, left.data, offset)
            left, offset = left[written:], offset + written

    def _map(self, num_rows: int) -> None:
        width = self.array.shape[1]
        length = max(num_rows, min(2 * len(self.array), len(self.array) + FILE_ROOM // (4 * width)))
        # What nobody has written takes no room on the disk.
        os.ftruncate(self._file, 4 * width * length)
        mapped = mmap.mmap(self._file, 4 * width * length)
        # Rows that are read together are anywhere: what is behind one would be read in vain.
        mapped.madvise(mmap.MADV_RANDOM)
        self.array = np.frombuffer(mapped, np.float32).reshape(length, width)


class _Arena:
    """Rows one behind the other, and of each whether it is there or was removed."""

    def __init__(self, width: int, folder: Path | None = None) -> None:
        self._kept: _InMemory | _InFile = (
            _InMemory(width) if folder is None else _InFile(width, folder)
        )
        self._is_there: NDArray[np.bool_] = np.empty(0, np.bool_)
        self._num_rows = 0

    @property
    def rows(self) -> Values:
        return self._kept.array[: self._num_rows]

    @property
    def is_there(self) -> NDArray[np.bool_]:
        return self._is_there[: self._num_rows]

    def __len__(self) -> int:
        return self._num_rows

    def append(self, values: Values, is_there: NDArray[np.bool_] | bool = True) -> None:
        start, self._num_rows = self._num_rows, self._num_rows + len(values)
        self._kept.put(start, values)
        self._is_there = with_room(self._is_there, self._num_rows)
        self._is_there[start : self._num_rows] = is_there

    def write(
        self, positions: Positions, values: Values, is_there: NDArray[np.bool_] | bool = True
    ) -> None:
        put_rows(self._kept.array, positions, values)
        self._is_there[positions] = is_there

    def remove(self, positions: Positions) -> None:
        self._is_there[positions] = False

    def cut(self, num_rows: int) -> None:
        self._num_rows = num_rows

    def size_bytes(self) -> int:
        return self._kept.array.nbytes + self._is_there.nbytes


class _Undo:
    """What a held version had where commits have written since."""

    def __init__(self, num_rows: int, width: int) -> None:
        """Begin with nothing changed.

        Args:
            num_rows: Of the held version: those behind them were made later.
            width: Of a row.
        """
        self.num_rows = num_rows
        # 0 is *not changed*, so that memory that nobody has touched yet is never touched.
        self._places = np.zeros(num_rows, np.int32)
        self._kept = _Arena(width)

    def keep(self, positions: Positions, arena: _Arena) -> None:
        """These positions are about to be written."""
        mine = positions[positions < self.num_rows]
        mine = mine[self._places[mine] == 0]
        self._places[mine] = np.arange(len(self._kept) + 1, len(self._kept) + 1 + len(mine))
        self._kept.append(arena.rows[mine], arena.is_there[mine])

    def put_back(self, positions: Positions, values: Values, is_there: NDArray[np.bool_]) -> None:
        """Have in these, of one row a position, what the held version had there.

        Args:
            positions: Below `num_rows`.
            values: The first numbers of each row.
            is_there: Of each, whether it was.
        """
        places = self._places[positions]
        changed = np.flatnonzero(places)
        kept = places[changed] - 1
        values[changed] = self._kept.rows[:, : values.shape[1]][kept]
        is_there[changed] = self._kept.is_there[kept]

    def changed(self) -> Positions:
        return np.flatnonzero(self._places)

    def size_bytes(self) -> int:
        return self._places.nbytes + self._kept.size_bytes()


class _Table:
    """One table: rows lie at the positions that their ids have.

    A row that is removed keeps its place as long as any version is held, for that may have it.
    """

    def __init__(self, width: int, num_notes: int = 0, folder: Path | None = None) -> None:
        self._width = width
        self._num_notes = num_notes
        self._part_rows = max(1, min(PART_ROWS, PART_BYTES // (4 * width)))
        self._index = IdIndex()
        self._arena = _Arena(width, folder)
        self._undo: dict[int, _Undo] = {}
        self._num_gone = 0

    def read(self, ids: Ids, held: int | None, num_values: int | None = None) -> Rows:
        positions = self._index.find(ids)
        end = len(self._arena) if held is None else self._undo[held].num_rows
        is_there = (positions >= 0) & (positions < end)
        if is_there.all():
            # As it mostly is; in a third of the time.
            return _zeroed(*self._at(positions, held, num_values))
        values = np.zeros((len(ids), num_values or self._width), np.float32)
        found = _zeroed(*self._at(positions[is_there], held, num_values))
        values[is_there], is_there[is_there] = found.values, found.is_there
        return Rows(values, is_there)

    def write(self, change: Change) -> None:
        assert change.values.shape == (len(change.ids), self._width), "rows of another width"
        positions = self._index.find(change.ids)
        is_known = positions >= 0
        if is_known.all():
            self._overwrite(positions, change.values)
        else:
            self._write_some(change, positions, is_known)
        if len(change.removed):
            self._remove(change.removed)

    def _write_some(
        self, change: Change, positions: Positions, is_known: NDArray[np.bool_]
    ) -> None:
        self._overwrite(positions[is_known], change.values[is_known])
        self._index.add(change.ids[~is_known])
        self._arena.append(change.values[~is_known])

    def hold(self, version: int) -> None:
        self._undo[version] = _Undo(len(self._arena), self._width)

    def let_go(self, version: int) -> None:
        del self._undo[version]
        self._close_gaps()

    def part(self, version: int, start: int) -> tuple[Change, int | None]:
        """Rows of a held version from a position on, and where the next part begins."""
        num_rows = self._undo[version].num_rows
        end = min(start + self._part_rows, num_rows)
        ids = self._index.ids[start:end]
        order = np.argsort(ids)
        values, is_there = self._at(start + order, version)
        part = Change(ids[order][is_there], values[is_there])
        return part, end if end < num_rows else None

    def notes(self) -> Notes:
        is_there = self._arena.is_there
        numbers = self._arena.rows[:, self._width - self._num_notes :].view(np.int32)
        return Notes(self._index.ids[is_there], numbers[is_there])

    def go_back(self, version: int) -> None:
        """Have the rows of a held version, and nothing changed since."""
        undo = self._undo[version]
        changed = undo.changed()
        self._arena.write(changed, *self._at(changed, version))
        self._arena.cut(undo.num_rows)
        self._index.cut(undo.num_rows)
        self._num_gone = int(np.count_nonzero(~self._arena.is_there))
        self.hold(version)

    def num_rows(self) -> int:
        return len(self._arena) - self._num_gone

    def size_bytes(self) -> int:
        kept = sum(undo.size_bytes() for undo in self._undo.values())
        return self._index.size_bytes() + self._arena.size_bytes() + kept

    def _at(
        self, positions: Positions, held: int | None, num_values: int | None = None
    ) -> tuple[Values, NDArray[np.bool_]]:
        """Rows at these positions, or their first numbers, and of each whether it is there."""
        rows = self._arena.rows
        if num_values is None or self._width <= SHORT_WIDTH:
            values = rows.take(positions, axis=0)[:, :num_values]
        else:
            values = rows[:, :num_values][positions]
        is_there = self._arena.is_there.take(positions)
        if held is not None:
            self._undo[held].put_back(positions, values, is_there)
        return values, is_there

    def _overwrite(self, positions: Positions, values: Values) -> None:
        for undo in self._undo.values():
            undo.keep(positions, self._arena)
        if self._num_gone:
            self._num_gone -= int(np.count_nonzero(~self._arena.is_there[positions]))
        self._arena.write(positions, values)

    def _remove(self, ids: Ids) -> None:
        positions = self._index.find(ids)
        positions = positions[positions >= 0]
        positions = positions[self._arena.is_there[positions]]
        for undo in self._undo.values():
            undo.keep(positions, self._arena)
        self._arena.remove(positions)
        self._num_gone += len(positions)
        self._close_gaps()

    def _close_gaps(self) -> None:
        """Move the last rows to where others were removed, once nobody reads by position."""
        if self._undo or not self._num_gone:
            return
        moved, places = self._index.remove(np.flatnonzero(~self._arena.is_there))
        self._arena.write(places, self._arena.rows[moved])
        self._arena.cut(len(self._index))
        self._num_gone = 0


def _zeroed(values: Values, is_there: NDArray[np.bool_]) -> Rows:
    """Rows of which some may have been removed."""
    if not is_there.all():
        values[~is_there] = 0
    return Rows(values, is_there)
