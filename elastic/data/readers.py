"""Readers of a job's records: the built-in one of files of one format, and the user's own."""

import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from typing import Any, Final

from elastic.data.base import (
    Chunks,
    ColumnReader,
    FormatReader,
    PickReader,
    RawReader,
    ReadTask,
    check_extra,
)
from elastic.data.formats.registry import (
    FORMATS,
    ReaderOptions,
    check_used,
    format_of,
    is_folder,
    parse_options,
)
from elastic.data.picking import LEAST_MIXED, ChunkPicking, RawPicking, cut_shard
from elastic.data.sources import common_format, list_files, open_files
from elastic.data.storage import OpenFiles
from elastic.errors import DataError
from elastic.policy.tasks.records import Columns, Picks, Shard
from elastic.spec.model_def import error_text


class FileReader:
    """Reads files of one format: named, in folders, matched by globs, here or far away.

    Only `create_shards` looks at the whole source. A worker's reader is made from the same
    arguments without any I/O, and reads what a shard's name and offset lead to.
    """

    def __init__(
        self, origin: str, records_per_task: int, params: Mapping[str, Any], beside: bool = False
    ) -> None:
        self._origin = origin
        self._records_per_task = records_per_task
        self._params = dict(params)
        self._options = parse_options(params)
        if not beside:
            self._options = replace(self._options, processes=0)
        self._files = open_files(self._options)
        self._formats: dict[str, FormatReader] = {}
        self._picking = RawPicking(self._files.get)

    def create_shards(self) -> list[Shard]:
        """List the shards of all files, sorted by path.

        Raises:
            DataError: The source is missing, unreadable, empty or malformed.
            JobSpecError: A reader parameter has no meaning for the format.
        """
        size = self._records_per_task
        return list(self._find(lambda form, names: Chunks(form.create_shards(names, size))).shards)

    def create_chunks(self) -> Chunks:
        """The same as chunks; raises the same."""
        return self._find(lambda form, names: form.create_chunks(names))

    def _find(self, find: Callable[[FormatReader, Sequence[str]], Chunks]) -> Chunks:
        names = list_files(self._origin)
        format_name = self._options.format or common_format(self._origin, names)
        check_used(self._params, format_name)
        files = [name for name in names if not is_folder(name)]
        for name in files:
            if self._files.get(name).size == 0:
                raise _empty(name)
        found = find(self._format(format_name), names)
        filled = {shard.name for shard in found.shards}
        for name in files:
            self._files.get(name)  # a file that grew during the scan was not counted whole
        for name in names:
            if name not in filled:
                raise _empty(name)
        fingerprints = {name: self._files.get(name).fingerprint() for name in files}
        shards = [
            replace(shard, fingerprint=fingerprints.get(shard.name, shard.fingerprint))
            for shard in found.shards
        ]
        return replace(found, shards=shards)

    def read_picks(self, picks: Picks) -> Iterator[Any]:
        """Yield records of any shards in any order.

        Raises:
            DataError: A record cannot be read, or its file has changed.
        """
        form = self._format_of(picks)
        names = {shard.name for shard in picks.shards}
        if isinstance(form, PickReader):
            return form.read_picks(picks)
        if isinstance(form, RawReader):
            is_forward = any(self._files.get(name).is_forward for name in names)
            return self._picking.read(form, self.read_records, picks, is_forward)
        raise AssertionError("every format reads picks, or raw records")

    def read_records(self, task: ReadTask) -> Iterator[Any]:
        """Yield the records of a range of one shard.

        Raises:
            DataError: A record cannot be read, or the file has changed.
        """
        form = self._format_of(task)
        if task.start == task.end:
            return iter(())
        records = form.read_records(task)
        # Chained in C: a generator between a record and who wants it costs as much as the record.
        return chain(records, self._look_again({task.shard.name}))

    def read_columns(self, wanted: ReadTask | Picks) -> Iterator[Columns] | None:
        """Records as columns; None where a format has none.

        Raises:
            DataError: As `read_records` and `read_picks`.
        """
        form = self._format_of(wanted)
        if not isinstance(form, ColumnReader):
            return None
        if isinstance(wanted, Picks):
            blocks, names = form.pick_columns(wanted), {shard.name for shard in wanted.shards}
        else:
            blocks, names = form.read_columns(wanted), {wanted.shard.name}
        return chain(blocks, self._look_again(names))

    def _format_of(self, wanted: ReadTask | Picks) -> FormatReader:
        """What reads these records, of files that are what they were."""
        if isinstance(wanted, Picks):
            shards: Sequence[Shard] = wanted.shards
        else:
            shard = wanted.shard
            if not shard.start <= wanted.start <= wanted.end <= shard.end:
                raise DataError(
                    f"{shard.name}: records [{wanted.start}, {wanted.end}) are outside the shard "
                    f"[{shard.start}, {shard.end})"
                )
            shards = (shard,)
        form = self._format(self._options.format or format_of(shards[0].name))
        for shard in shards:
            self._expect(shard)
        return form

    def _expect(self, shard: Shard) -> None:
        if shard.fingerprint and not is_folder(shard.name):
            self._files.expect(shard.name, shard.fingerprint)

    def _look_again(self, names: Collection[str]) -> Iterator[Any]:
        """Gives nothing, once a task's records are read, unless a file has changed meanwhile."""
        for name in names:
            if not is_folder(name):
                self._files.get(name)
        yield from ()

    def _format(self, name: str) -> FormatReader:
        if name not in self._formats:
            self._formats[name] = _build(name, self._files, self._options, self._first)
        return self._formats[name]

    def _first(self) -> str:
        """The first file, whose columns tell what those of all hold."""
        return list_files(self._origin)[0]


