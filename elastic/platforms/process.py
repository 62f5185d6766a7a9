"""What a process does for itself: its log, its last step, what it knows and asks about memory.

No import of ours: it is used by processes that must stay small.
"""

import logging
import os
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Final

TIME: Final = r"(?P<second>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(?P<milli>\d{3})(?P<zone>[+-]\d{4})?"
"""A pattern of the time that a line begins with; one without a zone is in the reader's."""


def start_logging(level: str) -> None:
    """Log to standard error from a level on."""
    handler = logging.StreamHandler()
    handler.setFormatter(_ZonedFormatter("%(asctime)s %(levelname).1s %(name)s: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])


class _ZonedFormatter(logging.Formatter):
    """Times with their zone: who reads a log may live in another one than the job."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802 - as `logging` has it
        moment = datetime.fromtimestamp(record.created).astimezone()
        return f"{moment:%Y-%m-%d %H:%M:%S},{int(record.msecs):03d}{moment:%z}"


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


CGROUPS: Final = Path("/sys/fs/cgroup")


def own_counter(cgroups: Path = CGROUPS, own: Path = Path("/proc/self/cgroup")) -> Path | None:
    """The file that counts for the cgroup of this process; None where there is none."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return None
    return next((path for path in _candidates(cgroups, lines) if path.is_file()), None)


def _candidates(cgroups: Path, lines: list[str]) -> Iterator[Path]:
    """Of version 2, then of version 1.

    A container sees its own cgroup where a machine has its topmost, but may be told its path there.
    """
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield cgroups / path.lstrip("/") / "memory.events"
            yield cgroups / "memory.events"
        elif "memory" in controllers.split(","):
            yield cgroups / "memory" / path.lstrip("/") / "memory.oom_control"
            yield cgroups / "memory" / "memory.oom_control"


def count_kills(counter: Path | None) -> int:
    """Processes killed so far; 0 where nobody counts, as where the kernel is too old."""
    if counter is None:
        return 0
    try:
        text = counter.read_text()
    except OSError:
        return 0
    counts = dict(line.split(maxsplit=1) for line in text.splitlines() if " " in line)
    value = counts.get("oom_kill", "0").strip()
    return int(value) if value.isdecimal() else 0


# What a process asks of the C library that allocates its memory.


def set_allocator_options(options: Mapping[int, int]) -> bool:
    """Have glibc follow these; False where that is not to be had.

    A user who has set one of glibc's variables is left with that.

    Args:
        options: Values by the numbers of <malloc.h>.
    """
    if any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ):
        return False
    # The first process of a container stays smaller without it.
    import ctypes

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    return all(mallopt(option, value) == 1 for option, value in options.items())


# How the master's C library handles the memory that its threads allocate and free again.


_M_ARENA_MAX: Final = -8
"""Number of <malloc.h>."""


def share_one_heap() -> bool:
    """Have all threads allocate from one heap; False where that is not to be had.

    Updates, reads and cuts run in threads of a pool, now in this one and now in that. Of itself
    glibc gives each thread a heap, which keeps what its largest call has freed: with updates of
    48 MiB of rows that came to 300 MiB, which nobody else could use. The interpreter has one thread
    allocate at a time anyway. A user who has set one of glibc's variables is left with that.
    """
    return set_allocator_options({_M_ARENA_MAX: 1})


# How a worker's C library handles the memory that every step allocates and frees again.


# Numbers of <malloc.h>.
_M_TRIM_THRESHOLD: Final = -1
_M_TOP_PAD: Final = -2
_M_MMAP_THRESHOLD: Final = -3

KEPT_BYTES: Final = 512 << 20
"""Free memory at the heap's end, above which it goes back to the system."""

TOP_PAD_BYTES: Final = 64 << 20
MMAP_BYTES: Final = 32 << 20
"""Larger blocks are mapped and unmapped one by one; glibc allows no more."""


def keep_freed_memory() -> bool:
    """Let glibc keep what a step frees for the next one; False where that is not to be had.

    By itself it gives the end of the heap back whenever a few megabytes are free there, as after
    every backward pass, and the next step faults each page in anew: 1,000 to 2,700 faults, 2 to 6 %
    of a step of 170 ms. A user who has set one of glibc's variables is left with that.
    """
    return set_allocator_options(
        {
            _M_MMAP_THRESHOLD: MMAP_BYTES,
            _M_TRIM_THRESHOLD: KEPT_BYTES,
            _M_TOP_PAD: TOP_PAD_BYTES,
        }
    )
