"""What was written to a Redis lately, for one that comes back without the last of it.

A server hands its file to the disk every second, or two where the disk is slow, and with its
machine it loses what it has not: always the last of what it has answered, and a transaction whole
or not at all. So it is at a stamp that was there before, and the transactions since bring it to
where it was. They may be made again where it has them already: each leaves what it leaves.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

FillTransaction: TypeAlias = Callable[[Any], None]
"""Adds the commands of a transaction."""

KEPT_S: Final = 10.0
"""After so long what a server has answered is on its disk, unless it keeps nothing there."""

KEPT_BYTES: Final = 64 << 20
"""Of rows in what all parts of a store keep together; the oldest of more is forgotten."""


@dataclass(frozen=True, slots=True)
class Written:
    """One transaction.

    Attributes:
        before: The stamp that it found.
        after: The one that it left, which may be the same.
        fill: Its commands, whose arrays do not change.
        size_bytes: About what these take.
        at_s: When it was made.
    """

    before: bytes | None
    after: bytes | None
    fill: FillTransaction
    size_bytes: int
    at_s: float


class RedoLog:
    """The last transactions, one behind the other. Thread-safe."""

    def __init__(self, max_bytes: int, now: Callable[[], float] = time.monotonic) -> None:
        """Begin with none.

        Args:
            max_bytes: Of those that are kept.
            now: Seconds.
        """
        self._max_bytes = max_bytes
        self._now = now
        self._lock = threading.Lock()
        self._kept: deque[Written] = deque()
        self._size_bytes = 0
        self._is_torn = False

    def add(
        self, before: bytes | None, after: bytes | None, fill: FillTransaction, size_bytes: int
    ) -> None:
        """Keep what was made now."""
        now_s = self._now()
        with self._lock:
            self._kept.append(Written(before, after, fill, size_bytes, now_s))
            self._size_bytes += size_bytes
            while self._size_bytes > self._max_bytes or self._kept[0].at_s < now_s - KEPT_S:
                self._forget_oldest()
                if not self._kept:
                    break

    def clear(self) -> None:
        """Begin anew: nothing is to be made again of what was written until now."""
        with self._lock:
            self._kept.clear()
            self._size_bytes, self._is_torn = 0, False

    def since(self, stamp: bytes | None) -> list[Written]:
        """What is to be made again by a server at a stamp that was there before.

        Nothing where that is longer ago, or the newest one; nor where there is no stamp at all, as
        on another disk: that is for a cut.
        """
        if stamp is None:
            return []
        with self._lock:
            kept = list(self._kept)
            is_torn = self._is_torn
        for i, written in enumerate(kept):
            if written.before == stamp:
                # Others at this stamp are forgotten, and whether the server has them nobody knows.
                return [] if i == 0 and is_torn else kept[i:]
        return []

    def _forget_oldest(self) -> None:
        written = self._kept.popleft()
        self._size_bytes -= written.size_bytes
        self._is_torn = written.before == written.after
