"""What shows something that goes on while somebody waits: a live view, or plain lines."""

import os
from types import TracebackType
from typing import Final, Protocol, Self, TextIO, TypeVar

LINE_INTERVAL_S: Final = 2.0
"""At most one plain line of mere progress in this time: a log of a long job stays readable."""

_PLAIN_TERMINALS: Final = ("dumb", "unknown")
"""Take text and nothing else; Rich takes the same two for such."""

Shown = TypeVar("Shown", contravariant=True)


class Display(Protocol[Shown]):
    """Shows how something goes on; a context manager, for a terminal is left as it was found."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def show(self, progress: Shown, /) -> None:
        """Take every look, changed or not: what is held back for a while is shown by a later one.

        Of a job, the final status prints the summary.
        """


class Startable(Protocol):
    """A part of the terminal that is drawn anew: Rich's `Live` or its `Progress`."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


def can_move_cursor(stream: TextIO) -> bool:
    """Whether a live view can be shown there."""
    return stream.isatty() and os.environ.get("TERM", "").lower() not in _PLAIN_TERMINALS


def takes_colours(stream: TextIO) -> bool:
    """Whether colours can be shown there, and are wanted."""
    return can_move_cursor(stream) and not os.environ.get("NO_COLOR")


class PlainLines:
    """Lines on a stream; the context manager of a display that prints nothing else."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return

    def print(self, line: str) -> None:
        # A reader of the pipe waits for each line, not for a full buffer.
        print(line, file=self._stream, flush=True)


class LiveView:
    """The context manager of a display that draws a part of the terminal anew."""

    def __init__(self, drawn: Startable) -> None:
        self._drawn = drawn

    def __enter__(self) -> Self:
        self._drawn.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._drawn.stop()
