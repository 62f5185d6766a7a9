"""The supervisor's replicas: starts, watches and ends processes, and writes what it observes.

Why one ended is read from its exit code, its own words, and the kernel's memory counter.
"""

import logging
import selectors
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from elastic.errors import PlatformError
from elastic.platforms.base import ExitReason, Replica, ReplicaId, ReplicaPhase
from elastic.platforms.local.directory import (
    JobDirectory,
    Observed,
    Submission,
    Termination,
    last_line,
)
from elastic.platforms.local.processes import (
    JOB_UID_VARIABLE,
    REPLICA_VARIABLE,
    Member,
    ReplicaProcess,
    find_members,
    replica_name,
    signal_members,
)
from elastic.platforms.process import UNFINISHED, count_kills, exit_words
from elastic.spec.roles import is_kept_by_platform

ENDING_SIGNALS: Final = frozenset(
    {signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}
)
"""What people and systems send; any other deadly signal is the program's own doing."""

UNLIMITED: Final = 2**60
"""A limit of so many bytes is none: version 1 of cgroups writes it as a huge number."""

MAX_DYING_S: Final = 10.0
"""The kernel counts a kill before the process is gone: freeing its memory takes a while."""

logger = logging.getLogger(__name__)

HEADER_PREFIX: Final = "--- launch "
"""Begins the line that separates the launches in a replica's log."""


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


@dataclass(slots=True)
class _Running:
    process: ReplicaProcess
    replica: Replica
    was_deleted: bool = False
    kill_at_s: float | None = None


