"""One image, from the file to its pixels, and a process that decodes images for another one.

The process is `python -m elastic.data.images.decoder FD OPTIONS`. Most of decoding a small image is
Python, which would take the interpreter from whoever computes in the same process. It gets paths
over a socket and answers with pixels; when the socket is closed, it ends.
"""

import faulthandler
import io
import json
import os
import re
import signal
import socket
import struct
import sys
from collections.abc import Sequence
from contextlib import suppress
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from elastic.data.formats.registry import ReaderOptions
from elastic.data.sources import open_files
from elastic.data.storage.files import OpenFiles
from elastic.errors import DataError

_DAMAGED: Final = (
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    EOFError,
    IndexError,
    OverflowError,
    struct.error,
    Image.DecompressionBombError,
)
"""What Pillow raises for bytes that are not what their headers promise."""

_WIDE_MODES: Final = ("I", "F", "I;16", "I;16L", "I;16B", "I;16N")
_WIDE_PIXELS: Final = re.compile(r"\b(?:L|LA|RGB|RGBA|RGBX|CMYK);16")
"""Of how pixels lie in the file: Pillow reads colours of 16 bits, and drops 8 of them."""

_REQUEST: Final = struct.Struct("<I")
"""Bytes of the JSON list of paths that follows."""

_REPLY: Final = struct.Struct("<IQ")
"""Bytes of a JSON list and of the pixels that follow. The list has for each image its height, width
and channels, or a text that says why there is none."""

_READY: Final = b"\1"

_NICENESS: Final = 5


def read_image(
    files: OpenFiles, path: str, mode: str, size: tuple[int, int] | None
) -> NDArray[np.uint8]:
    """Read and decode an image.

    Args:
        files: Where it is opened, which tells whether it has changed.
        path: Of the image.
        mode: `RGB`, or `L` for grey.
        size: Height and width to resize to, or None to keep it.

    Returns:
        (height, width, 3 or 1).

    Raises:
        DataError: It cannot be read, has changed, or is no image of 8 bits a channel.
    """
    file = files.get(path)
    try:
        return _decode(file.read_at(0, file.size), mode, size)
    except _DAMAGED as error:
        raise DataError(
            f"{path} cannot be read as an image ({error}): it is damaged, truncated or of "
            "another format; write it again, or remove it"
        ) from error


def _decode(data: bytes, mode: str, size: tuple[int, int] | None) -> NDArray[np.uint8]:
    image: Image.Image
    with Image.open(io.BytesIO(data)) as opened:
        if opened.mode in _WIDE_MODES:
            raise ValueError(f"it has more than 8 bits a channel, Pillow's mode {opened.mode}")
        if any(_WIDE_PIXELS.search(str(tile.args)) for tile in opened.tile):
            raise ValueError("it has 16 bits a channel")
        if size is not None:
            # JPEGs are decoded at the nearest larger eighth of their size, several times as fast.
            opened.draft(mode, (size[1], size[0]))
        opened.load()
        image = opened
    if image.mode != mode:
        image = image.convert(mode)
    if size is not None and image.size != (size[1], size[0]):
        image = image.resize((size[1], size[0]), Image.Resampling.BILINEAR)
    array = np.array(image)
    return array[:, :, np.newaxis] if mode == "L" else array


class EndedError(Exception):
    """The other side of the socket is gone."""


def send_paths(to: socket.socket, paths: Sequence[str]) -> None:
    """Ask for images; they come all at once, so that who waits for them is woken once.

    Raises:
        OSError: The other side is gone.
    """
    data = json.dumps(paths).encode()
    to.sendall(_REQUEST.pack(len(data)) + data)


def wait_until_ready(source: socket.socket) -> None:
    """Wait until the process has been started.

    Raises:
        EndedError: It has ended before.
    """
    _receive(source, len(_READY))


def receive_images(source: socket.socket) -> list[NDArray[np.uint8] | str]:
    """Wait for the images of the oldest request: the pixels of each, or why there are none.

    Raises:
        EndedError: The other side is gone.
    """
    forms_bytes, pixels_bytes = _REPLY.unpack(_receive(source, _REPLY.size))
    forms = json.loads(_receive(source, forms_bytes))
    pixels = np.empty(pixels_bytes, np.uint8)
    _fill(source, pixels.data)
    images: list[NDArray[np.uint8] | str] = []
    begin = 0
    for form in forms:
        if isinstance(form, str):
            images.append(form)
        else:
            end = begin + prod(form)
            images.append(pixels[begin:end].reshape(form))
            begin = end
    return images


def main(arguments: Sequence[str]) -> int:
    """Decode until nobody asks any more."""
    # Who started this process ends it, by closing the socket.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    faulthandler.enable(all_threads=False)
    # Who computes, and the master, come first; should they want images, they leave it the cores.
    os.nice(_NICENESS)
    options = json.loads(arguments[1])
    with (
        socket.socket(fileno=int(arguments[0])) as connection,
        suppress(EndedError, BrokenPipeError, ConnectionResetError),
    ):
        connection.sendall(_READY)
        _serve(connection, options["mode"], options["size"])
    return 0


def _serve(connection: socket.socket, mode: str, size: tuple[int, int] | None) -> None:
    files = open_files(ReaderOptions(format="images"))
    while True:
        (request_bytes,) = _REQUEST.unpack(_receive(connection, _REQUEST.size))
        forms: list[Sequence[int] | str] = []
        pixels = bytearray()
        for path in json.loads(_receive(connection, request_bytes)):
            try:
                image = read_image(files, path, mode, size)
            except DataError as error:
                forms.append(str(error))
            else:
                forms.append(image.shape)
                pixels += image.tobytes()
        data = json.dumps(forms).encode()
        connection.sendall(_REPLY.pack(len(data), len(pixels)) + data)
        connection.sendall(pixels)


def _receive(source: socket.socket, size_bytes: int) -> bytearray:
    data = bytearray(size_bytes)
    _fill(source, memoryview(data))
    return data


def _fill(source: socket.socket, buffer: "memoryview[Any]") -> None:
    done = 0
    while done < len(buffer):
        try:
            count = source.recv_into(buffer[done:], 0, socket.MSG_WAITALL)
        except ConnectionResetError:
            count = 0
        if not count:
            raise EndedError
        done += count


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
