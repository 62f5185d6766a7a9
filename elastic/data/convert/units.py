"""The units of a conversion done: their records read or prepared, and written as whole files.

One after the other, or by several processes.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elastic.data.base import ReadTask
from elastic.data.columns import array_of, fields_of
from elastic.data.convert.plan import (
    ALL_FIELDS,
    FILE_PREFIX,
    Plan,
    ShuffledRecords,
    Unit,
    WrittenFile,
    opened,
)
from elastic.data.convert.writers import WRITERS
from elastic.data.inspection import FieldForm
from elastic.errors import DataError, ElasticError, PlatformError
from elastic.spec.model_def import load_function
from elastic.spec.model_def.contract import PREPARE_DATA
from elastic.spec.user_frames import describe

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
