"""CSV and TSV files: a record is one row.

Where rows end is found without parsing them. They are what Python's `csv` module makes of the file,
whatever the file holds; a test compares both on random text. A parse takes many times as long as
reading, so `RowEnds` works on one bit per byte of a block, 64 bits at a time.
"""

import csv
import importlib.util
import io
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from elastic.data.base import Chunks, RawRecords, ReadTask, unnamed
from elastic.data.formats import scan
from elastic.data.formats.columns import (
    TYPED_ROWS,
    BadFieldError,
    ColumnPicking,
    Kind,
    chosen,
    inferred,
    narrowed,
    typed_columns,
)
from elastic.data.formats.registry import ReaderOptions
from elastic.data.picking import scanned_chunks
from elastic.data.storage import OpenFiles, SourceFile
from elastic.errors import DataError
from elastic.policy.tasks.records import Columns, Picks, Shard

Row: TypeAlias = dict[str, str] | tuple[str, ...]

SNIFFED_ROWS: Final = 100
MAX_SHOWN: Final = 5

Bits: TypeAlias = NDArray[np.uint64]
"""One bit per byte of a block, lowest first, and at least one more of padding."""

_ONE: Final = np.uint64(1)
_LAST: Final = np.uint64(63)

_FIELD_QUOTES: Final = re.compile(rb"(B.?+(?:A.?+)*+)")
"""Quotes of quoted fields among all quotes of a block, each one a letter.

B stands at the begin of a field, A right after another quote, N anywhere else. Outside quotes
only B opens a field; inside, any quote closes it; right after a closing one, A opens it again (a
doubled quote). All other quotes are characters like any other, as in `5" pipe`.
"""


