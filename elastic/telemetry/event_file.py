"""One TensorBoard event file. Only who writes one imports this: it needs `tensorboard`.

The parts below its `EventFileWriter` are used, not that class: it imports TensorFlow wherever that
is installed, also into the master of a torch job, and fails on a thread of its own.
"""

import os
import re
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, tensor_shape_pb2, types_pb2
from tensorboard.plugins.text import metadata as text_metadata
from tensorboard.summary.writer.record_writer import RecordWriter

from elastic.telemetry.samples import Point

NAME: Final = re.compile(r"events\.out\.tfevents\.(\d+)\.")


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
