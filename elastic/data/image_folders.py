"""Folders of images: what is in them, which classes they have, and in which order they are read.

A folder of images is one source, named with a `/` at its end, here or far away. No image is opened,
or even looked at, to list them: 10⁵ files of this machine take a fraction of a second. Users import
`class_names` from here.
"""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from elastic.data.remote import scan_remote
from elastic.data.storage import unreadable
from elastic.errors import DataError
from elastic.spec.values import is_address

SUFFIXES: Final = (
    ".png",
    ".jpg",
    ".jpeg",
    ".webp",
    ".bmp",
    ".gif",
    ".tif",
    ".tiff",
    ".ppm",
    ".pgm",
)


@dataclass(frozen=True, slots=True)
class ImageList:
    """The images of a folder in the order in which they are records.

    Attributes:
        classes: What the labels stand for; None where the folder has no class folders.
        files: Paths below the folder.
        labels: The index in `classes` for each file; empty without classes.
        changed_ns: When each folder last got or lost a file.
        fingerprint: Tells lists of other files or classes apart.
    """

    classes: tuple[str, ...] | None
    files: tuple[str, ...]
    labels: tuple[int, ...]
    changed_ns: dict[str, int]
    fingerprint: str

    @classmethod
    def of(
        cls,
        classes: tuple[str, ...] | None,
        files: Sequence[str],
        labels: Sequence[int],
        changed_ns: dict[str, int],
    ) -> "ImageList":
        """A list with its fingerprint."""
        names = "\0".join((*(classes or ()), "", *files))
        fingerprint = _hash(names).hex()
        return cls(classes, tuple(files), tuple(labels), changed_ns, fingerprint)


def class_names(folder: str) -> list[str]:
    """The classes of a folder of images: the names of its folders, sorted; `label` counts them.

    Raises:
        DataError: The folder cannot be read.
    """
    _, folders = _scan(folder)
    return folders


def holds_images(folder: str) -> bool:
    """Whether a folder holds nothing but images, or folders and in one of them an image.

    Raises:
        DataError: The folder cannot be read.
    """
    files, _ = _scan(folder)
    return all(map(is_image, files)) if files else has_image_folders(folder)


def has_image_folders(folder: str) -> bool:
    """Whether a folder of it holds an image.

    Raises:
        DataError: The folder cannot be read.
    """
    _, folders = _scan(folder)
    return any(any(map(is_image, _scan(_below(folder, name))[0])) for name in folders)


def is_image(name: str) -> bool:
    """Whether the name of a file ends as those of images do."""
    return name.lower().endswith(SUFFIXES)


def list_images(folder: str, classes: Sequence[str] | None) -> ImageList:
    """List the images of a folder.

    Images of classes come in an order of their own, always the same, that mixes the classes: the
    records of a task, and so of a minibatch, are neighbours. Those without come sorted.

    Args:
        folder: With class folders below it, or with images in it.
        classes: What the labels stand for, or None to take the names of the folders.

    Raises:
        DataError: A class has no images, or is none of `classes`.
    """
    changed_ns = {folder: _changed_ns(folder)}
    files, folders = _scan(folder)
    images = [name for name in files if is_image(name)]
    if images and has_image_folders(folder):
        raise DataError(
            f"{folder} holds images ({images[0]}) beside folders of images ({folders[0]}), so "
            "there is no saying which are meant: move the ones, or name the others"
        )
    if images or not folders:
        return ImageList.of(None, images, (), changed_ns)
    known = tuple(folders) if classes is None else tuple(classes)
    found: list[tuple[bytes, str, int]] = []
    for name in folders:
        if name not in known:
            raise DataError(
                f"{folder} has the folder {name!r}, which is none of the classes "
                f"{', '.join(known)}: name it in --data_reader_params classes=[...], or remove it"
            )
        path = _below(folder, name)
        changed_ns[path] = _changed_ns(path)
        inner = [f"{name}/{file}" for file in _scan(path)[0] if is_image(file)]
        if not inner:
            raise DataError(f"{path} holds no images: fill this class, or remove its folder")
        label = known.index(name)
        found += [(_hash(file), file, label) for file in inner]
    found.sort()
    return ImageList.of(
        known, [file for _, file, _ in found], [label for *_, label in found], changed_ns
    )


def is_unchanged(images: ImageList) -> bool:
    """Whether the folders have neither got nor lost a file since they were listed."""
    return all(_changed_ns(path) == changed for path, changed in images.changed_ns.items())


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).digest()


def _below(folder: str, name: str) -> str:
    return f"{folder.rstrip('/')}/{name}"


def _changed_ns(path: str) -> int:
    """When a folder got or lost a file; a remote one does not tell, and listing it takes long."""
    if is_address(path):
        return 0
    try:
        return Path(path).stat().st_mtime_ns
    except OSError as error:
        raise unreadable(path, error) from error


def _scan(folder: str) -> tuple[list[str], list[str]]:
    """The files and the folders in a folder, sorted, without hidden ones."""
    if is_address(folder):
        return scan_remote(folder)
    files: list[str] = []
    folders: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not entry.name.startswith("."):
                    (folders if entry.is_dir() else files).append(entry.name)
    except OSError as error:
        raise unreadable(folder, error) from error
    return sorted(files), sorted(folders)
