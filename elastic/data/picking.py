"""Records in any order, from sources that are read by ranges: chunks, and how records leave them.

The chunks of a window are in work at once. They are kept as they are stored, where a format tells
one record from the next in there (`RawPicking`): to cut a record out is to copy its bytes once, at
the moment it is wanted, so that it is made a record while it is still in the processor's cache, and
nothing is kept of it. The records of other sources are kept as they are (`ChunkPicking`).
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from elastic.data.base import Chunks, RawReader, RawRecords, ReadTask
from elastic.data.storage import OpenFiles
from elastic.errors import DataError
from elastic.policy.tasks.records import Picks, Shard

Read: TypeAlias = Callable[[ReadTask], Iterable[Any]]

ShardPicks: TypeAlias = tuple[Shard, NDArray[np.intp], NDArray[np.int64]]
"""Of one shard the places of its records among others, and their indices."""

_Held = TypeVar("_Held")

CHUNK_BYTES: Final = 64 << 10
"""Large enough that finding it costs little beside decoding it."""

WINDOW_BYTES: Final = 4 << 20
"""Of what is mixed, as it is stored; text takes some ten times as much as records."""

FAR_BYTES: Final = 2 << 20
"""Of a chunk of a remote file: a request costs as much as so many."""

FORWARD_WINDOW_BYTES: Final = 2 << 20
"""Of content that is decompressed; up to twice as much where that gives no short window."""

LEAST_MIXED: Final = 16
"""Chunks of a window at least, however large they are: no minibatch is of one chunk."""

MAX_CHUNKS: Final = 1 << 18
"""Of a job: the master keeps a line on each."""

_FIRST: Final = 16
"""Records of which the rest learns how large they are."""

_PLACED: Final = 1 << 14
"""Records whose places are looked up at a time: many of each chunk, as each costs as much."""

_PLACED_BYTES: Final = 8 << 20
"""Of these together, about."""

_CUT: Final = 256
"""Records made at a time: so few that they are still in the cache when they are used."""

_CUT_BYTES: Final = 1 << 20
"""Of these together, about; a task may have many large ones."""

_LEAST_KEPT: Final = 32
_BLOCK: Final = 1 << 13
"""Records taken from chunks at a time: many of each, as each costs as much for a few."""

_FEW_RUNS: Final = 4
_LONG_RUN: Final = 8
_LONG_COLUMNS: Final = 1 << 10


def chunk_bytes(total_bytes: int, least: int = CHUNK_BYTES) -> int:
    """The size of a chunk of so much data."""
    return max(least, total_bytes // MAX_CHUNKS)


def mixed_of(total_bytes: int, num_chunks: int, window_bytes: int = WINDOW_BYTES) -> int:
    """How many chunks make a window."""
    each = max(1, total_bytes // max(1, num_chunks))
    return max(LEAST_MIXED, window_bytes // each)


def scanned_chunks(
    files: OpenFiles, names: Sequence[str], cut: Callable[[int], list[Shard]]
) -> Chunks:
    """Chunks of files whose records have to be looked for.

    Args:
        files: Where they are opened.
        names: Of the files.
        cut: Makes shards of at least so many bytes.
    """
    found = [files.get(name) for name in names]
    least = FAR_BYTES if any(file.is_far for file in found) else CHUNK_BYTES
    total_bytes = sum(file.size for file in found)
    shards = cut(chunk_bytes(total_bytes, least))
    if any(file.is_forward for file in found):
        # Nobody knows how large the content is.
        return Chunks(shards, FORWARD_WINDOW_BYTES // CHUNK_BYTES, is_forward=True)
    return Chunks(shards, mixed_of(total_bytes, len(shards)))


def cut_shard(shard: Shard, num_records: int) -> Iterator[Shard]:
    """A shard whose records can be found without its begin, in parts of so many."""
    for start in range(shard.start, shard.end, num_records):
        end = min(start + num_records, shard.end)
        yield Shard(shard.name, start, end, shard.offset_bytes, shard.fingerprint)


def is_in_runs(picks: Picks) -> bool:
    """Whether most records follow one another, as where no records are shuffled."""
    return picks.num_runs <= _FEW_RUNS or len(picks) >= _LONG_RUN * picks.num_runs


def is_in_long_runs(picks: Picks) -> bool:
    """The same for columns, of which a range costs as much as hundreds of records."""
    return picks.num_runs <= _FEW_RUNS or len(picks) >= _LONG_COLUMNS * picks.num_runs


def by_shard(picks: Picks) -> Iterator[ShardPicks]:
    """For each shard the places of its records among all, and their indices."""
    # Of 16 bits they are counted, in a tenth of the time that comparing takes.
    owners = picks.owners.astype(np.uint16) if len(picks.shards) <= 1 << 16 else picks.owners
    order = np.argsort(owners, kind="stable")
    counts = np.bincount(picks.owners, minlength=len(picks.shards))
    indices, ends = picks.indices[order], np.cumsum(counts)
    for owner in np.flatnonzero(counts).tolist():
        some = slice(ends[owner] - counts[owner], ends[owner])
        yield picks.shards[owner], order[some], indices[some]


def read_runs(read: Read, picks: Picks) -> Iterator[Any]:
    """The records, or blocks of columns, a range at a time."""
    return chain.from_iterable(read(ReadTask(*run)) for run in picks.runs())


class _Window(Generic[_Held]):
    """What is held of the chunks that records were taken from last."""

    def __init__(self) -> None:
        self._held: OrderedDict[Shard, _Held] = OrderedDict()

    def get(self, shard: Shard, load: Callable[[], _Held], num_wanted: int) -> _Held:
        """What is held of a chunk, loaded where that is nothing; so many chunks are in work."""
        if shard not in self._held:
            self._held[shard] = load()
        self._held.move_to_end(shard)
        while len(self._held) > max(_LEAST_KEPT, 2 * num_wanted):
            self._held.popitem(last=False)
        return self._held[shard]

    def drop(self, shard: Shard) -> None:
        del self._held[shard]


class ChunkPicking:
    """Reads picks of records that only their reader can make; for one thread.

    Each record is given out once, as who gets it may change it, and a chunk is dropped with its
    last one.
    """

    def __init__(self) -> None:
        self._window = _Window[_Chunk]()

    def read(self, read: Read, picks: Picks) -> Iterator[Any]:
        """The records in their order.

        Args:
            read: Gives the records of a range; where it fails it raises a `DataError`. Not kept, as
                it belongs to who keeps this.
            picks: Which ones.
        """
        if is_in_runs(picks):
            return read_runs(read, picks)
        # Flattened by C code: a generator would be resumed for every record.
        return chain.from_iterable(self._blocks(read, picks))

    def _blocks(self, read: Read, picks: Picks) -> Iterator[Iterable[Any]]:
        for start in range(0, len(picks), _BLOCK):
            part = picks.part(start, start + _BLOCK)
            records = self._gather(read, part)
            # One by one, so that those before one at fault come, and it is named.
            yield read_runs(read, part) if records is None else records

    def _gather(self, read: Read, picks: Picks) -> Sequence[Any] | None:
        """The records in their order; None where one is of a chunk that cannot be decoded."""
        taken: list[Any] = []
        order: list[NDArray[np.intp]] = []
        for shard, places, indices in by_shard(picks):
            records = self._take(read, shard, indices - shard.start, len(picks.shards))
            if records is None:
                return None
            taken += records
            order.append(places)
        back = np.empty(len(picks), np.intp)
        back[np.concatenate(order)] = np.arange(len(picks))
        return [taken[place] for place in back.tolist()]

    def _take(
        self, read: Read, shard: Shard, at: NDArray[np.int64], num_wanted: int
    ) -> list[Any] | None:
        chunk = self._chunk(read, shard, num_wanted)
        if chunk.records and chunk.is_given[at].any():
            # Another epoch, or another try.
            self._window.drop(shard)
            chunk = self._chunk(read, shard, num_wanted)
        if not chunk.records:
            return None
        chunk.is_given[at] = True
        if chunk.is_given.all():
            self._window.drop(shard)
        return [chunk.records[index] for index in at.tolist()]

    def _chunk(self, read: Read, shard: Shard, num_wanted: int) -> "_Chunk":
        return self._window.get(shard, lambda: _decode(read, shard), num_wanted)


@dataclass(slots=True, eq=False)
class _Chunk:
    """The decoded records of a shard, none where that fails, and which were given out."""

    records: list[Any]
    is_given: NDArray[np.bool_]


def _decode(read: Read, shard: Shard) -> _Chunk:
    try:
        records = list(read(ReadTask(shard, shard.start, shard.end)))
    except DataError:
        # Told of the record that is at fault, when it is its turn.
        records = []
    return _Chunk(records, np.zeros(len(records), np.bool_))


class RawPicking:
    """Reads picks by the chunks that they are of; for one thread."""

    def __init__(self, look: Callable[[str], object]) -> None:
        """Begin with no chunks.

        Args:
            look: Looks at a file by its name; raises a `DataError` where it has changed.
        """
        self._look = look
        self._window = _Window[_RawChunk]()

    def read(
        self, raw: RawReader, read: Read, picks: Picks, is_forward: bool = False
    ) -> Iterator[Any]:
        """The records in their order.

        Args:
            raw: Reads and decodes them.
            read: Gives the records of a range, and names the one at fault where it fails.
            picks: Which ones.
            is_forward: Whether chunks should be read as they follow each other.
        """
        if is_in_runs(picks):
            return read_runs(read, picks)
        # Flattened by C code: a generator would be resumed for every record.
        return chain.from_iterable(self._blocks(raw, read, picks, is_forward))

    def _blocks(
        self, raw: RawReader, read: Read, picks: Picks, is_forward: bool
    ) -> Iterator[Iterable[Any]]:
        if is_forward:
            for shard in sorted(picks.shards, key=lambda shard: (shard.name, shard.start)):
                self._chunk(raw, shard, len(picks.shards))
        start, count = 0, _FIRST
        while start < len(picks):
            part = picks.part(start, start + count)
            start += count
            placed = self._place(raw, part)
            if placed is None:
                # One by one, so that those before one at fault come, and it is named.
                yield read_runs(read, part)
                continue
            each = max(1, placed.size // len(part))
            count = max(1, min(_PLACED, _PLACED_BYTES // each))
            step = max(1, min(_CUT, _CUT_BYTES // each))
            name = part.shards[0].name
            for begin in range(0, len(part), step):
                end = begin + step
                try:
                    yield raw.decode_raw(name, placed.cut(begin, end))
                except DataError:
                    yield read_runs(read, part.part(begin, end))

    def _place(self, raw: RawReader, picks: Picks) -> "_Placed | None":
        """Look up where records lie; None where one is of a chunk that cannot be read."""
        counts = np.bincount(picks.owners, minlength=len(picks.shards))
        used = np.flatnonzero(counts)
        chunks = []
        for owner in used.tolist():
            shard = picks.shards[owner]
            chunk = self._chunk(raw, shard, len(picks.shards))
            if chunk.records is None:
                return None
            chunk.num_left -= int(counts[owner])
            if chunk.num_left <= 0:
                self._window.drop(shard)
            chunks.append(chunk.records)
        # The first record of each chunk among those of all of them.
        firsts = np.cumsum([0, *(len(chunk.begins) for chunk in chunks[:-1])])
        shifts = np.zeros(len(picks.shards), np.int64)
        shifts[used] = firsts - [picks.shards[owner].start for owner in used.tolist()]
        at = picks.indices + shifts[picks.owners]
        begins = np.concatenate([chunk.begins for chunk in chunks])[at]
        ends = np.concatenate([chunk.ends for chunk in chunks])[at]
        numbers = np.zeros(len(picks.shards), np.int64)
        numbers[used] = np.arange(len(used))
        return _Placed([chunk.data for chunk in chunks], numbers[picks.owners], begins, ends)

    def _chunk(self, raw: RawReader, shard: Shard, num_wanted: int) -> "_RawChunk":
        return self._window.get(shard, lambda: self._read_chunk(raw, shard), num_wanted)

    def _read_chunk(self, raw: RawReader, shard: Shard) -> "_RawChunk":
        try:
            records = raw.read_raw(ReadTask(shard, shard.start, shard.end))
            self._look(shard.name)
        except DataError:
            # Told of the record that is at fault, when it is its turn.
            return _RawChunk(None, 0)
        return _RawChunk(records, shard.num_records)


@dataclass(slots=True, eq=False)
class _RawChunk:
    """The records of a shard, None where they cannot be read, and how many are still wanted."""

    records: RawRecords | None
    num_left: int


@dataclass(frozen=True, slots=True, eq=False)
class _Placed:
    """Where records lie: each in one of the runs of `data`."""

    data: Sequence[bytes | str]
    numbers: NDArray[np.int64]
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]

    @property
    def size(self) -> int:
        """Of all records."""
        return int((self.ends - self.begins).sum())

    def cut(self, start: int, end: int) -> list[bytes | str]:
        """The records `[start, end)` of these."""
        data = self.data
        spans = zip(
            self.numbers[start:end].tolist(),
            self.begins[start:end].tolist(),
            self.ends[start:end].tolist(),
            strict=True,
        )
        return [data[number][begin:end] for number, begin, end in spans]
