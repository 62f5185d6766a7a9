"""What ends a command from outside is one thing: Ctrl-C, SIGTERM, and a terminal that is closed."""

import errno
import os
import signal
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)
_OUTPUTS: Final = (1, 2)


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
