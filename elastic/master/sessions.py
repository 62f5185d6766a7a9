"""Who is registered with this life of the master."""

import asyncio
import secrets
from dataclasses import dataclass, field

from elastic.rpc import elastic_pb2 as pb


@dataclass(slots=True)
class WorkerSession:
    """One worker process as the master knows it.

    Attributes:
        worker: Name in the ledger, unique to one launch: `worker-INDEX/LAUNCH`.
        sequence: The newest report, with its reply in `reply`, so that a repeated report is
            answered and not counted again.
    """

    key: str
    worker: str
    index: int
    launch: int
    pid: int
    host: str
    sequence: int = 0
    reply: "asyncio.Future[pb.ReportGradientReply] | None" = None
    records_done: int = 0
    rate: "RateMeter" = field(default_factory=lambda: RateMeter())


@dataclass(slots=True)
class RateMeter:
    """Records per second over a sliding window."""

    window_s: float = 10.0
    _marks: list[tuple[float, int]] = field(default_factory=list)

    def add(self, now_s: float, records: int) -> None:
        """Count records that were done now."""
        self._marks.append((now_s, records))
        self._drop(now_s)

    def per_second(self, now_s: float) -> float:
        """The rate over the window, or over the time since the first record if shorter."""
        self._drop(now_s)
        if not self._marks:
            return 0.0
        # The oldest mark only opens the span: its records were done before it.
        span_s = now_s - self._marks[0][0]
        records = sum(count for _, count in self._marks[1:])
        return records / span_s if span_s > 0 else 0.0

    def _drop(self, now_s: float) -> None:
        if len(self._marks) > 2 and self._marks[0][0] < now_s - self.window_s:
            self._marks = [mark for mark in self._marks if mark[0] >= now_s - self.window_s]


class Sessions:
    """The registered workers, by session key and by index."""

    def __init__(self) -> None:
        self._by_key: dict[str, WorkerSession] = {}
        self._by_index: dict[int, WorkerSession] = {}

    def open(self, request: pb.RegisterRequest) -> WorkerSession:
        """Begin a session; there must be none of that worker index."""
        index, launch = request.worker_index, request.launch
        assert index not in self._by_index, "the old session of an index is lost first"
        session = WorkerSession(
            key=secrets.token_hex(8),
            worker=f"worker-{index}/{launch}",
            index=index,
            launch=launch,
            pid=request.pid,
            host=request.host,
        )
        self._by_key[session.key] = session
        self._by_index[index] = session
        return session

    def close(self, session: WorkerSession) -> None:
        """Forget a session; its later calls are refused."""
        self._by_key.pop(session.key, None)
        if self._by_index.get(session.index) is session:
            del self._by_index[session.index]

    def find(self, key: str) -> WorkerSession | None:
        return self._by_key.get(key)

    def of_index(self, index: int) -> WorkerSession | None:
        return self._by_index.get(index)

    def all(self) -> list[WorkerSession]:
        return list(self._by_key.values())
