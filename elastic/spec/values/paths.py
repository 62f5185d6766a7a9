"""Looking at paths as users write them, which may be such as no file can have.

The methods of `Path` raise, before Python 3.14, where a name is too long or a folder may not be
searched, and a list of twenty files is too long for a name.
"""
# ruff: noqa: PTH110, PTH112, PTH113 (the methods of Path are what this module replaces)

import os
from pathlib import Path

from elastic.errors import JobSpecError


def exists(path: str | Path) -> bool:
    """Whether there is something, as far as one can tell."""
    return os.path.exists(path)


def is_dir(path: str | Path) -> bool:
    """Whether this is a folder, as far as one can tell."""
    return os.path.isdir(path)


def is_file(path: str | Path) -> bool:
    """Whether this is a regular file, as far as one can tell."""
    return os.path.isfile(path)


def expand_user(path: str) -> Path:
    """The path with `~` or `~NAME` at its begin replaced by that home folder.

    Raises:
        JobSpecError: Nobody knows that folder.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise JobSpecError(
            f"{path} begins with a home folder that is not known: write the path from the root"
        ) from error
