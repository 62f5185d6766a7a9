"""What a user writes for a source of records: one or several paths, globs and addresses."""

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from elastic.errors import DataError
from elastic.spec.values.paths import expand_user

_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://")
_WEB: Final = re.compile(r"https?://", re.IGNORECASE)
_PART: Final = re.compile(r'\s*(?:"((?:[^"]|"")*)"\s*|([^",][^,]*|))(?:,|$)')
"""One of several: in double quotes, where a quote is written twice, or up to the next comma."""


def is_address(name: str) -> bool:
    """Whether a name is one of a remote file system, as `s3://bucket/key`."""
    return _ADDRESS.match(name) is not None


def file_name(name: str) -> str:
    """A path or an address without what a web server is asked besides it."""
    return re.split(r"[?#]", name, maxsplit=1)[0] if _WEB.match(name) else name


def hidden_from(pattern: str) -> tuple[str, ...]:
    """How the names begin that a glob leaves out, as a folder does, unless its own does so too."""
    last = pattern.rpartition("/")[2]
    return tuple(sign for sign in (".", "_") if not last.startswith(sign))


def split_origin(origin: str, exists: Callable[[str], bool]) -> list[str]:
    """The paths, globs and addresses that stand in one setting, separated by commas.

    Args:
        origin: As written by the user.
        exists: Whether a file or folder has this whole name: then the comma is part of it.

    Raises:
        DataError: One is empty, or a quote is not closed.
    """
    if ("," not in origin and not origin.startswith('"')) or exists(origin):
        return [origin]
    parts: list[str] = []
    position, goes_on = 0, True
    while goes_on:
        match = _PART.match(origin, position)
        if match is None:
            raise DataError(
                f'{origin}: a quote is not closed before a comma: write "a,b.csv",c.csv for the '
                "two files a,b.csv and c.csv"
            )
        quoted, plain = match.groups()
        part = quoted.replace('""', '"') if quoted is not None else plain.strip()
        if not part:
            raise DataError(
                f"{origin} has an empty name between its commas: leave the comma out, or put a "
                "name that holds commas into double quotes"
            )
        parts.append(part)
        position, goes_on = match.end(), match[0].endswith(",")
    return parts


def absolute_origin(
    origin: str, folder: Path, is_path: Callable[[str], bool] = lambda _: True
) -> str:
    """The same with its paths written from the root; addresses stay as they are.

    Args:
        origin: As written by the user.
        folder: Where relative paths begin.
        is_path: Tells names that are none, which stay as they are.

    Raises:
        DataError: See `split_origin`.
        JobSpecError: One begins with a home folder that is not known.
    """
    parts = split_origin(origin, lambda name: os.path.lexists(folder / name))
    placed = [
        str(folder / expand_user(part)) if not is_address(part) and is_path(part) else part
        for part in parts
    ]
    return origin if placed == parts else join_origins(placed)


def join_origins(parts: Sequence[str]) -> str:
    """What `split_origin` splits into these parts; one part alone stays as it is."""
    if len(parts) == 1:
        return parts[0]
    return ",".join(
        '"' + part.replace('"', '""') + '"' if "," in part or '"' in part else part
        for part in parts
    )
