"""From what the user wrote to the files it means, and how each of them is opened."""

import glob
import json
import os
import zlib
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Final

from elastic.data.base import check_extra
from elastic.data.formats.registry import FORMATS, ReaderOptions, format_of, is_folder
from elastic.data.formats.tfrecord import is_record_head
from elastic.data.image_folders import has_image_folders, holds_images
from elastic.data.remote import RemoteFile, RemoteVersions, is_remote_folder, list_remote
from elastic.data.storage import (
    CODECS,
    Codec,
    DecompressedFile,
    LocalFile,
    OpenFiles,
    SourceFile,
    Version,
    codec_of,
    look_local,
    unreadable,
)
from elastic.errors import DataError, legible
from elastic.spec.values import file_name, hidden_from, is_address, is_dir, split_origin

UNFINISHED: Final = ".unfinished"
"""Is in a folder that `elastic data convert` has not filled yet."""

MANIFEST: Final = "_manifest.json"
"""Is in one that it has filled, and names its files."""

_PROBE_BYTES: Final = 256
"""Of the begin of a file, which tells whether it is compressed."""


def list_files(origin: str) -> list[str]:
    """Name the files behind one or several files, folders, globs and addresses.

    In the order in which they are written, those of one sorted, hidden ones left out, each file
    once. Names begin as they are written, so that they mean the same to every process and person.
    A folder of images is one name, with a `/` at its end.

    Raises:
        DataError: Nothing is there.
    """
    if not origin:
        raise DataError("the path of the records is empty: name a file, a folder or a glob")
    parts = split_origin(origin, os.path.lexists)
    names: dict[str, str] = {}
    for part in parts:
        for name in _list_part(part):
            path = name.removeprefix("file://")
            names.setdefault(path if is_address(path) else os.path.abspath(path), name)  # noqa: PTH100 (resolving links would make one of two links to a file)
    for name in names.values():
        if legible(name) != name:
            raise DataError(
                f"the name of {name} is not UTF-8, and no task or status can hold it: rename it"
            )
    local = [name.removeprefix("file://") for name in names.values()]
    for folder in {
        Path(name).parent for name in local if not (is_address(name) or is_folder(name))
    }:
        _check_finished(folder)
    return list(names.values())


def _list_part(origin: str) -> list[str]:
    if is_address(origin):
        if not is_remote_folder(origin):
            return list_remote(origin)
        if holds_images(origin):
            return [f"{origin.rstrip('/')}/"]
        return _checked(origin, list_remote(origin))
    if is_dir(origin):
        if holds_images(origin):
            return [f"{Path(origin)}/"]
        return _checked(origin, _list_folder(origin))
    if os.path.lexists(origin):
        return [origin]
    if glob.has_magic(origin):
        # A pattern with several ** finds a file more than once.
        hidden = hidden_from(origin)
        names = sorted(
            name
            for name in set(_glob(origin))
            if not (PurePath(name).name.startswith(hidden) or is_dir(name))
        )
        if not names:
            raise DataError(
                f"no file matches {origin}: check the pattern, and quote it for your shell "
                "(** stands for folders at any depth)"
            )
        return names
    raise DataError(
        f"{origin} does not exist: check the path; the replicas of a job look for it where they run"
    )


def _checked(folder: str, names: list[str]) -> list[str]:
    """The files of a folder, unless they are what stands beside folders of images."""
    if {format_of(name) for name in names} == {"lines"} and has_image_folders(folder):
        beside = PurePath(file_name(names[0])).name
        raise DataError(
            f"{folder} holds folders of images, and beside them {beside}, which would be read as "
            "lines of text: move it, or name the files that are meant"
        )
    local = folder.removeprefix("file://")
    if not is_address(local):
        _check_whole(Path(local), names)
    return names


def _check_whole(folder: Path, names: Sequence[str]) -> None:
    """Refuse what is left of a conversion, as where a copy of its folder was interrupted."""
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
    except FileNotFoundError:
        return
    except OSError as error:
        raise unreadable(str(folder / MANIFEST), error) from error
    except ValueError:
        manifest = None
    # Others call files of their own so, and so do predictions.
    files = manifest.get("files") if isinstance(manifest, dict) else None
    if not isinstance(files, dict):
        return
    if missing := sorted(files.keys() - {PurePath(name).name for name in names}):
        raise DataError(
            f"{folder} has no {missing[0]}, though its {MANIFEST} names {len(files)} files "
            f"({len(missing)} missing): copy all of it again, or remove {MANIFEST} if "
            "the others alone are meant"
        )


