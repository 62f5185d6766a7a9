"""Folders of images: a record is one image, with its label where folders are classes."""

import io
import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from elastic.data.base import ReadTask
from elastic.data.files import OpenFiles
from elastic.data.image_folders import ImageList, is_unchanged, list_images
from elastic.data.options import ReaderOptions
from elastic.errors import DataError
from elastic.policy.records import Shard

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


class ImageReader:
    """Images as uint8 arrays (height, width, channels), with label and path."""

    def __init__(self, files: OpenFiles, options: ReaderOptions) -> None:
        self._files = files
        self._options = options
        self._lists: dict[str, ImageList] = {}

    def create_shards(self, names: Sequence[str], records_per_task: int) -> list[Shard]:  # noqa: ARG002 (files are found without scanning, so any range is a shard)
        shards: list[Shard] = []
        first: ImageList | None = None
        for name in names:
            if not name.endswith("/"):
                raise DataError(
                    f"{name} is not a folder of images: name the folder that holds images, or one "
                    "folder of images for each class"
                )
            images = self._images_of(name)
            first = first or images
            if images.classes != first.classes:
                raise DataError(
                    f"{name} has {_tell(images)} but {names[0]} has {_tell(first)}: make them "
                    "alike, or name all classes with --data_reader_params classes=[...]"
                )
            if images.files:
                shards.append(Shard(name, 0, len(images.files), fingerprint=images.fingerprint))
        return shards

    def read_records(self, task: ReadTask) -> Iterator[dict[str, Any]]:
        folder = task.shard.name
        images = self._images_of(folder)
        # A reader of the user's may have made the shard, without one.
        if task.shard.fingerprint not in ("", images.fingerprint):
            raise _changed(f"{folder} has got or lost images since they were counted")
        for index in range(task.start, task.end):
            path = f"{folder}{images.files[index]}"
            record: dict[str, Any] = {"image": self._read(path)}
            if images.classes is not None:
                record["label"] = np.int64(images.labels[index])
            record["path"] = path
            yield record

    def classes(self, name: str) -> tuple[str, ...] | None:
        """What the labels of a folder stand for."""
        return self._images_of(name).classes

    def _images_of(self, folder: str) -> ImageList:
        known = self._lists.get(folder)
        if known is not None and is_unchanged(known):
            return known
        images = self._lists[folder] = list_images(folder, self._options.classes)
        # Files of other kinds may come and go.
        if known is not None and known.files != images.files:
            self._lists[folder] = known
            raise _changed(f"{folder} has got or lost images while the job reads it")
        return images

    def _read(self, path: str) -> NDArray[np.uint8]:
        file = self._files.get(path)
        try:
            return decode_image(
                file.read_at(0, file.size), self._options.image_mode, self._options.size
            )
        except _DAMAGED as error:
            raise DataError(
                f"{path} cannot be read as an image ({error}): it is damaged, truncated or of "
                "another format; write it again, or remove it"
            ) from error


def decode_image(data: bytes, mode: str, size: tuple[int, int] | None) -> NDArray[np.uint8]:
    """Decode a file of an image.

    Args:
        data: The file.
        mode: `RGB`, or `L` for grey.
        size: Height and width to resize to, or None to keep it.

    Returns:
        (height, width, 3 or 1).

    Raises:
        OSError, ValueError, …: One of many; the bytes are no image of 8 bits a channel.
    """
    with Image.open(io.BytesIO(data)) as opened:
        if opened.mode in _WIDE_MODES:
            raise ValueError(f"it has more than 8 bits a channel, Pillow's mode {opened.mode}")
        if size is not None:
            # JPEGs are decoded at the nearest larger eighth of their size, several times as fast.
            opened.draft(mode, (size[1], size[0]))
        image = opened.convert(mode)
    if size is not None and image.size != (size[1], size[0]):
        image = image.resize((size[1], size[0]), Image.Resampling.BILINEAR)
    array = np.array(image)
    return array[:, :, np.newaxis] if mode == "L" else array


def _changed(what: str) -> DataError:
    return DataError(f"{what}: leave data alone while a job runs, and start the job again")


def _tell(images: ImageList) -> str:
    if images.classes is None:
        return "no classes"
    return f"the classes {', '.join(images.classes)}"
