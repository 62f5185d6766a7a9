"""The user's own reader: called as ElasticDL calls it, and checked at every step.

A reader that delivers too few or too many records would silently break the count of records, so
what it delivers is counted against what was asked for.
"""

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

from elastic.data.base import Chunks, ReadTask
from elastic.data.picking import LEAST_MIXED, ChunkPicking, cut_shard
from elastic.errors import DataError
from elastic.policy.tasks.records import Picks, Shard
from elastic.spec.user_frames import describe

_MAX_CHUNK: Final = 64
"""Records that are asked for at once where records are shuffled: each time may cost an opening."""

_LEAST_CHUNKS: Final = 256

_SHARDS_HINT = (
    "return a list of elastic Shard objects, a dict name -> (start, number of records), or a list "
    "of (name, start, end)"
)


class CustomReader:
    """Adapts an object with `create_shards()` and `read_records(task)`."""

    def __init__(self, reader: Any) -> None:
        for method in ("create_shards", "read_records"):
            if not callable(getattr(reader, method, None)):
                raise DataError(
                    f"custom_data_reader returned a {type(reader).__name__} without the method "
                    f"{method}: see docs/data.md for what a reader has"
                )
        self._reader = reader
        self._picking = ChunkPicking()

    def create_shards(self) -> list[Shard]:
        """Call the user's `create_shards` and check what it returns.

        Raises:
            DataError: It failed, or returned no shards, odd ranges, or a record twice.
        """
        try:
            returned = self._reader.create_shards()
        except (Exception, SystemExit) as error:
            raise DataError(
                f"create_shards of the custom_data_reader failed: {describe(error)}"
            ) from error
        shards = _to_shards(returned)
        if not shards:
            raise DataError("create_shards of the custom_data_reader returned no shards")
        _check_disjoint(shards)
        return shards

    def create_chunks(self) -> Chunks:
        """Parts of the same, small beside all records; shards that have a place are left whole.

        Raises:
            DataError: As `create_shards`.
        """
        shards = self.create_shards()
        each = max(1, min(_MAX_CHUNK, sum(s.num_records for s in shards) // _LEAST_CHUNKS))
        chunks: list[Shard] = []
        for shard in shards:
            chunks += [shard] if shard.offset_bytes is not None else cut_shard(shard, each)
        return Chunks(chunks, LEAST_MIXED)

    def read_picks(self, picks: Picks) -> Iterator[Any]:
        """Yield records in any order, by chunks.

        Raises:
            DataError: As `read_records`.
        """
        return self._picking.read(self.read_records, picks)

    def read_columns(self, wanted: ReadTask | Picks) -> None:
        """There are none: the user's reader gives records."""

    def read_records(self, task: ReadTask) -> Iterator[Any]:
        """Yield what the user's `read_records` yields for the range.

        Raises:
            DataError: It failed, or delivered another number of records than was asked for.
        """
        where = f"{task.shard.name}, records [{task.start}, {task.end})"
        expected = task.end - task.start
        if expected == 0:
            return
        records = self._start(task, where)
        record = _next(records, f"{where}, record {task.start}")
        for count in range(1, expected + 1):
            if record is _END:
                raise DataError(
                    f"{where}: read_records of the custom_data_reader delivered {count - 1} "
                    f"records instead of {expected}"
                )
            # One ahead, because who takes exactly `expected` records never asks for another one.
            following = _next(records, f"{where}, record {task.start + count}")
            if count == expected and following is not _END:
                raise DataError(
                    f"{where}: read_records of the custom_data_reader delivered {expected + 1} or "
                    f"more records instead of {expected}: stop at task.end"
                )
            yield record
            record = following

    def _start(self, task: ReadTask, where: str) -> Iterator[Any]:
        shard = task.shard
        if shard.offset_bytes is None:
            # Later versions of ElasticDL put the range of a task into `task.shard`.
            shard = replace(shard, start=task.start, end=task.end)
        try:
            return iter(self._reader.read_records(ReadTask(shard, task.start, task.end)))
        except (Exception, SystemExit) as error:
            raise DataError(
                f"{where}: read_records of the custom_data_reader failed: {describe(error)}"
            ) from error


def build_custom_reader(
    custom: Callable[..., Any], origin: str, records_per_task: int, params: Mapping[str, Any]
) -> CustomReader:
    """Make the user's reader.

    Raises:
        DataError: It cannot be made, or lacks a method.
    """
    try:
        reader = custom(origin, records_per_task, **params)
    except (Exception, SystemExit) as error:
        given = "".join(f", {name}={value!r}" for name, value in params.items())
        raise DataError(
            f"custom_data_reader({origin!r}, {records_per_task}{given}) failed: {describe(error)}"
        ) from error
    return CustomReader(reader)


_END = object()


def _next(records: Iterator[Any], where: str) -> Any:
    try:
        return next(records, _END)
    except (Exception, SystemExit) as error:
        raise DataError(
            f"{where}: read_records of the custom_data_reader failed: {describe(error)}"
        ) from error


def _to_shards(returned: Any) -> list[Shard]:
    try:
        if isinstance(returned, Mapping):
            ranges = [(name, start, start + count) for name, (start, count) in returned.items()]
        else:
            ranges = list(returned)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"create_shards of the custom_data_reader returned {_shown(returned)}: {_SHARDS_HINT}"
        ) from error
    return [_to_shard(item) for item in ranges]


def _to_shard(item: Any) -> Shard:
    try:
        if isinstance(item, Shard):
            shard = item
        else:
            name, start, end = item
            shard = Shard(str(name), operator.index(start), operator.index(end))
    except (TypeError, ValueError) as error:
        raise DataError(
            f"create_shards of the custom_data_reader returned the shard {_shown(item)} "
            f"({error}): {_SHARDS_HINT}"
        ) from error
    if shard.num_records == 0:
        raise DataError(
            f"create_shards of the custom_data_reader returned the shard {shard.name!r} without "
            f"records ([{shard.start}, {shard.end})): leave it out"
        )
    return shard


def _check_disjoint(shards: list[Shard]) -> None:
    ordered = sorted(shards, key=lambda shard: (shard.name, shard.start))
    for one, other in pairwise(ordered):
        if one.name == other.name and other.start < one.end:
            raise DataError(
                f"create_shards of the custom_data_reader returned record {other.start} of "
                f"{one.name!r} twice, in [{one.start}, {one.end}) and "
                f"[{other.start}, {other.end}): every record must be in one shard"
            )


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"
