"""From what the user wrote to the files it means."""

import glob
import json
import os
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Final

from elastic.data.files import unreadable
from elastic.data.formats import format_of, is_folder
from elastic.data.image_folders import has_image_folders, holds_images
from elastic.errors import DataError, legible
from elastic.spec.origins import file_name, hidden_from, is_address, split_origin
from elastic.spec.paths import is_dir

UNFINISHED: Final = ".unfinished"
"""Is in a folder that `elastic data convert` has not filled yet."""

MANIFEST: Final = "_manifest.json"
"""Is in one that it has filled, and names its files."""


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
        # fsspec takes long to import.
        from elastic.data.remote import is_remote_folder, list_remote

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
