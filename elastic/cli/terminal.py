"""Whoever is at the other end of a command: one who ends it, or whose output takes nothing more.

What ends a command from outside is one thing: Ctrl-C, SIGTERM, and a terminal that is closed. It
is listened for before all else is imported, so nothing large is imported here: not even `pathlib`.
"""

import errno
import io
import os
import signal
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)
_OUTPUTS: Final = (1, 2)
_UNWRITABLE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF)


@contextmanager
def as_ctrl_c() -> Iterator[None]:
    """Raise `KeyboardInterrupt` for SIGTERM and SIGHUP too while the block runs.

    A signal that whoever started us has ignored (`nohup`) stays ignored.
    """
    before = {number: signal.getsignal(number) for number in _ENDING}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(signal_number: int, _frame: FrameType | None) -> None:
    if signal_number == signal.SIGHUP:
        # A closed terminal may tell its shell and the kernel tells us as well: that is one wish.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        _let_go_of_closed_terminals()
    raise KeyboardInterrupt


def _let_go_of_closed_terminals() -> None:
    """Have output for a terminal that is gone go nowhere, instead of failing what is left to do."""
    for descriptor in _OUTPUTS:
        try:
            termios.tcgetattr(descriptor)
        except termios.error as error:
            if error.args[0] == errno.EIO:
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, descriptor)
                os.close(nowhere)


def ensure_output() -> None:
    """Have both streams take whatever is written.

    It goes nowhere where this process was started without an output (`>&-`), and what the
    encoding of the user's locale does not have becomes a question mark.
    """
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115 - for the life of the process
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115 - for the life of the process
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="replace")


def close_stdout() -> None:
    """Keep the interpreter from complaining at exit that nobody reads its output."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def is_unwritable(error: Exception) -> bool:
    """Whether this is what a full disk behind the output says; what has a name is another file."""
    return isinstance(error, OSError) and error.filename is None and error.errno in _UNWRITABLE