def _check_finished(folder: Path) -> None:
    """Refuse a folder that is being filled, however its files are named."""
    if is_dir(folder / UNFINISHED):
        raise DataError(
            f"{folder} is an unfinished conversion, which lacks records: repeat its command "
            "`elastic data convert`, which goes on where it was interrupted"
        )


def common_format(origin: str, names: Sequence[str]) -> str:
    """The one format of all files.

    Raises:
        DataError: There are several.
    """
    examples: dict[str, str] = {}
    for name in names:
        examples.setdefault(format_of(name), name)
    if len(examples) > 1:
        found = ", ".join(f"{name} is {kind}" for kind, name in sorted(examples.items()))
        raise DataError(
            f"{origin} mixes formats ({found}): choose files with a glob like '{_like(names)}', or "
            "read all of them as one format with --data_reader_params format=..."
        )
    return next(iter(examples))


def _like(names: Sequence[str]) -> str:
    """A glob of the files with the suffix of the first one."""
    pattern = f"*{PurePath(names[0]).suffix}"
    folders = {name.rpartition("/")[0] for name in names}
    return f"{folders.pop()}/{pattern}" if len(folders) == 1 and "" not in folders else pattern


def _glob(pattern: str) -> list[str]:
    return glob.glob(pattern, recursive=True)  # noqa: PTH207 (Path.glob rewrites the user's path)


def _list_folder(origin: str) -> list[str]:
    try:
        with os.scandir(origin) as entries:
            found = [(entry.name, entry.is_dir()) for entry in entries]
    except OSError as error:
        raise unreadable(origin, error) from error
    # It may have no file yet.
    _check_finished(Path(origin))
    visible = [(name, is_dir) for name, is_dir in found if not name.startswith((".", "_"))]
    names = sorted(name for name, is_dir in visible if not is_dir)
    if names:
        return [str(Path(origin) / name) for name in names]
    if visible:
        raise DataError(
            f"{origin} holds folders but no files: to read the files below them, give a glob "
            f"like '{Path(origin) / '**' / '*.csv'}'"
        )
    raise DataError(f"{origin} is an empty folder: put the records there, or check the path")


class Opener:
    """Opens files here or far away, and their content where they are compressed."""

    def __init__(self, options: ReaderOptions) -> None:
        self._options = options
        self._versions = RemoteVersions()

    def open(self, name: str) -> SourceFile:
        """Open a file.

        Raises:
            DataError: It cannot be opened, or its format cannot be read from there.
        """
        file = RemoteFile(name, self.look(name)) if is_address(name) else LocalFile(name)
        format_name = self._options.format or format_of(name)
        if FORMATS[format_name].is_stream:
            return as_content(file, self._options.compression)
        if codec_of(file_name(name)):
            raise DataError(
                f"{name} is compressed as a whole, but {format_name} files are read by position: "
                "decompress it"
            )
        return file

    def look(self, name: str) -> Version:
        """Tell how a file is now.

        Raises:
            DataError: It is not there.
        """
        return self._versions.look(name) if is_address(name) else look_local(name)


def open_files(options: ReaderOptions) -> OpenFiles:
    """The files of a reader with these options."""
    opener = Opener(options)
    return OpenFiles(opener.open, opener.look)


def as_content(file: SourceFile, choice: str | None) -> SourceFile:
    """The file itself, or its content where it is compressed.

    Args:
        file: As stored.
        choice: Name of a codec, `none`, or None to look at the file.

    Raises:
        DataError: A package is missing, or suffix and content contradict each other.
    """
    if choice == "none":
        return file
    codec = CODECS[choice] if choice else _find_codec(file)
    if codec is None:
        return file
    if codec.extra is not None:
        check_extra(codec.extra, f"files like {file.name}")
    return DecompressedFile(file, codec)


def _find_codec(file: SourceFile) -> Codec | None:
    head = file.read_at(0, _PROBE_BYTES)
    # The length of a first TFRecord may look like the begin of anything.
    if is_record_head(head):
        return None
    for codec in CODECS.values():
        if codec.magic is not None and codec.magic.match(head):
            return codec
    named = codec_of(file_name(file.name))
    if named is not None and head:
        raise DataError(
            f"{file.name} does not begin as {named.name} data: it is damaged or not compressed; "
            "mend or rename it, or say --data_reader_params compression=none"
        )
    return CODECS["zlib"] if _is_zlib_of_records(head) else None


def _is_zlib_of_records(head: bytes) -> bool:
    """Two bytes of zlib's begin may be text, but none that holds a TFRecord."""
    try:
        return is_record_head(zlib.decompressobj().decompress(head))
    except zlib.error:
        return False
