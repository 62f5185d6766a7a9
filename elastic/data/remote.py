"""Files of object stores and web servers, by `fsspec`: listed once, read by ranges.

A request costs as much time as a megabyte, so bytes are fetched in blocks and the last ones stay.
"""

import glob
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Any, Final, TypeVar

from elastic.data.base import Extra, check_extra, how_to_get
from elastic.data.storage import SourceFile, Version
from elastic.errors import DataError
from elastic.spec.values import file_name, hidden_from

R = TypeVar("R")

REMOTE: Final = Extra("remote", ("fsspec",))

BLOCK_BYTES: Final = 2 << 20
MAX_BLOCKS: Final = 3
"""Of a file: its begin, which every task of a CSV file looks at, and two to read on."""

LOOK_AGAIN_S: Final = 5.0
"""A file is asked for changes so often at most: each time is a request."""

_TRIES: Final = 4
_PAUSE_S: Final = 0.5

_TAGS: Final = (
    "ETag", "etag", "generation", "mtime", "LastModified", "last_modified", "Last-Modified",
    "updated", "Content-MD5", "created",
)  # fmt: skip
"""What file systems call that which changes when a file is written to, the surest first."""

_ERRORS: Final = {
    "aiohttp": ("ClientError",),
    "botocore.exceptions": ("BotoCoreError", "ClientError"),
    "google.auth.exceptions": ("GoogleAuthError",),
    "gcsfs.retry": ("HttpError",),
}
"""What the libraries behind fsspec raise that is no OSError."""

_CREDENTIAL_WORDS: Final = ("credential", "accessdenied", "access denied", "forbidden")


class RemoteFile(SourceFile):
    """A file of a file system that fsspec knows, with the blocks of it that were read last.

    fsspec's own caches of blocks have no public method to read by position but a file object, whose
    position all threads share, and which asks for the size once more; and they drop the begin, so
    that each task of several blocks costs one request more (12 requests of 24 MB became 14).
    """

    is_far = True

    def __init__(self, name: str, version: Version) -> None:
        super().__init__(name, version)
        self._fs, self._path = _file_system(name)
        self._lock = threading.Lock()
        self._blocks: OrderedDict[int, bytes] = OrderedDict()

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        end = min(offset + size_bytes, self.size)
        parts = []
        while offset < end:
            number, begin = divmod(offset, BLOCK_BYTES)
            part = self._block(number)[begin : begin + end - offset]
            parts.append(part)
            offset += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _block(self, number: int) -> bytes:
        with self._lock:
            block = self._blocks.get(number)
            if block is not None:
                self._blocks.move_to_end(number)
                return block
        block = self._fetch(number * BLOCK_BYTES)
        with self._lock:
            self._blocks[number] = block
            if len(self._blocks) > MAX_BLOCKS:
                # The begin stays.
                self._blocks.pop(next(kept for kept in self._blocks if kept))
        return block

    def _fetch(self, start: int) -> bytes:
        end = min(start + BLOCK_BYTES, self.size)
        data: bytes = _attempt(
            self.name, lambda: self._fs.cat_file(self._path, start=start, end=end)
        )
        if len(data) > end - start:
            raise DataError(
                f"{self.name}: the server sends the whole file when it is asked for a part: copy "
                "the file, or serve it with a server that answers range requests"
            )
        if len(data) < end - start:
            raise self._truncated(start, end - start, start + len(data))
        return data


