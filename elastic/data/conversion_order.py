"""The shuffled order in which a conversion writes records: one of all sources, by the seed alone.

It is an epoch's order: what is read in chunks is shuffled by chunks, and then within windows of
many, so that no more than a window has to be in memory.
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from elastic.data.base import Chunks, DataReader
from elastic.data.picking import LEAST_MIXED, cut_shard
from elastic.errors import DataError
from elastic.policy.order import OrderForm, RecordOrder, Shuffle
from elastic.policy.records import Picks, Places, Shard

_SINGLE_CHUNK: Final = 64
"""Records of one, of a source whose records can be read by themselves, beside others."""


class ShuffledRecords:
    """The records of several sources in one order."""

    def __init__(self, origins: Sequence[str], found: Sequence[Chunks], seed: int) -> None:
        """Lay out the order.

        Args:
            origins: The sources.
            found: Their records, in the same order.
            seed: Of the order.

        Raises:
            DataError: A source can only be read forward.
        """
        for origin, chunks in zip(origins, found, strict=True):
            if chunks.is_forward:
                raise DataError(
                    f"{origin} is compressed, so it can only be read forward, and --shuffle would "
                    "move its records by a few MiB at most: decompress it, or convert it without "
                    "--shuffle, and then what that has written with it"
                )
        are_single = all(chunks.mixed is None for chunks in found)
        shards = [
            part
            for chunks in found
            for shard in chunks.shards
            for part in _parts(shard, is_whole=are_single or chunks.mixed is not None)
        ]
        self._places = Places(shards)
        self._sources = {
            shard.name: source for source, chunks in enumerate(found) for shard in chunks.shards
        }
        mixed = max(chunks.mixed or LEAST_MIXED for chunks in found)
        form = OrderForm(Shuffle.RECORDS, mixed=mixed)
        firsts = () if are_single else self._places.firsts
        self._order = RecordOrder(self._places.num_records, seed, form, firsts)

    @property
    def num_records(self) -> int:
        return self._places.num_records

    def layout(self) -> str:
        """What tells orders of other chunks apart."""
        digest = hashlib.blake2b(digest_size=16)
        for shard in self._places.shards:
            digest.update(repr(shard).encode())
        return digest.hexdigest()

    def read(self, start: int, end: int, readers: Sequence[DataReader]) -> Iterator[Any]:
        """The records at places `[start, end)` of the order.

        Args:
            start: The first one.
            end: One past the last.
            readers: Of the sources.

        Raises:
            DataError: A record cannot be read.
        """
        picks = self._places.pick(self._order.records(0, start, end))
        sources = np.array([self._sources[shard.name] for shard in picks.shards])[picks.owners]
        records = {
            source: readers[source].read_picks(_chosen(picks, sources == source))
            for source in np.unique(sources).tolist()
        }
        for source in sources.tolist():
            yield next(records[source])


def _parts(shard: Shard, *, is_whole: bool) -> Iterator[Shard]:
    return iter((shard,)) if is_whole else cut_shard(shard, _SINGLE_CHUNK)


def _chosen(picks: Picks, is_chosen: Any) -> Picks:
    """Some of the picks, with the shards that these are of alone."""
    used, owners = np.unique(picks.owners[is_chosen], return_inverse=True)
    shards = tuple(picks.shards[owner] for owner in used.tolist())
    return Picks(shards, owners.astype(np.int32), picks.indices[is_chosen])
