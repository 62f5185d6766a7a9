"""What a conversion comes to: units of work that need nothing of each other, and their order.

A range of records is one file, as they stand or of a shuffled order; a source of `prepare_data` is
as many as its records fill. The shuffled order is one of all sources, by the seed alone. It is an
epoch's order: what is read in chunks is shuffled by chunks, and then within windows of many, so
that no more than a window has to be in memory.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from elastic.data import open_reader
from elastic.data.base import Chunks, DataReader
from elastic.data.inspection import FieldForm
from elastic.data.picking import LEAST_MIXED, cut_shard
from elastic.errors import DataError, JobSpecError
from elastic.policy.order import OrderForm, RecordOrder, Shuffle
from elastic.policy.records import Picks, Places, Shard
from elastic.spec.model_def.contract import PREPARE_DATA

ALL_FIELDS: Final = "*"
FILE_PREFIX: Final = "part-"

_SINGLE_CHUNK: Final = 64
"""Records of one, of a source whose records can be read by themselves, beside others."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that decides what is written.

    Attributes:
        sources: What is read; for `prepare_data`, whatever it takes.
        destination: The folder of the files.
        format: One of `WRITERS`.
        records_per_file: Records of each file; the last one of a unit may have fewer.
        reader_params: As `--data_reader_params`, for the built-in formats.
        model_zoo: The folder of the module with `prepare_data`.
        model_def: That module with its model, or empty to convert files as they are.
        prepare_data: The name of the function.
        prepare_params: What it is called with besides the source.
        types: dtype by field, `*` for all others.
        shuffle_seed: Of the order in which records are written; None leaves them as they stand.
    """

    sources: tuple[str, ...]
    destination: str
    format: str = "npz"
    records_per_file: int = 10_000
    reader_params: Mapping[str, Any] = field(default_factory=dict)
    model_zoo: str = "."
    model_def: str = ""
    prepare_data: str = PREPARE_DATA.field
    prepare_params: Mapping[str, Any] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)
    shuffle_seed: int | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """Records `[start, end)` of a shard of the source with that index."""

    source: int
    shard: Shard
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Span:
    """Places `[start, end)` of a shuffled order, and what that is made of."""

    start: int
    end: int
    layout: str


@dataclass(frozen=True, slots=True)
class Unit:
    """Work that is done or not done as a whole.

    Attributes:
        index: Its place, and the number in the names of its files.
        parts: The records of its file, as they stand in the sources.
        num_records: How many there are, or None where only `prepare_data` can tell.
        span: The records of its file, where they are shuffled. Without parts and span, the unit is
            what `prepare_data` makes of the source `index`.
    """

    index: int
    parts: tuple[Part, ...] = ()
    num_records: int | None = None
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """One finished file of the destination."""

    name: str
    num_records: int
    forms: dict[str, FieldForm]


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


@dataclass(frozen=True, slots=True)
class Work:
    """All that a plan comes to.

    Attributes:
        units: The parts of it.
        shuffled: The order that their spans are of.
    """

    units: list[Unit]
    shuffled: ShuffledRecords | None = None


def cut_work(plan: Plan) -> Work:
    """The whole work; reads the built-in sources once where their format needs it.

    Raises:
        DataError: A source is missing, unreadable, empty or malformed, or cannot be shuffled.
        JobSpecError: A reader parameter has no meaning.
    """
    if plan.shuffle_seed is None:
        return Work(_units_in_order(plan))
    if plan.model_def:
        raise JobSpecError(
            "--shuffle has no meaning with --model_def, whose prepare_data gives records one after "
            "the other: leave it out, and then convert what that has written with --shuffle"
        )
    found = [opened(plan, origin).create_chunks() for origin in plan.sources]
    shuffled = ShuffledRecords(plan.sources, found, plan.shuffle_seed)
    layout, total = shuffled.layout(), shuffled.num_records
    units: list[Unit] = []
    for start in range(0, total, plan.records_per_file):
        end = min(start + plan.records_per_file, total)
        units.append(Unit(len(units), (), end - start, Span(start, end, layout)))
    return Work(units, shuffled)


def _units_in_order(plan: Plan) -> list[Unit]:
    if plan.model_def:
        return [Unit(index) for index in range(len(plan.sources))]
    units: list[Unit] = []
    parts: list[Part] = []
    room = plan.records_per_file
    for source, origin in enumerate(plan.sources):
        for shard in opened(plan, origin).create_shards():
            start = shard.start
            while start < shard.end:
                end = min(shard.end, start + room)
                parts.append(Part(source, shard, start, end))
                room -= end - start
                start = end
                if not room:
                    units.append(Unit(len(units), tuple(parts), plan.records_per_file))
                    parts, room = [], plan.records_per_file
    if parts:
        units.append(Unit(len(units), tuple(parts), plan.records_per_file - room))
    return units


def opened(plan: Plan, origin: str) -> DataReader:
    """The reader of a source; made without any I/O."""
    return open_reader(origin, plan.records_per_file, plan.reader_params, None)