class RemoteVersions:
    """How remote files are now, asked again after a while; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[float, Version]] = {}

    def look(self, name: str) -> Version:
        """Tell size and tag.

        Raises:
            DataError: It is not there, or cannot be asked for.
        """
        now_s = time.monotonic()
        with self._lock:
            seen = self._seen.get(name)
        if seen is not None and now_s < seen[0] + LOOK_AGAIN_S:
            return seen[1]
        version = _look(name)
        with self._lock:
            self._seen[name] = (now_s, version)
        return version


def list_remote(origin: str) -> list[str]:
    """Name the files behind an address, a remote folder or a remote glob, sorted.

    Raises:
        DataError: Nothing is there, or it cannot be listed.
    """
    fs, path = _file_system(origin)
    if glob.has_magic(file_name(path)):
        entries = _attempt(origin, lambda: fs.glob(path, detail=True)).values()
        names = _visible_files(fs, entries, hidden_from(path))
        if not names:
            raise DataError(f"no file matches {origin}: check the pattern")
        return names
    if not is_remote_folder(origin):
        return [origin]
    entries = _attempt(origin, lambda: fs.ls(path, detail=True))
    names = _visible_files(fs, entries, hidden=(".", "_"))
    if not names:
        raise DataError(
            f"{origin} holds no files: put the records there, or give a glob for the files below "
            f"its folders, like '{origin.rstrip('/')}/**/*.csv'"
        )
    return names


def is_remote_folder(origin: str) -> bool:
    """Whether an address is that of a folder, and neither a glob nor a file.

    Raises:
        DataError: Nothing is there, or it cannot be asked for.
    """
    fs, path = _file_system(origin)
    if glob.has_magic(file_name(path)):
        return False
    return path.endswith("/") or _attempt(origin, lambda: fs.info(path))["type"] != "file"


def scan_remote(folder: str) -> tuple[list[str], list[str]]:
    """The names of the files and of the folders in a folder, sorted, without hidden ones.

    Raises:
        DataError: It cannot be listed.
    """
    fs, path = _file_system(folder)
    files: set[str] = set()
    folders: set[str] = set()
    for entry in _attempt(folder, lambda: fs.ls(path, detail=True)):
        found = str(entry["name"]).rstrip("/")
        name = PurePosixPath(found).name
        # Object stores list the object that stands for the folder itself.
        if found != path.rstrip("/") and not name.startswith(".") and not _is_link_of_index(found):
            (files if entry["type"] == "file" else folders).add(name)
    return sorted(files), sorted(folders)


def _visible_files(
    fs: Any, entries: Iterable[Mapping[str, Any]], hidden: tuple[str, ...]
) -> list[str]:
    """The addresses of what is a file whose name does not begin like a hidden one, sorted."""
    names = [str(entry["name"]) for entry in entries if entry["type"] == "file"]
    # Object stores keep a folder as an object whose name ends with a slash.
    return sorted(
        fs.unstrip_protocol(name)
        for name in names
        if not name.endswith("/")
        and not PurePosixPath(name).name.startswith(hidden)
        and not _is_link_of_index(name)
    )


def _is_link_of_index(name: str) -> bool:
    """Whether a web server's index of a folder names itself so, as sorted otherwise."""
    address, query, _ = name.partition("?")
    return bool(query) and address.startswith(("http://", "https://")) and address.endswith("/")


def _look(name: str) -> Version:
    fs, path = _file_system(name)
    # What a listing told may be old.
    fs.invalidate_cache(path)
    info = _attempt(name, lambda: fs.info(path))
    if info["type"] != "file":
        raise DataError(f"{name} is not a file: name a file, a folder or a glob of files")
    if info.get("size") is None:
        raise DataError(f"{name}: the server does not tell how large the file is: copy the file")
    tag = next((str(info[key]) for key in _TAGS if info.get(key) is not None), "")
    return Version(int(info["size"]), tag)


def _file_system(name: str) -> tuple[Any, str]:
    """The file system of an address, and the path in it."""
    check_extra(REMOTE, f"addresses like {name}")
    import fsspec

    try:
        with _told(name):
            fs, path = fsspec.core.url_to_fs(name)
    except (ImportError, ValueError) as error:
        # fsspec names the package.
        raise DataError(
            f"{name} cannot be read ({error}): check what stands before ://, or "
            + how_to_get(REMOTE)
        ) from error
    return fs, str(path)


def _attempt(name: str, call: Callable[[], R]) -> R:
    """Call a file system, again where waiting may help.

    Raises:
        DataError: It refuses, or is away.
    """
    for pause in range(_TRIES - 1):
        try:
            return call()
        except _raised() as error:
            if not _is_passing(_reason(error)):
                raise _unreadable(name, error) from error
            time.sleep(_PAUSE_S * 2**pause)
    with _told(name):
        return call()


@contextmanager
def _told(name: str) -> Iterator[None]:
    try:
        yield
    except _raised() as error:
        raise _unreadable(name, error) from error


def _raised() -> tuple[type[Exception], ...]:
    """What a file system may raise, of the libraries that are in use."""
    found: list[type[Exception]] = [OSError]
    for module, names in _ERRORS.items():
        if module in sys.modules:
            found += [getattr(sys.modules[module], name) for name in names]
    return tuple(found)


def _reason(error: Exception) -> Exception:
    """What is behind an error: fsspec says of all that fails on the web that it is not there."""
    cause = error.__cause__
    if isinstance(error, FileNotFoundError) and isinstance(cause, _raised()):
        return error if getattr(cause, "status", None) in (404, 410) else cause
    return error


def _is_passing(error: Exception) -> bool:
    if isinstance(error, (FileNotFoundError, PermissionError, IsADirectoryError)):
        return False
    status = getattr(error, "status", None)
    return isinstance(error, (ConnectionError, TimeoutError)) or (
        status >= 500 if isinstance(status, int) else type(error).__module__.startswith("aiohttp")
    )


def _unreadable(name: str, raised: Exception) -> DataError:
    error = _reason(raised)
    text = str(error) or type(error).__name__
    refusal = f"{type(error).__name__} {text}".lower()
    status = getattr(error, "status", None)
    if isinstance(error, FileNotFoundError):
        return DataError(f"{name} does not exist: check the address")
    if (
        isinstance(error, PermissionError)
        or status in (401, 403)
        or any(word in refusal for word in _CREDENTIAL_WORDS)
    ):
        return DataError(
            f"{name} may not be read ({text}): give the replicas credentials that may read it, in "
            "the environment or as the role of their account; see docs/data.md"
        )
    return DataError(
        f"{name} cannot be read ({text}): check the address, and that the replicas reach it"
    )