def _empty(name: str) -> DataError:
    return DataError(f"{name} holds no records: fill it, or take it out of the data")


def _build(
    name: str, files: OpenFiles, options: ReaderOptions, first: Callable[[], str]
) -> FormatReader:
    """Make the reader of a format.

    Raises:
        DataError: A package that it needs is not installed.
    """
    extra = FORMATS[name].extra
    if extra is not None:
        check_extra(extra, f"{name} files")
    match name:
        case "npz" | "npy":
            from elastic.data.formats.arrays import ArrayReader

            return ArrayReader(files, options, is_archive=name == "npz")
        case "csv" | "tsv":
            from elastic.data.formats.delimited import CsvReader

            return CsvReader(files, options, "," if name == "csv" else "\t", first)
        case "lines":
            from elastic.data.formats.lines import LinesReader

            return LinesReader(files, options)
        case "parquet":
            from elastic.data.formats.parquet import ParquetReader

            return ParquetReader(files, options)
        case "images":
            from elastic.data.images import ImageReader

            return ImageReader(files, options)
        case "tfrecord":
            from elastic.data.formats.tfrecord import TFRecordReader

            return TFRecordReader(files)
        case "recordio":
            from elastic.data.formats.recordio import RecordIOReader

            return RecordIOReader(files)
    raise AssertionError(f"{name} has an entry among the formats, and no reader")


# The user's own reader: called as ElasticDL calls it, and checked at every step.
#
# A reader that delivers too few or too many records would silently break the count of records, so
# what it delivers is counted against what was asked for.


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
                f"create_shards of the custom_data_reader failed: {error_text(error)}"
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
                f"{where}: read_records of the custom_data_reader failed: {error_text(error)}"
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
            f"custom_data_reader({origin!r}, {records_per_task}{given}) failed: {error_text(error)}"
        ) from error
    return CustomReader(reader)


_END = object()


def _next(records: Iterator[Any], where: str) -> Any:
    try:
        return next(records, _END)
    except (Exception, SystemExit) as error:
        raise DataError(
            f"{where}: read_records of the custom_data_reader failed: {error_text(error)}"
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
