"""Records in any order from chunks that are kept as they are stored.

To cut a record out of its chunk is to copy its bytes once, at the moment it is wanted: it is made a
record while it is still in the processor's cache, and nothing is kept of it.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from elastic.data.base import RawReader, RawRecords, ReadTask
from elastic.data.picking import Read, is_in_runs, read_runs
from elastic.errors import DataError
from elastic.policy.records import Picks, Shard

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


class RawPicking:
    """Reads picks by the chunks that they are of; for one thread."""

    def __init__(self, look: Callable[[str], object]) -> None:
        """Begin with no chunks.

        Args:
            look: Looks at a file by its name; raises a `DataError` where it has changed.
        """
        self._look = look
        self._kept: OrderedDict[Shard, _Chunk] = OrderedDict()

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
                del self._kept[shard]
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

    def _chunk(self, raw: RawReader, shard: Shard, num_wanted: int) -> "_Chunk":
        chunk = self._kept.get(shard)
        if chunk is None:
            chunk = self._kept[shard] = self._read_chunk(raw, shard)
        self._kept.move_to_end(shard)
        while len(self._kept) > max(_LEAST_KEPT, 2 * num_wanted):
            self._kept.popitem(last=False)
        return chunk

    def _read_chunk(self, raw: RawReader, shard: Shard) -> "_Chunk":
        try:
            records = raw.read_raw(ReadTask(shard, shard.start, shard.end))
            self._look(shard.name)
        except DataError:
            # Told of the record that is at fault, when it is its turn.
            return _Chunk(None, 0)
        return _Chunk(records, shard.num_records)


@dataclass(slots=True, eq=False)
class _Chunk:
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
