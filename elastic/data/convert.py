"""Records of sources, or what the user's `prepare_data` makes of them, written as files.

Belongs here: what there is to do, the folder that says whether all of it is done, and doing it.
Does not belong here: what a file is made of (`writers`), and reading (`readers`, `formats`).
"""

import errno
import fcntl
import hashlib
import json
import multiprocessing
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from elastic.data import open_reader
from elastic.data.base import Chunks, DataReader, ReadTask, array_of, fields_of
from elastic.data.inspection import FieldForm
from elastic.data.picking import LEAST_MIXED, cut_shard
from elastic.data.sources import MANIFEST, UNFINISHED
from elastic.data.writers import WRITERS
from elastic.errors import DataError, ElasticError, JobSpecError, PlatformError
from elastic.policy.tasks.epochs import OrderForm, RecordOrder, Shuffle
from elastic.policy.tasks.records import Picks, Places, Shard
from elastic.spec.model_def import PREPARE_DATA, error_text, load_function

# What a conversion comes to, and the folder that says what is done of it.
#
# It is units of work that need nothing of each other, and their order. A range of records is one
# file, as they stand or of a shuffled order; a source of `prepare_data` is as many as its records
# fill. The shuffled order is one of all sources, by the seed alone. It is an epoch's order: what is
# read in chunks is shuffled by chunks, and then within windows of many, so that no more than a
# window has to be in memory.
#
# While files are missing the folder holds `.unfinished/`, and no reader takes it for data; a second
# run of the same plan goes on from what it says, once the first has ended. Last comes
# `_manifest.json`.


ALL_FIELDS: Final = "*"
FILE_PREFIX: Final = "part-"

_SINGLE_CHUNK: Final = 64
"""Records of one, of a source whose records can be read by themselves, beside others."""

_PLAN: Final = "plan.json"
_LOCK: Final = "lock"
_FINISHED: Final = ".finished"
"""What `.unfinished` is called while it is being removed."""
_NO_LOCKS: Final = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""Of file systems that have no locks."""


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


class ConversionFolder:
    """The destination of one plan."""

    def __init__(self, plan: Plan, units: Sequence[Unit]) -> None:
        self._root = Path(plan.destination)
        self._state = self._root / UNFINISHED
        # Through JSON, since the plan of the run before comes from there.
        self._plan = json.loads(json.dumps({"plan": asdict(plan), "units": [*map(asdict, units)]}))
        self._files: dict[int, list[WrittenFile]] = {}
        self._lock: int | None = None

    @property
    def files(self) -> list[WrittenFile]:
        """Of the finished units, in order."""
        return [file for index in sorted(self._files) for file in self._files[index]]

    def open(self) -> set[int]:
        """Make the folder, or go on with one; gives the units that are done.

        Nobody else can open it until `close`, or until this process has ended.

        Raises:
            DataError: Something else is there already, or another run is filling it.
        """
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            found = self._names()
            if not found:
                # Another run may do the same in this moment; the lock chooses one of them.
                self._state.mkdir(exist_ok=True)
            elif UNFINISHED not in found:
                raise self._not_empty(found)
            self._take_lock()
            self._go_on(self._names())
        except OSError as error:
            raise DataError(
                f"{self._root} is no folder to write to ({error.strerror}): name another one"
            ) from error
        return set(self._files)

    def close(self) -> None:
        """Let others open the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def finish_unit(self, index: int, files: list[WrittenFile]) -> None:
        """Note that all files of a unit are there."""
        self._files[index] = files
        _write_json(self._state / f"{index}.json", [asdict(file) for file in files])

    def finish(self) -> None:
        """Say what is there, and let readers in; closes the folder.

        Raises:
            DataError: There are no records, files differ in what a field holds, or somebody has
                removed one.
        """
        files = self.files
        if not files:
            raise DataError(f"there are no records to write to {self._root}")
        if missing := sorted({file.name for file in files} - self._names()):
            raise DataError(
                f"{self._root} has lost {missing[0]}, which this conversion had written: have "
                "nothing else write to the folder, and repeat the command, which makes it again"
            )
        forms = files[0].forms
        for file in files[1:]:
            # What one file cannot hold, all of them together should not.
            _check_alike(files[0], forms, file, has_shapes=self._plan["plan"]["format"] == "npz")
            forms = {name: form.joined(file.forms[name]) for name, form in forms.items()}
        _write_json(
            self._root / MANIFEST,
            {
                "format": self._plan["plan"]["format"],
                "sources": self._plan["plan"]["sources"],
                "num_records": sum(file.num_records for file in files),
                "fields": {name: str(form) for name, form in forms.items()},
                "files": {file.name: file.num_records for file in files},
            },
        )
        # In one step: a run that is killed here leaves no state of which a part is gone.
        state = self._state.rename(self._root / _FINISHED)
        # NFS keeps a removed file in its folder for as long as it is open, as the lock is.
        self.close()
        # All is there for readers, who skip what is left of it.
        shutil.rmtree(state, ignore_errors=True)

    def _names(self) -> set[str]:
        return {path.name for path in self._root.iterdir()}

    def _not_empty(self, found: set[str]) -> DataError:
        return DataError(
            f"{self._root} is not empty: name a new folder, or remove this one (it has "
            f"{min(found)})"
        )

    def _take_lock(self) -> None:
        path = self._state / _LOCK
        try:
            # The system gives it back when this process ends, however that comes about.
            self._lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                # Without locks, `finish` still sees what another run has removed.
                if error.errno not in _NO_LOCKS:
                    raise
            # Who had the lock may have finished before it was given to this run.
            is_there = os.path.samestat(os.fstat(self._lock), path.stat())
        except (BlockingIOError, FileNotFoundError):
            is_there = False
        if not is_there:
            raise DataError(
                f"another conversion is filling {self._root}: wait until it has ended, or name "
                "another folder"
            )

    def _go_on(self, found: set[str]) -> None:
        try:
            plan = self._state / _PLAN
            # A run that was killed at once has left none.
            before = json.loads(plan.read_text()) if plan.exists() else None
            for path in self._state.glob("[0-9]*.json"):
                files = [_file(item) for item in json.loads(path.read_text())]
                if found.issuperset(file.name for file in files):
                    self._files[int(path.stem)] = files
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{self._root} holds an unfinished conversion that cannot be read ({error}): "
                "remove the folder and start again"
            ) from error
        if before != self._plan and self._files:
            raise DataError(
                f"{self._root} holds an unfinished conversion of other sources or with other "
                "options: repeat it as it was, or remove the folder"
            )
        if before is None and found != {UNFINISHED}:
            raise self._not_empty(found - {UNFINISHED})
        if before != self._plan:
            _write_json(self._state / _PLAN, self._plan)
        done = {file.name for file in self.files}
        for pattern in (f"{FILE_PREFIX}*", f".{FILE_PREFIX}*"):
            for path in self._root.glob(pattern):
                # Of units that were under way: they come again.
                if path.name not in done:
                    path.unlink()


