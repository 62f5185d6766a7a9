"""Records of sources, or what the user's `prepare_data` makes of them, written as files.

The work is cut into units that need nothing of each other: a range of records is one file, as they
stand or of a shuffled order; a source of `prepare_data` is as many as its records fill.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from elastic.data import open_reader
from elastic.data.base import DataReader, ReadTask
from elastic.data.conversion_order import ShuffledRecords
from elastic.data.exact import array_of
from elastic.data.fields import FieldForm, fields_of
from elastic.data.writers import WRITERS
from elastic.errors import DataError, ElasticError, JobSpecError
from elastic.policy.records import Shard
from elastic.spec.model_def import load_function
from elastic.spec.model_def.contract import PREPARE_DATA
from elastic.spec.user_frames import describe

ALL_FIELDS: Final = "*"
FILE_PREFIX: Final = "part-"


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
    found = [_opened(plan, origin).create_chunks() for origin in plan.sources]
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
        for shard in _opened(plan, origin).create_shards():
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


def _opened(plan: Plan, origin: str) -> DataReader:
    return open_reader(origin, plan.records_per_file, plan.reader_params, None)


class UnitWriter:
    """Does units of one plan in one process."""

    def __init__(self, plan: Plan, shuffled: ShuffledRecords | None = None) -> None:
        self._plan = plan
        self._shuffled = shuffled
        # Made without any I/O.
        self._readers = [] if plan.model_def else [_opened(plan, each) for each in plan.sources]
        self._prepare: Callable[..., Any] | None = None

    def write(self, unit: Unit) -> Iterator[WrittenFile]:
        """Write the files of a unit, each complete when it is told.

        Raises:
            DataError: A record cannot be read, made or written.
            ModelDefError: The module has no usable `prepare_data`.
        """
        plan = self._plan
        records = self._records(unit)
        suffix = WRITERS[plan.format].suffix
        for number in range(10**9):
            chunk = list(islice(records, plan.records_per_file))
            if not chunk:
                return
            within = f"-{number:05}" if plan.model_def else ""
            name = f"{FILE_PREFIX}{unit.index:05}{within}{suffix}"
            try:
                if plan.types:
                    chunk = [_cast(record, plan.types) for record in chunk]
                forms = _write_whole(plan, chunk, name)
            except DataError as error:
                raise DataError(f"{self._source(unit)}, in {name}: {error}") from error
            yield WrittenFile(name, len(chunk), forms)

    def _source(self, unit: Unit) -> str:
        """What a unit is of, for errors."""
        if unit.span is not None:
            return ", ".join(self._plan.sources)
        return self._plan.sources[unit.parts[0].source if unit.parts else unit.index]

    def _records(self, unit: Unit) -> Iterator[Any]:
        if unit.span is not None:
            assert self._shuffled is not None, "spans are of an order"
            return self._shuffled.read(unit.span.start, unit.span.end, self._readers)
        return self._read(unit) if unit.parts else self._prepared(self._plan.sources[unit.index])

    def _read(self, unit: Unit) -> Iterator[Any]:
        for part in unit.parts:
            task = ReadTask(part.shard, part.start, part.end)
            yield from self._readers[part.source].read_records(task)

    def _prepared(self, source: str) -> Iterator[Any]:
        plan = self._plan
        if self._prepare is None:
            self._prepare = load_function(
                Path(plan.model_zoo), plan.model_def, PREPARE_DATA, plan.prepare_data
            )
        try:
            yield from self._prepare(source, **plan.prepare_params)
        except (ElasticError, GeneratorExit):
            raise
        except (Exception, SystemExit) as error:
            raise DataError(f"{plan.prepare_data}({source!r}) failed: {describe(error)}") from error


def _write_whole(plan: Plan, records: Sequence[Any], name: str) -> dict[str, FieldForm]:
    """Give a file its name when all of it is there; returns what its fields hold."""
    path = Path(plan.destination) / name
    unfinished = path.with_name(f".{name}.unfinished")
    unfinished.unlink(missing_ok=True)
    try:
        forms = WRITERS[plan.format].write(records, unfinished)
        unfinished.rename(path)
    except OSError as error:
        raise DataError(
            f"{path} cannot be written ({error.strerror or error}): make room, or check the folder"
        ) from error
    finally:
        unfinished.unlink(missing_ok=True)
    return forms


def _cast(record: Any, types: Mapping[str, str]) -> dict[str, Any]:
    rest = types.get(ALL_FIELDS)
    return {
        name: _cast_value(name, value, types.get(name, rest))
        for name, value in fields_of(record).items()
    }


def _cast_value(name: str, value: Any, dtype: str | None) -> Any:
    if dtype is None:
        return value
    try:
        if dtype == "str":
            return value.decode() if isinstance(value, bytes) else str(value)
        if isinstance(value, str) and dtype == "bool":
            return np.bool_({"true": True, "1": True, "false": False, "0": False}[value.lower()])
        kind = np.dtype(dtype)
        # Who asks for floating-point numbers has rounded ones.
        return _as_numbers((array_of if kind.kind in "iu" else np.asarray)(value), kind)[()]
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise DataError(
            f"field {name!r} holds {value!r}, which is no {dtype}: choose another --type {name}=..."
        ) from error


def _as_numbers(array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The same numbers in another type.

    Raises:
        ValueError: One is no number, or none that a number of this size can be.
    """
    if array.dtype.kind == "c" and dtype.kind != "c":
        raise ValueError(f"{array} is complex")
    if dtype.kind == "f":
        return _as_floats(array, dtype)
    if dtype.kind not in "iu":
        return array.astype(dtype)
    if array.dtype.kind == "U":
        array = array.astype(np.int64 if dtype.kind == "i" else np.uint64)
    with np.errstate(invalid="ignore"):
        whole = array.astype(dtype)
    # NumPy wraps around and cuts off without a word.
    if not np.array_equal(whole, array):
        raise ValueError(f"{array} would become {whole}")
    return whole


def _as_floats(array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    wide = array.astype(np.float64)
    with np.errstate(over="ignore"):
        narrow = wide.astype(dtype)
    if not np.array_equal(np.isinf(narrow), np.isinf(wide)):
        raise ValueError(f"{array} would become {narrow}")
    return narrow
