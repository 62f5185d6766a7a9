"""Text files: a record is one line."""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

import numpy as np

from elastic.data.base import Chunks, RawRecords, ReadTask
from elastic.data.formats import scan
from elastic.data.formats.registry import ReaderOptions
from elastic.data.picking import scanned_chunks
from elastic.data.storage import OpenFiles, SourceFile
from elastic.errors import DataError
from elastic.policy.tasks.records import Shard

_LF: Final = 0x0A
_PROBE_BYTES: Final = 8192


def line_ends(block: bytes, at_eof: bool) -> scan.Marks:
    """Mark where lines end: at each line feed, and at the end of the file."""
    marks: scan.Marks = np.frombuffer(block, np.uint8) == _LF
    if at_eof:
        marks[-1:] = True
    return marks


class LinesReader:
    """Lines as `str`, without their `\\n` or `\\r\\n`; an empty line is a record too."""

    def __init__(self, files: OpenFiles, options: ReaderOptions) -> None:
        self._files = files
        self._options = options
        self._bookmarks = scan.Bookmarks()

    def create_shards(self, names: Sequence[str], records_per_task: int) -> list[Shard]:
        return self._cut(names, records_per_task, scan.SHARD_BYTES)

    def create_chunks(self, names: Sequence[str]) -> Chunks:
        return scanned_chunks(self._files, names, lambda size: self._cut(names, 1, size))

    def _cut(self, names: Sequence[str], records_per_task: int, size_bytes: int) -> list[Shard]:
        shards: list[Shard] = []
        for name in names:
            file = self._files.get(name)
            if self._options.format is None and b"\0" in file.read_at(0, _PROBE_BYTES):
                raise DataError(
                    f"{name} has zero bytes, so it is binary or UTF-16: name its format with "
                    "--data_reader_params format=... (lines, where it is text with such bytes), "
                    "convert UTF-16 to UTF-8, or write a custom_data_reader"
                )
            shards += scan.cut_shards(
                file, scan.text_start(file), line_ends, records_per_task, size_bytes
            )
        return shards

    def read_records(self, task: ReadTask) -> Iterator[str]:
        # Flattened by C code: a generator would be resumed for every line.
        return chain.from_iterable(self._read_lists(task))

    def _read_lists(self, task: ReadTask) -> Iterator[list[str]]:
        """The lines of a task, a block at a time.

        Splitting a block counts its lines as well, so none is looked for before. That is more than
        twice as fast as `_read_marked`, which is asked where a block has something special.
        """
        file, begin = self._places(task)
        position = task.start
        offset = scan.find_first(file, task, begin, line_ends, self._bookmarks)
        num_before = position - task.shard.start
        size = scan.READ_BLOCK_BYTES
        if num_before:
            seem_needed = (task.end - position) * (offset - begin) // num_before
            size = scan.read_size(seem_needed, scan.READ_BLOCK_BYTES)
        while position < task.end:
            data = file.read_at(offset, size)
            end = data.rfind(b"\n") + 1
            text = _decoded(memoryview(data)[:end], self._options.encoding)
            if not text:
                yield from self._read_marked(ReadTask(task.shard, position, task.end))
                return
            lines = text.split("\n", task.end - position)
            used = end - self._size_of(lines.pop(), data[:end], len(lines))
            yield _without_cr(lines, text)
            position += len(lines)
            offset += used
            self._bookmarks.add(file.name, position, offset)
            seem_needed = (task.end - position) * used // len(lines)
            size = scan.read_size(seem_needed, scan.READ_BLOCK_BYTES)

    def _read_marked(self, task: ReadTask) -> Iterator[list[str]]:
        """The same for any task.

        The last line of a file may have no end, and one may be longer than a block, or no text:
        the error then names it.
        """
        file, begin = self._places(task)
        for piece in scan.read_pieces(file, task, begin, line_ends, self._bookmarks):
            for _, text in scan.decode_piece(file, piece, self._options.encoding):
                # Not splitlines(): it also splits at form feeds and other characters of a line.
                lines = text.split("\n")
                if text.endswith("\n"):
                    lines.pop()
                yield _without_cr(lines, text)

    def read_raw(self, task: ReadTask) -> RawRecords:
        file, _ = self._places(task)
        encoding = self._options.encoding
        return scan.read_raw_text(file, task, line_ends, self._bookmarks, encoding, with_ends=False)

    def decode_raw(self, name: str, records: list[str]) -> list[str]:  # noqa: ARG002 (text is decoded a chunk at a time)
        return records

    def _places(self, task: ReadTask) -> tuple[SourceFile, int]:
        """The file of a task, and where its shard begins."""
        if task.shard.offset_bytes is None:
            raise DataError(f"{task.shard.name}: the shard does not say at which byte it begins")
        return self._files.get(task.shard.name), task.shard.offset_bytes

    def _size_of(self, rest: str, data: bytes, num_lines: int) -> int:
        """Bytes of what follows so many lines in `data`, which is `rest` when decoded."""
        if self._options.encoding == "utf-8" and rest.isascii():
            return len(rest)
        return len(data) - int(np.flatnonzero(line_ends(data, at_eof=False))[num_lines - 1]) - 1


def _decoded(data: memoryview, encoding: str) -> str:
    """Text; empty where the bytes are none."""
    try:
        return str(data, encoding)
    except UnicodeDecodeError:
        return ""


def _without_cr(lines: list[str], text: str) -> list[str]:
    return [line.removesuffix("\r") for line in lines] if "\r" in text else lines
