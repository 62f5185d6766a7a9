"""TensorBoard's event files, one written and all read. It needs `tensorboard`: import it late.

The parts below its `EventFileWriter` are used, not that class: it imports TensorFlow wherever that
is installed, also into the master of a torch job, and fails on a thread of its own.
"""

import os
import re
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from google.protobuf.message import DecodeError
from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, tensor_shape_pb2, types_pb2
from tensorboard.plugins.text import metadata as text_metadata
from tensorboard.summary.writer.record_writer import RecordWriter

from elastic.telemetry.meter import Point

NAME: Final = re.compile(r"events\.out\.tfevents\.(\d+)\.")

_HEAD: Final = struct.Struct("<QI")
_CHECKSUM_BYTES: Final = 4


class EventFile:
    """Appends to a file of its own, which readers take up after all that are there already."""

    def __init__(self, folder: Path, first_step: int | None) -> None:
        """Begin a file.

        Args:
            folder: Made where it is missing.
            first_step: What earlier files say of this step and later ones no longer holds; None
                where all of it does.

        Raises:
            OSError: The folder or the file cannot be made.
        """
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / _next_name(folder)
        self._file = path.open("wb")
        self._writer = RecordWriter(self._file)
        try:
            self._begin(first_step)
        except OSError:
            # Whoever tries again for as long as a disk is full must not fill the folder as well.
            with suppress(OSError):
                self._file.close()
            path.unlink(missing_ok=True)
            raise

    def _begin(self, first_step: int | None) -> None:
        now_s = time.time()
        self._write(event_pb2.Event(wall_time=now_s, file_version="brain.Event:2"))
        if first_step is not None:
            start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            self._write(event_pb2.Event(wall_time=now_s, step=first_step, session_log=start))
        self.flush()

    def write_point(self, point: Point) -> None:
        """Append the values of one step.

        Raises:
            OSError: The disk is full, or gone.
        """
        # The oldest of the forms of a scalar: every reader has it, and drops it with a restart.
        values = [
            summary_pb2.Summary.Value(tag=tag, simple_value=value) for tag, value in point.values
        ]
        summary = summary_pb2.Summary(value=values)
        self._write(event_pb2.Event(wall_time=point.wall_time_s, step=point.step, summary=summary))

    def write_text(self, tag: str, text: str) -> None:
        """Append a text, which TensorBoard shows as Markdown.

        Raises:
            OSError: The disk is full, or gone.
        """
        shape = tensor_shape_pb2.TensorShapeProto(
            dim=[tensor_shape_pb2.TensorShapeProto.Dim(size=1)]
        )
        tensor = tensor_pb2.TensorProto(
            dtype=types_pb2.DT_STRING, tensor_shape=shape, string_val=[text.encode()]
        )
        value = summary_pb2.Summary.Value(
            tag=tag,
            tensor=tensor,
            metadata=text_metadata.create_summary_metadata(display_name="", description=""),
        )
        summary = summary_pb2.Summary(value=[value])
        self._write(event_pb2.Event(wall_time=time.time(), step=0, summary=summary))

    def flush(self) -> None:
        """Hand what was appended to the system.

        Raises:
            OSError: The disk is full, or gone.
        """
        self._file.flush()

    def close(self) -> None:
        """Flush and close.

        Raises:
            OSError: The disk is full, or gone.
        """
        self._file.close()

    def _write(self, event: "event_pb2.Event") -> None:
        self._writer.write(event.SerializeToString())


def _next_name(folder: Path) -> str:
    """A name after all others: readers go through the files by name, and never back."""
    times = [int(m[1]) for path in folder.iterdir() if (m := NAME.match(path.name))]
    time_s = max(int(time.time()), *(t + 1 for t in times)) if times else int(time.time())
    return f"events.out.tfevents.{time_s:010d}.{socket.gethostname()}.{os.getpid()}"


def told_values(folder: Path, tags: str, first_step: int) -> frozenset[tuple[str, int]]:
    """Tag and step of each value that stands: what a later life has written anew does not.

    Args:
        folder: Where the files are.
        tags: How the tags begin that are asked for.
        first_step: From this step on, nothing stands any more.

    Raises:
        OSError: The folder cannot be read.
    """
    told: set[tuple[str, int]] = set()
    for path in sorted(path for path in folder.iterdir() if NAME.match(path.name)):
        for event in _readable_events(path):
            if event.session_log.status == event_pb2.SessionLog.START:
                told = {value for value in told if value[1] < event.step}
            told |= {
                (value.tag, event.step)
                for value in event.summary.value
                if value.tag.startswith(tags)
            }
    return frozenset(value for value in told if value[1] < first_step)


def _readable_events(path: Path) -> Iterator["event_pb2.Event"]:
    # What cannot be read may be told twice; all other curves are worth more.
    with suppress(OSError):
        yield from _events(path)


def _events(path: Path) -> Iterator["event_pb2.Event"]:
    """The events of a file, up to one that a killed master has not written whole."""
    size_bytes = path.stat().st_size
    with path.open("rb") as file:
        while len(head := file.read(_HEAD.size)) == _HEAD.size:
            length, _ = _HEAD.unpack(head)
            # Of a damaged file it may be any number: more than there is, or than memory holds.
            if length + _CHECKSUM_BYTES > size_bytes - file.tell():
                return
            try:
                yield event_pb2.Event.FromString(file.read(length))
            except DecodeError:
                return
            file.seek(_CHECKSUM_BYTES, 1)
