"""Standard output that nobody reads, or that takes nothing any more."""

import errno
import io
import os
import sys
from pathlib import Path
from typing import Final

_UNWRITABLE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF)


def ensure_output() -> None:
    """Have both streams take whatever is written.

    It goes nowhere where this process was started without an output (`>&-`), and what the
    encoding of the user's locale does not have becomes a question mark.
    """
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - for the life of the process
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - for the life of the process
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="replace")


def close_stdout() -> None:
    """Keep the interpreter from complaining at exit that nobody reads its output."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def is_unwritable(error: Exception) -> bool:
    """Whether this is what a full disk behind the output says; what has a name is another file."""
    return isinstance(error, OSError) and error.filename is None and error.errno in _UNWRITABLE
