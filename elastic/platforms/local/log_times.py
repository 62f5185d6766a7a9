"""When a line of a local log was written, as far as the log tells.

The programs of a job begin their lines with the time, and each launch begins with a header that
has it. Any other line (a traceback, what a user's model prints) belongs to the line before it.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final

from elastic.platforms.base import LogLine
from elastic.platforms.replica_log import TIME

_TIMED: Final = re.compile(TIME + " [DIWEC] ")
_HEADER: Final = re.compile(r"--- launch \d+ of \S+ at (\S+) ---$")


class LineClock:
    """Follows the times of one log, line by line."""

    def __init__(self, replica: str) -> None:
        self._replica = replica
        self._now: datetime | None = None

    def stamped(self, texts: Iterable[str], since_s: float | None) -> Iterator[LogLine]:
        """The lines with their times, without those from before `since_s`.

        A line whose time nobody can tell is kept.
        """
        for text in texts:
            self._now = _time_of(text) or self._now
            if since_s is not None and self._now and self._now.timestamp() < since_s:
                continue
            stamp = self._now.isoformat(timespec="milliseconds") if self._now else ""
            yield LogLine(self._replica, text, stamp)


def _time_of(text: str) -> datetime | None:
    timed = _TIMED.match(text)
    header = None if timed else _HEADER.match(text)
    try:
        if timed:
            # A job may live in another time zone than who reads of it.
            text = f"{timed['second']}.{timed['milli']}{timed['zone'] or ''}"
            return datetime.fromisoformat(text).astimezone()
        return datetime.fromisoformat(header[1]) if header else None
    except ValueError:
        # A user's model prints whatever it likes.
        return None
