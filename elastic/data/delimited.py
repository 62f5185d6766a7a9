"""CSV and TSV files: a record is one row."""

import csv
import io
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeAlias

import numpy as np

from elastic.data.base import Chunks, RawRecords, ReadTask
from elastic.data.options import ReaderOptions
from elastic.data.picking import scanned_chunks
from elastic.data.row_ends import RowEnds
from elastic.data.scan import (
    READ_BLOCK_BYTES,
    SHARD_BYTES,
    Bookmarks,
    Piece,
    cut_shards,
    decode_piece,
    read_pieces,
    read_raw_text,
    split_blocks,
    text_start,
)
from elastic.data.storage.files import OpenFiles, SourceFile
from elastic.errors import DataError
from elastic.policy.records import Shard

Row: TypeAlias = dict[str, str] | tuple[str, ...]

SNIFFED_ROWS: Final = 100
MAX_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Columns:
    """What the begin of a file tells about its rows.

    Attributes:
        names: The header, or None.
        count: Fields of every row.
        offset: Where the first row after the header begins.
    """

    names: tuple[str, ...] | None
    count: int
    offset: int


class CsvReader:
    """Rows as dict column → `str`, or as tuple of `str` where the file has no header."""

    def __init__(self, files: OpenFiles, options: ReaderOptions, delimiter: str) -> None:
        # The module's limit of 128 KiB for a field is a guard that MAX_RECORD_BYTES replaces.
        csv.field_size_limit(sys.maxsize)
        self._files = files
        self._options = options
        self._bookmarks = Bookmarks()
        self._delimiter = options.delimiter or delimiter
        self._row_ends = RowEnds(self._delimiter)
        self._columns: dict[str, Columns] = {}

    def create_shards(self, names: Sequence[str], records_per_task: int) -> list[Shard]:
        return self._cut(names, records_per_task, SHARD_BYTES)

    def create_chunks(self, names: Sequence[str]) -> Chunks:
        return scanned_chunks(self._files, names, lambda size: self._cut(names, 1, size))

    def _cut(self, names: Sequence[str], records_per_task: int, size_bytes: int) -> list[Shard]:
        shards: list[Shard] = []
        first = self._columns_of(self._files.get(names[0]))
        for name in names:
            file = self._files.get(name)
            columns = self._columns_of(file)
            if (columns.names, columns.count) != (first.names, first.count):
                raise DataError(
                    f"{name} {_describe(columns)} but {names[0]} {_describe(first)}: make the "
                    "files alike, or say --data_reader_params header=true or header=false"
                )
            shards += cut_shards(file, columns.offset, self._row_ends, records_per_task, size_bytes)
        return shards

    def read_records(self, task: ReadTask) -> Iterator[Row]:
        file = self._files.get(task.shard.name)
        columns = self._columns_of(file)
        if task.shard.offset_bytes is None:
            raise DataError(f"{task.shard.name}: the shard does not say at which byte it begins")
        for piece in read_pieces(
            file, task, task.shard.offset_bytes, self._row_ends, self._bookmarks
        ):
            for valid, text in decode_piece(file, piece, self._options.encoding):
                for row in self._checked_rows(file, columns, valid, text):
                    yield (
                        dict(zip(columns.names, row, strict=True)) if columns.names else tuple(row)
                    )

    def read_raw(self, task: ReadTask) -> RawRecords:
        file = self._files.get(task.shard.name)
        encoding = self._options.encoding
        return read_raw_text(file, task, self._row_ends, self._bookmarks, encoding, with_ends=True)

    def decode_raw(self, name: str, records: list[str]) -> Sequence[Row]:
        columns = self._columns_of(self._files.get(name))
        try:
            # One text for each row, which may have line ends in quotes.
            rows = list(csv.reader(records, delimiter=self._delimiter))
        except csv.Error:
            # Blank lines before a row belong to it.
            rows = list(self._rows("".join(records)))
        if len(rows) != len(records) or set(map(len, rows)) != {columns.count}:
            raise DataError(f"{name}: a row of many has too few fields, or too many")
        names = columns.names
        if names is None:
            return list(map(tuple, rows))
        return [dict(zip(names, row, strict=True)) for row in rows]

    def _rows(self, text: str) -> Iterator[list[str]]:
        lines = io.StringIO(text, newline="")
        return (row for row in csv.reader(lines, delimiter=self._delimiter) if row)

    def _checked_rows(
        self, file: SourceFile, columns: Columns, piece: Piece, text: str
    ) -> Iterator[list[str]]:
        index = -1
        for index, row in enumerate(self._rows(text)):
            if len(row) != columns.count:
                begin = int(piece.ends()[index - 1]) if index else 0
                blank = piece.data[begin:]
                at = piece.offset + begin + len(blank) - len(blank.lstrip(b"\r\n"))
                raise DataError(
                    f"{file.name}, line {file.line_number(at)} (record {piece.first + index}): "
                    f"{len(row)} fields where the file has {columns.count} columns: mend the row, "
                    "quote fields that hold the delimiter, or check --data_reader_params delimiter"
                )
            yield row
        if index + 1 != piece.count:
            raise DataError(
                f"{file.name}: {index + 1} rows instead of {piece.count} from record "
                f"{piece.first} on: the file is not the one that was counted"
            )

    def _columns_of(self, file: SourceFile) -> Columns:
        found = self._columns.get(file.name)
        if found is None:
            found = self._columns[file.name] = self._find_columns(file)
        return found

    def _find_columns(self, file: SourceFile) -> Columns:
        start = text_start(file)
        rows: list[list[str]] = []
        first = Piece(0, start, b"", np.empty(0, np.bool_), 0)
        for block in split_blocks(file, start, self._row_ends, READ_BLOCK_BYTES):
            ends = block.ends()
            if not rows:
                end = int(ends[0])
                first = Piece(0, block.offset, block.data[:end], block.marks[:end], 1)
            # A row that cannot be decoded is an error of the task that holds it, not of the file.
            text = block.data[: int(ends[-1])].decode(self._options.encoding, "replace")
            rows.extend(islice(self._rows(text), SNIFFED_ROWS + 1 - len(rows)))
            if len(rows) > 1:
                break
        if not rows:
            return Columns(None, 0, start)
        has_header = self._options.header
        if has_header is None:
            has_header = is_header(rows)
        if has_header is None:
            raise DataError(
                f"{file.name}: the first row ({_shown(rows[0])}) has no number, and the rows below "
                "have some: does it name the columns? If so say --data_reader_params header=true, "
                "if it is a record header=false"
            )
        if not has_header:
            return Columns(None, len(rows[0]), start)
        ((_, text),) = decode_piece(file, first, self._options.encoding)
        names = tuple(next(self._rows(text)))
        repeated = [name for name, count in Counter(names).items() if count > 1]
        if repeated:
            raise DataError(
                f"{file.name}: the header has the column {repeated[0]!r} twice: rename one, or say "
                "--data_reader_params header=false"
            )
        return Columns(names, len(names), first.offset + len(first.data))


def is_header(rows: Sequence[Sequence[str]]) -> bool | None:
    """Tell whether the first row names the columns of the others; None where that is in doubt.

    It does if its fields are distinct, none is a number, and a column below holds only numbers. It
    is in doubt if none is a number, and a column below holds mostly numbers. Among text alone it
    is a record.
    """
    names, below = rows[0], rows[1:]
    if any(map(_is_number, names)):
        return False
    columns = list(zip(*below, strict=False))
    if len(set(names)) == len(names) and any(all(map(_is_number, column)) for column in columns):
        return True
    return None if any(map(_is_mostly_numbers, columns)) else False


def _is_mostly_numbers(column: Sequence[str]) -> bool:
    told = [field for field in column if field.strip()]
    return 2 * sum(map(_is_number, told)) > len(told)


def _shown(row: Sequence[str]) -> str:
    shown = ", ".join(row[:MAX_SHOWN])
    return f"{shown}, …" if len(row) > MAX_SHOWN else shown


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _describe(columns: Columns) -> str:
    if columns.names is None:
        return f"has {columns.count} columns without a header"
    return f"has the columns {', '.join(columns.names)}"
