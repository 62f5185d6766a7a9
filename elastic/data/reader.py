"""The built-in reader: files of one format."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

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
from elastic.data.picking import RawPicking
from elastic.data.sources import common_format, list_files, open_files
from elastic.data.storage.files import OpenFiles
from elastic.errors import DataError
from elastic.policy.tasks.records import Columns, Picks, Shard


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
            from elastic.data.images.reader import ImageReader

            return ImageReader(files, options)
        case "tfrecord":
            from elastic.data.formats.tfrecord import TFRecordReader

            return TFRecordReader(files)
        case "recordio":
            from elastic.data.formats.recordio import RecordIOReader

            return RecordIOReader(files)
    raise AssertionError(f"{name} has an entry among the formats, and no reader")
