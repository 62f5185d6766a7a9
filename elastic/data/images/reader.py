"""Folders of images: a record is one image, with its label where folders are classes."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elastic.data.base import Chunks, ReadTask
from elastic.data.formats.registry import ReaderOptions
from elastic.data.image_folders import ImageList, is_unchanged, list_images
from elastic.data.images.decoder import read_image
from elastic.data.images.decoders import ImageDecoders
from elastic.data.storage.files import OpenFiles
from elastic.errors import DataError
from elastic.policy.records import Picks, Shard


class ImageReader:
    """Images as uint8 arrays (height, width, channels), with label and path."""

    def __init__(self, files: OpenFiles, options: ReaderOptions) -> None:
        self._files = files
        self._options = options
        self._lists: dict[str, ImageList] = {}
        self._decoders: ImageDecoders | None = None
        if options.processes:
            self._decoders = ImageDecoders(options.image_mode, options.size, options.processes)

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

    def create_chunks(self, names: Sequence[str]) -> Chunks:
        # Each image is a file of its own.
        return Chunks(self.create_shards(names, 1))

    def read_records(self, task: ReadTask) -> Iterator[dict[str, Any]]:
        indices = np.arange(task.start, task.end)
        yield from self.read_picks(Picks((task.shard,), np.zeros(len(indices), np.int32), indices))

    def read_picks(self, picks: Picks) -> Iterator[dict[str, Any]]:
        """Images of any folders in any order, which are all asked for at once."""
        lists = [self._counted(shard) for shard in picks.shards]
        places = list(zip(picks.owners.tolist(), picks.indices.tolist(), strict=True))
        paths = [f"{picks.shards[owner].name}{lists[owner].files[at]}" for owner, at in places]
        for (owner, at), path, image in zip(places, paths, self._read(paths), strict=True):
            record: dict[str, Any] = {"image": image}
            if lists[owner].classes is not None:
                record["label"] = np.int64(lists[owner].labels[at])
            record["path"] = path
            yield record

    def _counted(self, shard: Shard) -> ImageList:
        images = self._images_of(shard.name)
        # A reader of the user's may have made the shard, without one.
        is_other = shard.fingerprint not in ("", images.fingerprint)
        if is_other or shard.end > len(images.files):
            raise _changed(f"{shard.name} has got or lost images since they were counted")
        return images

    def _read(self, paths: Sequence[str]) -> Iterator[NDArray[np.uint8]]:
        if self._decoders is not None:
            return self._decoders.read(paths)
        options = self._options
        return (read_image(self._files, path, options.image_mode, options.size) for path in paths)

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


def _changed(what: str) -> DataError:
    return DataError(f"{what}: leave data alone while a job runs, and start the job again")


def _tell(images: ImageList) -> str:
    if images.classes is None:
        return "no classes"
    return f"the classes {', '.join(images.classes)}"
