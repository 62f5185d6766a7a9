"""Files that are there whole or not at all, whenever their writer is killed."""

import contextlib
import os
from pathlib import Path
from typing import Final, Protocol

BEGUN: Final = ".begun"
"""Ends the name of a file that is being written; nobody reads those."""


class Files(Protocol):
    """The operations of a file system that such a file is made of, each done or not done."""

    def write(self, path: Path, data: bytes) -> None:
        """Make or replace a file; a writer that is killed may leave a part of it."""

    def sync(self, path: Path) -> None:
        """Have a file, or the names in a folder, outlast the machine."""

    def rename(self, path: Path, target: Path) -> None:
        """Give a file another name in one step; who had that name is gone."""

    def remove(self, path: Path) -> None:
        """Remove a file, if it is there."""


class SystemFiles:
    """The file system of this machine."""

    def write(self, path: Path, data: bytes) -> None:
        path.write_bytes(data)

    def sync(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, path: Path, target: Path) -> None:
        path.replace(target)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)


def write_whole(files: Files, target: Path, data: bytes, writer: str) -> None:
    """Make or replace `target`, which afterwards is there whole, or as it was.

    Args:
        files: Where.
        target: What readers look for.
        data: All of it.
        writer: Tells apart those who may write the same file at one time.

    Raises:
        OSError: The disk is full, or not writable; what was begun has been removed.
    """
    begun = target.with_name(f".{target.name}.{writer}{BEGUN}")
    try:
        files.write(begun, data)
        files.sync(begun)
        files.rename(begun, target)
    except OSError:
        with contextlib.suppress(OSError):
            files.remove(begun)
        raise
    files.sync(target.parent)
