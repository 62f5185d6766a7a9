"""One image: from the file to its pixels."""

import io
import re
import struct
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

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
