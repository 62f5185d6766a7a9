"""What is known of a process that ended without saying why."""

import re
from pathlib import Path
from typing import Final

from elastic.platforms.replica_log import TIME

STEP_NAME: Final = "preparing"
"""The file in which a master says which step of the preparation it is at; gone afterwards."""

MAX_STEP_LENGTH: Final = 500

UNFINISHED: Final = "exited with code 0 without finishing: its own code ended the process"
"""Of a worker that did not say that it has completed, which each says that does."""

_OWN_NEWS: Final = re.compile(TIME + r" [DI] elastic[\w.]*: ")
"""A line of our own log that tells of nothing wrong."""


def exit_words(code: int, last_line: str) -> str:
    """A message for people about a program that exited by itself, with an error."""
    if not last_line:
        return f"exit code {code} and no output"
    if _OWN_NEWS.match(last_line):
        return f"exit code {code}, without a word why"
    # An exception that nobody caught exits with 1, and stands in the last line.
    return last_line if code == 1 else f"exit code {code}: {last_line}"


def read_step(path: Path) -> str:
    """The step of the preparation in which a master ended; empty where it had none."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")[:MAX_STEP_LENGTH]
    except OSError:
        # It decorates a message about something else, which must not be lost for it.
        return ""