@dataclass(frozen=True, slots=True)
class Header:
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

    def __init__(
        self,
        files: OpenFiles,
        options: ReaderOptions,
        delimiter: str,
        first: Callable[[], str],
    ) -> None:
        """Keep the arguments.

        Args:
            files: Where files are opened.
            options: What the user says of them.
            delimiter: Of the format.
            first: Names the first file of the source, which tells the types of all.
        """
        # The module's limit of 128 KiB for a field is a guard that MAX_RECORD_BYTES replaces.
        csv.field_size_limit(sys.maxsize)
        self._files = files
        self._options = options
        self._bookmarks = scan.Bookmarks()
        self._delimiter = options.delimiter or delimiter
        self._row_ends = RowEnds(self._delimiter)
        self._headers: dict[str, Header] = {}
        self._first = first
        self._found_kinds: dict[str, Kind] | None = None
        self._has_arrow = importlib.util.find_spec("pyarrow") is not None
        self._picking = ColumnPicking(self.read_columns, options.cache_mb << 20)

    def create_shards(self, names: Sequence[str], records_per_task: int) -> list[Shard]:
        return self._cut(names, records_per_task, scan.SHARD_BYTES)

    def create_chunks(self, names: Sequence[str]) -> Chunks:
        return scanned_chunks(self._files, names, lambda size: self._cut(names, 1, size))

    def _cut(self, names: Sequence[str], records_per_task: int, size_bytes: int) -> list[Shard]:
        shards: list[Shard] = []
        first = self._header_of(self._files.get(names[0]))
        for name in names:
            file = self._files.get(name)
            columns = self._header_of(file)
            if (columns.names, columns.count) != (first.names, first.count):
                raise DataError(
                    f"{name} {_describe(columns)} but {names[0]} {_describe(first)}: make the "
                    "files alike, or say --data_reader_params header=true or header=false"
                )
            shards += scan.cut_shards(
                file, columns.offset, self._row_ends, records_per_task, size_bytes
            )
        return shards

    def read_records(self, task: ReadTask) -> Iterator[Row]:
        file = self._files.get(task.shard.name)
        columns = self._header_of(file)
        if task.shard.offset_bytes is None:
            raise DataError(f"{task.shard.name}: the shard does not say at which byte it begins")
        for piece in scan.read_pieces(
            file, task, task.shard.offset_bytes, self._row_ends, self._bookmarks
        ):
            for valid, text in scan.decode_piece(file, piece, self._options.encoding):
                for row in self._checked_rows(file, columns, valid, text):
                    yield (
                        dict(zip(columns.names, row, strict=True)) if columns.names else tuple(row)
                    )

    def read_columns(self, task: ReadTask) -> Iterator[Columns]:
        """Columns of numbers and text, of the types that the first file of the source tells."""
        file = self._files.get(task.shard.name)
        header = self._header_of(file)
        if task.shard.offset_bytes is None:
            raise DataError(f"{task.shard.name}: the shard does not say at which byte it begins")
        kinds = self._kinds()
        offset, size = task.shard.offset_bytes, scan.CHUNK_BLOCK_BYTES
        for piece in scan.read_pieces(file, task, offset, self._row_ends, self._bookmarks, size):
            read = self._read_arrow(piece, kinds)
            if read is not None:
                yield read
                continue
            for valid, text in scan.decode_piece(file, piece, self._options.encoding):
                yield from self._typed_rows(file, header, kinds, valid, text)

    def pick_columns(self, picks: Picks) -> Iterator[Columns]:
        """The same in any order, out of chunks that are kept as columns."""
        return self._picking.read(picks)

    def _read_arrow(self, piece: scan.Piece, kinds: dict[str, Kind]) -> Columns | None:
        if not self._has_arrow:
            return None
        if self._options.encoding != "utf-8" and not piece.data.isascii():
            return None
        return rows_by_arrow(piece.data, kinds, self._delimiter, piece.count)

    def _typed_rows(
        self, file: SourceFile, header: Header, kinds: dict[str, Kind], piece: scan.Piece, text: str
    ) -> Iterator[Columns]:
        """Rows as columns; those before one that is at fault come first."""
        rows: list[list[str]] = []
        error: DataError | None = None
        try:
            for row in self._checked_rows(file, header, piece, text):
                rows.append(row)  # noqa: PERF402 (those before an error are kept)
        except DataError as found:
            error = found
        try:
            columns = typed_columns(kinds, rows)
        except BadFieldError as bad:
            error = DataError(f"{_place(file, piece, bad.row)}: {bad}")
            columns = typed_columns(kinds, rows[: bad.row])
        yield columns
        if error is not None:
            raise error

    def _kinds(self) -> dict[str, Kind]:
        """What the columns of all files hold."""
        if self._found_kinds is None:
            file = self._files.get(self._first())
            header = self._header_of(file)
            names = header.names or unnamed(header.count)
            found = inferred(names, self._first_rows(file, header))
            self._found_kinds = chosen(found, dict(self._options.types), file.name)
        return self._found_kinds

    def _first_rows(self, file: SourceFile, header: Header) -> list[list[str]]:
        for block in scan.split_blocks(file, header.offset, self._row_ends, scan.READ_BLOCK_BYTES):
            text = block.data[: block.end].decode(self._options.encoding, "replace")
            return list(islice(self._rows(text), TYPED_ROWS))
        return []

    def read_raw(self, task: ReadTask) -> RawRecords:
        file = self._files.get(task.shard.name)
        encoding = self._options.encoding
        return scan.read_raw_text(
            file, task, self._row_ends, self._bookmarks, encoding, with_ends=True
        )

    def decode_raw(self, name: str, records: list[str]) -> Sequence[Row]:
        columns = self._header_of(self._files.get(name))
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
        self, file: SourceFile, columns: Header, piece: scan.Piece, text: str
    ) -> Iterator[list[str]]:
        index = -1
        for index, row in enumerate(self._rows(text)):
            if len(row) != columns.count:
                raise DataError(
                    f"{_place(file, piece, index)}: {len(row)} fields where the file has "
                    f"{columns.count} columns: mend the row, quote fields that hold the delimiter, "
                    "or check --data_reader_params delimiter"
                )
            yield row
        if index + 1 != piece.count:
            raise DataError(
                f"{file.name}: {index + 1} rows instead of {piece.count} from record "
                f"{piece.first} on: the file is not the one that was counted"
            )

    def _header_of(self, file: SourceFile) -> Header:
        found = self._headers.get(file.name)
        if found is None:
            found = self._headers[file.name] = self._find_header(file)
        return found

    def _find_header(self, file: SourceFile) -> Header:
        start = scan.text_start(file)
        rows: list[list[str]] = []
        first = scan.Piece(0, start, b"", np.empty(0, np.bool_), 0)
        for block in scan.split_blocks(file, start, self._row_ends, scan.READ_BLOCK_BYTES):
            ends = block.ends()
            if not rows:
                end = int(ends[0])
                first = scan.Piece(0, block.offset, block.data[:end], block.marks[:end], 1)
            # A row that cannot be decoded is an error of the task that holds it, not of the file.
            text = block.data[: int(ends[-1])].decode(self._options.encoding, "replace")
            rows.extend(islice(self._rows(text), SNIFFED_ROWS + 1 - len(rows)))
            if len(rows) > 1:
                break
        if not rows:
            return Header(None, 0, start)
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
            return Header(None, len(rows[0]), start)
        ((_, text),) = scan.decode_piece(file, first, self._options.encoding)
        names = tuple(next(self._rows(text)))
        repeated = [name for name, count in Counter(names).items() if count > 1]
        if repeated:
            raise DataError(
                f"{file.name}: the header has the column {repeated[0]!r} twice: rename one, or say "
                "--data_reader_params header=false"
            )
        return Header(names, len(names), first.offset + len(first.data))


