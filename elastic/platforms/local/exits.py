"""Why a replica ended: from its exit code, its own words, and the kernel's memory counter."""

import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from elastic.platforms.base import ExitReason
from elastic.platforms.local.directory import Termination
from elastic.platforms.traces import UNFINISHED, count_kills, exit_words

ENDING_SIGNALS: Final = frozenset(
    {signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}
)
"""What people and systems send; any other deadly signal is the program's own doing."""

UNLIMITED: Final = 2**60
"""A limit of so many bytes is none: version 1 of cgroups writes it as a huge number."""

MAX_DYING_S: Final = 10.0
"""The kernel counts a kill before the process is gone: freeing its memory takes a while."""


@dataclass(frozen=True, slots=True)
class ExitFacts:
    """What is known about the end of one process.

    Attributes:
        code: Exit code, negative for a signal; None where nobody could see it.
        termination: What the replica wrote about its own end.
        was_deleted: The master had asked for the end.
        memory_message: Set where the kernel killed something for memory meanwhile.
        last_line: Of its log.
        says_end: It says so where it completes, as workers do.
    """

    code: int | None
    termination: Termination | None = None
    was_deleted: bool = False
    memory_message: str | None = None
    last_line: str = ""
    says_end: bool = False


def classify(facts: ExitFacts) -> tuple[ExitReason, str]:
    """Choose the reason of one exit, and a message for people."""
    code, termination = facts.code, facts.termination
    if code == 0 and facts.says_end and termination is None and not facts.was_deleted:
        return ExitReason.USER_ERROR, UNFINISHED
    if code == 0:
        return ExitReason.COMPLETED, ""
    if termination is not None and termination.reason is not ExitReason.COMPLETED:
        return termination.reason, termination.message
    if termination is not None and code is not None and -code in ENDING_SIGNALS:
        # Its job was over, and it was told to leave while it did.
        return ExitReason.COMPLETED, ""
    if code is None:
        return _classify_unseen(facts)
    if facts.was_deleted:
        return ExitReason.KILLED, f"deleted ({_describe(code)})"
    if code == -signal.SIGKILL and facts.memory_message is not None:
        return ExitReason.OUT_OF_MEMORY, facts.memory_message
    if -code in ENDING_SIGNALS:
        return ExitReason.KILLED, f"ended from outside by {_describe(code)}"
    if code < 0:
        return ExitReason.USER_ERROR, f"crashed with {_describe(code)}"
    return ExitReason.USER_ERROR, exit_words(code, facts.last_line)


def _classify_unseen(facts: ExitFacts) -> tuple[ExitReason, str]:
    if facts.termination is not None:
        return facts.termination.reason, facts.termination.message
    if facts.was_deleted:
        return ExitReason.KILLED, "deleted"
    return ExitReason.KILLED, "ended while its supervisor was away, so its exit code is unknown"


def _describe(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


class MemoryKills:
    """Notices when the kernel has killed a process of our cgroup for memory.

    Each kill is told once, so of two replicas that die by SIGKILL only as many are put down to
    memory as the kernel has counted.
    """

    def __init__(self, counter: Path | None, num_told: int) -> None:
        """Keep the values, see `since_now`."""
        self._counter = counter
        self._num_told = num_told
        self._untold_since_s: float | None = None

    @classmethod
    def since_now(cls, counter: Path | None) -> "MemoryKills":
        """Count from now on.

        Args:
            counter: See `own_counter`.
        """
        return cls(counter, count_kills(counter))

    def take(self) -> str | None:
        """A message about a kill that was not told yet, or None."""
        if self._count() <= self._num_told:
            return None
        self._num_told += 1
        return f"killed by the kernel for memory (limit of its cgroup: {self._limit()})"

    def settle(self, now_s: float) -> None:
        """Put kills that no replica's end has followed down to other processes."""
        if self._count() <= self._num_told:
            self._untold_since_s = None
        elif self._untold_since_s is None:
            self._untold_since_s = now_s
        elif now_s - self._untold_since_s > MAX_DYING_S:
            self._num_told = self._count()

    def _count(self) -> int:
        return count_kills(self._counter)

    def _limit(self) -> str:
        # By the name that version 2 of cgroups has for it, and by that of version 1.
        limits = [_read(self._counter, name) for name in ("memory.max", "memory.limit_in_bytes")]
        told = next((int(text) for text in limits if text.isdecimal()), UNLIMITED)
        return f"{told / 2**20:.0f} MiB" if told < UNLIMITED else "none, the machine is full"


def _read(counter: Path | None, name: str) -> str:
    if counter is None:
        return ""
    try:
        return counter.with_name(name).read_text().strip()
    except OSError:
        # Of the other version, or no controller of memory.
        return ""
