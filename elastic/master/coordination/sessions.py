"""Who is registered with this life of the master, and how fast they go."""

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from elastic.policy.liveness import Hang, Liveness
from elastic.policy.replicas import ReplicaId
from elastic.policy.updates.update_group import Outcome
from elastic.rpc.shared import Mappings

WINDOW_S: Final = 10.0
"""What a speed is told of."""
WINDOW_STEPS: Final = 5.0
"""Unless so many typical steps take longer."""


@dataclass(slots=True)
class WorkerSession:
    """One worker process as the master knows it.

    Attributes:
        replica: Which launch of which replica it is.
        memory: Of the worker's, what is mapped here for rows.
        sequence: The newest report, with its outcome in `reply`, so that a repeated report is
            answered and not counted again.
    """

    key: str
    replica: ReplicaId
    pid: int
    host: str
    memory: Mappings = field(default_factory=Mappings)
    sequence: int = 0
    reply: "asyncio.Future[Outcome] | None" = None
    records_done: int = 0
    rate: "RateMeter" = field(default_factory=lambda: RateMeter())

    @property
    def worker(self) -> str:
        """Its name in the ledger."""
        return self.replica.launch_name


@dataclass(slots=True)
class RateMeter:
    """Records per second over a sliding window.

    Every record but those of the oldest mark was done since that mark, which opens the span: of
    steps that take longer than the window, there are always two marks.
    """

    _marks: deque[tuple[float, int]] = field(default_factory=deque)
    _records: int = 0
    _window_s: float = WINDOW_S

    def add(self, now_s: float, records: int) -> None:
        """Count records that were done now."""
        if self._marks:
            self._records += records
        self._marks.append((now_s, records))
        self._drop(now_s)

    def resume(self, now_s: float) -> None:
        """Work begins again: after a pause longer than the window, so does what is told of it.

        Shorter ones, as at the end of an epoch, are a part of the speed.
        """
        if self._marks and now_s - self._marks[-1][0] > self._window_s:
            self._marks = deque([(now_s, 0)])
            self._records = 0

    def per_second(self, now_s: float, step_s: float | None = None) -> float:
        """The rate over the window, or over the time since the first record if shorter.

        Args:
            now_s: Now, by the clock of `add`.
            step_s: What a step typically takes, if that is known. The records of all workers may
                come at once, so the window holds several of such steps; nor is it a standstill
                that nothing comes while one is under way.
        """
        step_s = step_s or 0.0
        self._window_s = max(WINDOW_S, WINDOW_STEPS * step_s)
        self._drop(now_s)
        if len(self._marks) < 2:
            return 0.0
        (opened_s, _), (last_s, _) = self._marks[0], self._marks[-1]
        ends_s = max(last_s, now_s - step_s)
        span_s = max(ends_s - opened_s, step_s)
        return self._records / span_s if span_s > 0 else 0.0

    def _drop(self, now_s: float) -> None:
        while len(self._marks) > 2 and self._marks[1][0] <= now_s - self._window_s:
            self._marks.popleft()
            self._records -= self._marks[0][1]


class Sessions:
    """The open sessions, and what is seen of each: signs of life, records, speed.

    Attributes:
        liveness: Judges who hangs.
        last_contribution_s: When records counted last, by the monotonic clock; 0 before the first.
    """

    def __init__(self, liveness: Liveness, on_contribution: Callable[[ReplicaId], None]) -> None:
        """Begin without any.

        Args:
            liveness: Judges who hangs.
            on_contribution: Told of each worker whose records count.
        """
        self.liveness = liveness
        self.last_contribution_s = 0.0
        self._rate = RateMeter()
        self._on_contribution = on_contribution
        self._by_key: dict[str, WorkerSession] = {}
        self._by_name: dict[str, WorkerSession] = {}

    # -- who is there --------------------------------------------------------------------------

    def open(self, replica: ReplicaId, pid: int, host: str) -> WorkerSession:
        """Begin a session; there must be none of another launch of that replica."""
        assert replica.name not in self._by_name, "the old session of a replica is lost first"
        session = WorkerSession(secrets.token_hex(8), replica, pid, host)
        self._by_key[session.key] = session
        self._by_name[replica.name] = session
        self.liveness.joined(replica, time.monotonic())
        return session

    def close(self, session: WorkerSession) -> None:
        """Forget a session; its later calls are refused."""
        self._by_key.pop(session.key, None)
        if self._by_name.get(session.replica.name) is session:
            del self._by_name[session.replica.name]

    def find(self, key: str) -> WorkerSession | None:
        return self._by_key.get(key)

    def of(self, replica: ReplicaId) -> WorkerSession | None:
        """That of a replica, whichever of its launches has it."""
        return self._by_name.get(replica.name)

    def all(self) -> list[WorkerSession]:
        return list(self._by_key.values())

    def others(self, session: WorkerSession) -> list[WorkerSession]:
        """All but one."""
        return [each for each in self._by_key.values() if each is not session]

    # -- what they do --------------------------------------------------------------------------

    def progressed(self, session: WorkerSession, step_s: float | None = None) -> None:
        """Note progress; `step_s` is how long a completed step took."""
        self.liveness.progressed(session.replica, time.monotonic(), step_s)

    def contributed(self, session: WorkerSession, records: int, step_s: float | None) -> None:
        """Count records of the job's own that a worker has brought."""
        now_s = time.monotonic()
        self.liveness.progressed(session.replica, now_s, step_s)
        session.records_done += records
        session.rate.add(now_s, records)
        self._rate.add(now_s, records)
        self.last_contribution_s = now_s
        self._on_contribution(session.replica)

    @contextmanager
    def serving(self, session: WorkerSession) -> Iterator[None]:
        """A call may have to wait for the parameters: a worker that waits for it does not hang."""
        watch = self.liveness.call_begins(session.replica)
        try:
            yield
        finally:
            self.liveness.call_ends(watch, time.monotonic())

    def hangs(self) -> list[Hang]:
        """The workers that are silent for too long; to be asked at least every second."""
        return self.liveness.hangs(time.monotonic())

    # -- how fast ------------------------------------------------------------------------------

    @property
    def samples_per_s(self) -> float:
        """Records that count per second, now."""
        return self._rate.per_second(time.monotonic(), self.liveness.typical_step_s)

    def work_begins(self, session: WorkerSession, *, is_alone: bool) -> None:
        """Leave out of the speeds the time in which a worker, or all, had nothing to do."""
        now_s = time.monotonic()
        session.rate.resume(now_s)
        if is_alone:
            self._rate.resume(now_s)

    def resume_rates(self) -> None:
        """Leave a pause of the whole job out of all speeds."""
        now_s = time.monotonic()
        for meter in (self._rate, *(session.rate for session in self._by_key.values())):
            meter.resume(now_s)
