"""The units of a conversion done one after the other, or by several processes."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool

from elastic.data.conversion import Plan, Unit, UnitWriter, WrittenFile
from elastic.data.conversion_order import ShuffledRecords
from elastic.errors import PlatformError

_writers: list[UnitWriter] = []
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
