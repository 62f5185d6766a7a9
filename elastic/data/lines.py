"""Text files: a record is one line."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from elastic.data.base import ReadTask
from elastic.data.files import OpenFiles
from elastic.data.options import ReaderOptions
from elastic.data.scan import Bookmarks, Marks, cut_shards, decode_piece, read_pieces, text_start
from elastic.errors import DataError
from elastic.policy.records import Shard

_LF: Final = 0x0A
_PROBE_BYTES: Final = 8192


def line_ends(block: bytes, at_eof: bool) -> Marks:
    """Mark where lines end: at each line feed, and at the end of the file."""
    marks: Marks = np.frombuffer(block, np.uint8) == _LF
    if at_eof:
        marks[-1:] = True
    return marks


class LinesReader:
    """Lines as `str`, without their `\\n` or `\\r\\n`; an empty line is a record too."""

    def __init__(self, files: OpenFiles, options: ReaderOptions) -> None:
        self._files = files
        self._options = options
        self._bookmarks = Bookmarks()

    def create_shards(self, names: Sequence[str], records_per_task: int) -> list[Shard]:
        shards: list[Shard] = []
        for name in names:
            file = self._files.get(name)
            if self._options.format is None and b"\0" in file.read_at(0, _PROBE_BYTES):
                raise DataError(
                    f"{name} is binary and its suffix names no format that is built in: name the "
                    "format with --data_reader_params format=..., or write a custom_data_reader"
                )
            shards += cut_shards(file, text_start(file), line_ends, records_per_task)
        return shards

    def read_records(self, task: ReadTask) -> Iterator[str]:
        file = self._files.get(task.shard.name)
        offset = task.shard.offset_bytes
        if offset is None:
            raise DataError(f"{task.shard.name}: the shard does not say at which byte it begins")
        for piece in read_pieces(file, task, offset, line_ends, self._bookmarks):
            for _, text in decode_piece(file, piece, self._options.encoding):
                # Not splitlines(): it also splits at form feeds and other characters of a line.
                lines = text.split("\n")
                if text.endswith("\n"):
                    lines.pop()
                if "\r" in text:
                    lines = [line.removesuffix("\r") for line in lines]
                yield from lines