def _place(file: SourceFile, piece: scan.Piece, index: int) -> str:
    """Where a row of a piece stands, for people."""
    begin = int(piece.ends()[index - 1]) if index else 0
    blank = piece.data[begin:]
    at = piece.offset + begin + len(blank) - len(blank.lstrip(b"\r\n"))
    return f"{file.name}, line {file.line_number(at)} (record {piece.first + index})"


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


def _describe(columns: Header) -> str:
    if columns.names is None:
        return f"has {columns.count} columns without a header"
    return f"has the columns {', '.join(columns.names)}"


class RowEnds:
    """Marks where the rows of a block end; blank lines are no rows."""

    def __init__(self, delimiter: str) -> None:
        self._delimiter = ord(delimiter)

    def __call__(self, block: bytes, at_eof: bool) -> scan.Marks:
        data = np.frombuffer(block, np.uint8)
        size = len(block)
        breaks = _bits(data == ord("\n"))
        returns = _bits(data == ord("\r")) if b"\r" in block else None
        if returns is not None:
            # Whether one at the end of a block is half of a line end is seen with the next block.
            line_feeds = breaks if at_eof else breaks | _bit(size, len(breaks))
            breaks = breaks | (returns & ~_one_earlier(line_feeds))
        ends_inside_quotes = False
        if b'"' in block:
            quotes = _bits(data == ord('"'))
            delimiters = _bits(data == self._delimiter)
            inside = _inside_quotes(quotes, _one_later(breaks | delimiters))
            ends_inside_quotes = _has(inside, size - 1)
            breaks &= ~inside
        marks = _marks(breaks & ~_blank(breaks, returns))[:size]
        if at_eof and size and not ends_inside_quotes and not _has(breaks, size - 1):
            marks[-1] = True
        return marks


def _inside_quotes(quotes: Bits, begins: Bits) -> Bits:
    """The bytes inside quoted fields, with their opening quote and without the closing one.

    Args:
        quotes: All quotes of the block.
        begins: Where fields begin, the first one at the begin of the block excepted.
    """
    inside = _odd_so_far(quotes)
    begins = begins | _bit(0, len(begins))
    after_quote = _one_later(quotes)
    if not (quotes & inside & ~begins & ~after_quote).any():
        return inside
    # Some quote is no field's: sort them out one by one.
    positions = np.flatnonzero(_marks(quotes))
    letters = np.full(len(positions), ord("N"), np.uint8)
    letters[_marks(begins)[positions]] = ord("B")
    letters[_marks(after_quote)[positions]] = ord("A")
    # Splitting by a group gives literal and field quotes alternately.
    lengths = list(map(len, _FIELD_QUOTES.split(letters.tobytes())))
    is_literal = np.repeat(np.arange(len(lengths)) % 2 == 0, lengths)
    field_quotes = _marks(quotes)
    field_quotes[positions[is_literal]] = False
    return _odd_so_far(_words(np.packbits(field_quotes, bitorder="little"), len(quotes)))