def _check_alike(
    first: WrittenFile, forms: dict[str, FieldForm], file: WrittenFile, has_shapes: bool
) -> None:
    for name in (*forms, *file.forms):
        one, other = forms.get(name), file.forms.get(name)
        if one is not None and other is not None:
            both = one.joined(other)
            is_alike = both == one if has_shapes else both.kind == one.kind
        else:
            is_alike = False
        if not is_alike:
            raise DataError(
                f"field {name!r} is {one or 'missing'} in {first.name}, but {other or 'missing'} "
                f"in {file.name}: make it the same everywhere, as with --type {name}=..."
            )


def _file(item: dict[str, Any]) -> WrittenFile:
    forms = {
        name: FieldForm(form["kind"], None if form["shape"] is None else tuple(form["shape"]))
        for name, form in item["forms"].items()
    }
    return WrittenFile(item["name"], item["num_records"], forms)


def _write_json(path: Path, value: Any) -> None:
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        unfinished.write_text(json.dumps(value, indent=1))
        unfinished.rename(path)
    except OSError as error:
        raise DataError(f"{path} cannot be written ({error.strerror}): make room") from error


# The units of a conversion done: their records read or prepared, and written as whole files.
#
# One after the other, or by several processes.


_writers: "list[UnitWriter]" = []
"""The one writer of a process of the pool."""


def write_units(
    plan: Plan,
    units: Sequence[Unit],
    num_processes: int,
    shuffled: ShuffledRecords | None = None,
) -> Iterator[tuple[Unit, WrittenFile | None]]:
    """Do units, and tell each file; None instead of a file says that all of its unit are there.

    Args:
        plan: What they are of.
        units: Those to do.
        num_processes: That do them at once.
        shuffled: The order that their spans are of.

    Raises:
        DataError: A record cannot be read, made or written.
        ModelDefError: The module has no usable `prepare_data`.
        PlatformError: A process was killed.
    """
    if min(num_processes, len(units)) < 2:
        writer = UnitWriter(plan, shuffled)
        for unit in units:
            for file in writer.write(unit):
                yield unit, file
            yield unit, None
        return
    yield from _write_in_processes(plan, units, num_processes, shuffled)


def _write_in_processes(
    plan: Plan, units: Sequence[Unit], num_processes: int, shuffled: ShuffledRecords | None
) -> Iterator[tuple[Unit, WrittenFile | None]]:
    # A framework that the user's module imports does not survive a fork of its threads.
    context = multiprocessing.get_context("spawn")
    before = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(min(num_processes, len(units)), context, _start, (plan, shuffled))
    try:
        futures = {pool.submit(_write, unit): unit for unit in units}
        for future in as_completed(futures):
            for file in future.result():
                yield futures[future], file
            yield futures[future], None
        pool.shutdown()
    except BrokenProcessPool as error:
        raise PlatformError(
            "a process of the conversion was killed, perhaps for its memory: take fewer "
            "--num_workers or --records_per_file; the same command goes on from here"
        ) from error
    finally:
        # After an error or Ctrl-C nobody waits for what the others are doing.
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - before:
            process.terminate()


def _start(plan: Plan, shuffled: ShuffledRecords | None) -> None:
    # Ctrl-C reaches every process of the terminal; the first one ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _writers.append(UnitWriter(plan, shuffled))


def _end_with_parent() -> None:
    """Write nothing any more once the first process was killed: its command may be repeated."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "only the processes of the pool come here"
    parent.join()
    os._exit(1)


def _write(unit: Unit) -> list[WrittenFile]:
    return list(_writers[0].write(unit))


class UnitWriter:
    """Does units of one plan in one process."""

    def __init__(self, plan: Plan, shuffled: ShuffledRecords | None = None) -> None:
        self._plan = plan
        self._shuffled = shuffled
        # Made without any I/O.
        self._readers = [] if plan.model_def else [opened(plan, each) for each in plan.sources]
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
            raise DataError(
                f"{plan.prepare_data}({source!r}) failed: {error_text(error)}"
            ) from error


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