class ReplicaTable:
    """All replicas of one job that run, and the record of those that ended."""

    def __init__(
        self,
        directory: JobDirectory,
        submission: Submission,
        command_line: Callable[[ReplicaId], list[str]],
        environment: dict[str, str],
        selector: selectors.BaseSelector,
        memory_kills: MemoryKills,
    ) -> None:
        self._directory = directory
        self._submission = submission
        self._command_line = command_line
        self._environment = environment
        self._selector = selector
        self._memory_kills = memory_kills
        self._running: dict[ReplicaId, _Running] = {}
        self._known: set[ReplicaId] = set()
        self._unwritten: dict[ReplicaId, Observed] = {}

    def adopt(self) -> list[Replica]:
        """Take over what an earlier supervisor left; returns the launches that have ended."""
        ended: list[Replica] = []
        # Observed is read before desired: a launch forgotten in between is then in neither.
        for observed in self._directory.observed():
            replica = observed.replica
            if replica.id in self._known:
                # From a call before, which found something that could not be looked at.
                continue
            if replica.phase not in (ReplicaPhase.PENDING, ReplicaPhase.RUNNING):
                self._known.add(replica.id)
                continue
            process = self._find(observed)
            if process is not None:
                logger.info("adopted %s with pid %d", replica_name(replica.id), process.pid)
                self._watch(process, replica)
            elif replica.phase is ReplicaPhase.RUNNING:
                self._known.add(replica.id)
                ended.append(self._end(replica, None, was_deleted=False))
            # A pending one that is not there was never started, or died in the same instant as
            # the supervisor that started it: it is started (again) like any other.
        return ended

    def knows(self, replica: ReplicaId) -> bool:
        """Whether this launch was started before, so that it never is again."""
        return replica in self._known

    def is_running(self, replica: ReplicaId) -> bool:
        return replica in self._running

    def running(self) -> list[ReplicaId]:
        return list(self._running)

    def forget_all_but(self, replicas: set[ReplicaId]) -> None:
        """Drop the memory of ended launches that nobody asks for any more."""
        self._known &= replicas | self._running.keys()

    def start(self, replica: ReplicaId) -> Replica | None:
        """Start one launch; returns it ended where it could not be started."""
        pending = Replica(replica, ReplicaPhase.PENDING)
        # Written first: whoever finds this record looks for the process before starting one.
        self._directory.write_observed(Observed(pending))
        self._known.add(replica)
        started = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        header = f"{HEADER_PREFIX}{replica.launch} of {replica.name} at {started} ---\n"
        names = {
            JOB_UID_VARIABLE: self._submission.uid,
            REPLICA_VARIABLE: replica_name(replica),
        }
        try:
            process = ReplicaProcess.start(
                self._command_line(replica),
                # Unbuffered: what a replica printed is in its log however it ends.
                {"PYTHONUNBUFFERED": "1"} | self._environment | names,
                self._directory.log_path(replica),
                header,
            )
        except (OSError, ValueError) as error:
            failed = pending.entering(
                ReplicaPhase.FAILED,
                exit_reason=ExitReason.NEVER_STARTED,
                message=f"cannot start {replica.name}: {error}",
            )
            self._write(Observed(failed))
            return failed
        self._watch(process, pending)
        return None

    def delete(self, replica: ReplicaId, grace_s: float) -> Replica | None:
        """Begin to end one launch; returns it ended where it had not been started."""
        running = self._running.get(replica)
        if running is None:
            if replica in self._known:
                return None
            self._known.add(replica)
            return self._end(Replica(replica, ReplicaPhase.PENDING), None, was_deleted=True)
        kill_at_s = time.monotonic() + grace_s
        if running.kill_at_s is None or kill_at_s < running.kill_at_s:
            if not running.was_deleted:
                running.process.signal(signal.SIGTERM)
            running.was_deleted = True
            running.kill_at_s = kill_at_s
        return None

    def kill_overdue(self) -> None:
        """SIGKILL what has not ended within its grace."""
        now_s = time.monotonic()
        for running in self._running.values():
            if running.kill_at_s is not None and running.kill_at_s <= now_s:
                running.process.signal(signal.SIGKILL)

    def next_kill_s(self) -> float | None:
        """Monotonic time at which `kill_overdue` has something to do."""
        return min(
            (r.kill_at_s for r in self._running.values() if r.kill_at_s is not None), default=None
        )

    def reap(self) -> list[Replica]:
        """Record the launches that have ended since the last call, and return them."""
        ended = []
        for replica_id, running in list(self._running.items()):
            if not running.process.has_ended():
                continue
            self._selector.unregister(running.process)
            code = running.process.reap()
            del self._running[replica_id]
            try:
                self._kill_escaped(replica_id)
            except (PlatformError, OSError) as error:
                # The end itself is known, and is told only now.
                logger.warning("processes that %s has left may go on: %s", replica_id.name, error)
            ended.append(self._end(running.replica, code, running.was_deleted))
        if not ended:
            self._memory_kills.settle(time.monotonic())
        return ended

    def flush(self) -> None:
        """Write the observations that could not be written before."""
        for observed in list(self._unwritten.values()):
            self._write(observed)

    def close(self) -> None:
        """Let go of all processes without ending them."""
        for running in self._running.values():
            running.process.close()
        self._running.clear()

    def _watch(self, process: ReplicaProcess, replica: Replica) -> None:
        replica = replica.entering(
            ReplicaPhase.RUNNING,
            pid=process.pid,
            started_s=replica.started_s or time.time(),
        )
        self._known.add(replica.id)
        self._running[replica.id] = _Running(process, replica)
        self._selector.register(process, selectors.EVENT_READ)
        self._write(Observed(replica, process.birth))

    def _find(self, observed: Observed) -> ReplicaProcess | None:
        replica, birth = observed.replica, observed.birth
        if replica.pid is not None and birth is not None:
            return ReplicaProcess.adopt(replica.pid, birth)
        for member in self._members(replica.id):
            if member.is_leader:
                return ReplicaProcess.adopt_found(member.pid)
        return None

    def _members(self, replica: ReplicaId) -> list[Member]:
        return [m for m in find_members(self._submission.uid) if m.replica == replica]

    def _kill_escaped(self, replica: ReplicaId) -> None:
        """End the children that had left the replica's process group."""
        signal_members(self._members(replica), signal.SIGKILL)

    def _end(self, replica: Replica, code: int | None, was_deleted: bool) -> Replica:
        termination, is_told = self._termination(replica.id)
        facts = ExitFacts(
            code=code,
            termination=termination,
            was_deleted=was_deleted,
            memory_message=self._memory_kills.take() if code == -signal.SIGKILL else None,
            last_line=self._last_line(replica.id),
            says_end=is_told and not is_kept_by_platform(replica.id.role),
        )
        reason, message = classify(facts)
        is_completed = reason is ExitReason.COMPLETED
        ended = replica.entering(
            ReplicaPhase.SUCCEEDED if is_completed else ReplicaPhase.FAILED,
            exit_reason=reason,
            exit_code=code,
            message=message,
        )
        logger.info("%s ended: %s %s", replica_name(replica.id), reason, message)
        self._write(Observed(ended))
        return ended

    def _termination(self, replica: ReplicaId) -> tuple[Termination | None, bool]:
        """What it wrote about its end, and whether that could be read."""
        try:
            return self._directory.termination(replica), True
        except PlatformError as error:
            logger.warning("%s", error)
            return None, False

    def _last_line(self, replica: ReplicaId) -> str:
        line = last_line(self._directory.log_path(replica))
        return "" if line.startswith(HEADER_PREFIX) else line

    def _write(self, observed: Observed) -> None:
        replica = observed.replica.id
        self._unwritten[replica] = observed
        try:
            self._directory.write_observed(observed)
        except PlatformError as error:
            # Full disk: the processes matter more than the record, which `flush` tries again.
            logger.warning("%s", error)
        else:
            del self._unwritten[replica]
