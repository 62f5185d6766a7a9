"""What the event files of a folder tell already; like `event_file`, it needs `tensorboard`."""

import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from google.protobuf.message import DecodeError
from tensorboard.compat.proto import event_pb2

from elastic.telemetry.event_file import NAME

_HEAD: Final = struct.Struct("<QI")
_CHECKSUM_BYTES: Final = 4


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