def _blank(breaks: Bits, returns: Bits | None) -> Bits:
    """The breaks of lines that hold nothing but their line end."""
    row_begins = _one_later(breaks) | _bit(0, len(breaks))
    blank = breaks & row_begins
    if returns is not None:
        blank |= breaks & _one_later(returns & row_begins)
    return blank


def _bits(is_set: scan.Marks) -> Bits:
    return _words(np.packbits(is_set, bitorder="little"), len(is_set) // 64 + 1)


def _words(packed: NDArray[np.uint8], length: int) -> Bits:
    words = np.zeros(length, "<u8")
    words.view(np.uint8)[: len(packed)] = packed
    return words


def _marks(bits: Bits) -> scan.Marks:
    return np.unpackbits(bits.view(np.uint8), bitorder="little").view(np.bool_)


def _bit(place: int, length: int) -> Bits:
    bits = np.zeros(length, "<u8")
    bits[place // 64] = _ONE << np.uint64(place % 64)
    return bits


def _has(bits: Bits, place: int) -> bool:
    return bool(bits[place // 64] >> np.uint64(place % 64) & _ONE)


def _one_later(bits: Bits) -> Bits:
    later = bits << _ONE
    later[1:] |= bits[:-1] >> _LAST
    return later


def _one_earlier(bits: Bits) -> Bits:
    earlier = bits >> _ONE
    earlier[:-1] |= bits[1:] << _LAST
    return earlier


def _odd_so_far(bits: Bits) -> Bits:
    """Tell for each place whether the number of set bits up to and including it is odd."""
    odd = bits.copy()
    for shift in (1, 2, 4, 8, 16, 32):
        odd ^= odd << np.uint64(shift)
    is_odd_after = np.bitwise_xor.accumulate(odd >> _LAST)
    odd[1:] ^= np.uint64(0) - is_odd_after[:-1]
    return odd


# Rows of text as columns by Arrow, which is several times as fast as Python.


def rows_by_arrow(
    data: bytes, kinds: Mapping[str, Kind], delimiter: str, num_rows: int
) -> Columns | None:
    """Rows of UTF-8 text as columns; None where Python has to look at them.

    Args:
        data: Whole rows.
        kinds: What each column holds.
        delimiter: Between fields.
        num_rows: As many as there are.
    """
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    if _may_differ_by_arrow(data):
        return None
    try:
        table = arrow_csv.read_csv(
            pa.BufferReader(data),
            arrow_csv.ReadOptions(
                use_threads=False, column_names=list(kinds), block_size=len(data) + 1
            ),
            arrow_csv.ParseOptions(delimiter=delimiter, quote_char=False),
            arrow_csv.ConvertOptions(
                column_types={name: _arrow_type(kind) for name, kind in kinds.items()},
                null_values=[""],
                strings_can_be_null=False,
            ),
        )
    except pa.ArrowException:
        return None
    arrays = {name: _arrow_values(table.column(name), kind) for name, kind in kinds.items()}
    if table.num_rows != num_rows or any(array is None for array in arrays.values()):
        return None
    return Columns({name: array for name, array in arrays.items() if array is not None}, num_rows)


def _may_differ_by_arrow(data: bytes) -> bool:
    """Whether Arrow may read it otherwise than Python's `csv` and `int`: quotes, hexadecimals."""
    # Numbers are full of zeros: one byte that they have not is found far sooner than two.
    return b'"' in data or (b"x" in data and b"0x" in data) or (b"X" in data and b"0X" in data)


def _arrow_type(kind: Kind) -> Any:
    import pyarrow as pa

    if kind is None:
        return pa.string()
    # Numbers of less than double precision are rounded once, as Python's are.
    return pa.float64() if kind.kind == "f" else pa.from_numpy_dtype(kind)


def _arrow_values(column: Any, kind: Kind) -> NDArray[Any] | None:
    """The values of a column; None where a whole number is missing."""
    if kind is not None and kind.kind != "f" and column.null_count:
        return None
    # In memory of its own, which may be changed.
    array: NDArray[Any] = column.to_numpy()
    return array if kind is None else narrowed(array, kind)
