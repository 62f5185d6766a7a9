"""The ledger: which record is whose, and which has counted. It counts in sets of intervals."""

import hashlib
import heapq
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import accumulate
from typing import Any, Final

from elastic.policy.minibatches import WHOLE_ATTEMPTS, Retry, SizeFault
from elastic.policy.tasks.records import RecordRange, Shard, Task, TaskKind


class IntervalSet:
    """Grows by whole intervals; adding what is there already is refused, not merged in silence."""

    __slots__ = ("_ends", "_starts", "size")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self.size = 0

    @classmethod
    def from_lists(cls, intervals: Iterable[Sequence[int]]) -> "IntervalSet":
        """Rebuild a set from `as_lists`.

        Raises:
            ValueError: Two intervals overlap.
        """
        result = cls()
        for start, end in intervals:
            if not result.add(start, end):
                raise ValueError(f"interval [{start}, {end}) overlaps another")
        return result

    def add(self, start: int, end: int) -> bool:
        """Add `[start, end)`; False, and nothing changed, if any of it is there already."""
        at = bisect_right(self._starts, start)
        if at > 0 and self._ends[at - 1] > start:
            return False
        if at < len(self._starts) and self._starts[at] < end:
            return False
        joins_left = at > 0 and self._ends[at - 1] == start
        joins_right = at < len(self._starts) and self._starts[at] == end
        if joins_left and joins_right:
            self._ends[at - 1] = self._ends.pop(at)
            del self._starts[at]
        elif joins_left:
            self._ends[at - 1] = end
        elif joins_right:
            self._starts[at] = start
        else:
            self._starts.insert(at, start)
            self._ends.insert(at, end)
        self.size += end - start
        return True

    def gaps(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The maximal intervals of `[start, end)` that are not in the set."""
        position = start
        for low, high in zip(self._starts, self._ends, strict=True):
            if low > position:
                yield position, min(low, end)
            position = max(position, high)
        if position < end:
            yield position, end

    def as_lists(self) -> list[list[int]]:
        """The intervals as `[[start, end], …]`, in order."""
        return [list(pair) for pair in zip(self._starts, self._ends, strict=True)]


# The ledger: which record is whose, and which has counted.
#
# An epoch is the data set cut into tasks, in the order in which they are handed out; a task's place
# there is its *order*. A worker leases a task and works through it front to back in minibatches.
# Each minibatch is *staged* when its gradient is accepted and *committed* in the same step in which
# the update that contains it is applied. What a lost lease had neither staged nor committed is
# queued again under its old order, so that the order of records does not depend on who died.
#
#     queued ──lease──▶ leased ──stage──▶ staged ──commit──▶ committed
#        ▲                │  ▲               │
#        └──lose, release─┘  └── unstage ────┘          failing for good ──▶ skipped


SNAPSHOT_FORMAT: Final = 1


class LedgerError(Exception):
    """A record would count twice, or an epoch ended without all of its records."""


class NoTask(Enum):
    """Why a worker gets no task."""

    WAIT = auto()
    """Everything left is leased to others; some of it may come back."""
    FINISHED = auto()
    """Every record of every epoch is accounted for."""


class Refusal(Enum):
    """Why a report is not for this ledger."""

    LEASE_LOST = auto()
    """The attempt was taken back, finished, or never existed."""
    OUT_OF_ORDER = auto()
    """The range is not the next one of its task: a report that breaks the protocol."""


@dataclass(frozen=True, slots=True)
class StagedRange:
    """Records behind an accepted gradient that waits for its update."""

    order: int
    records: RecordRange


@dataclass(frozen=True, slots=True)
class Audit:
    """The account of an epoch.

    In that of a finished one, `committed + skipped + left_out == records`. What is left out is the
    last, short minibatch of an epoch, where the user asks for that.
    """

    epoch: int
    records: int
    committed: int
    skipped: int
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class SkipRecord:
    """The record failed for good and is counted as skipped."""

    shard_name: str
    index: int


@dataclass(frozen=True, slots=True)
class PoisonedRecord:
    """The record failed for good and none may be skipped: the job must fail."""

    shard_name: str
    index: int
    attempts: int


@dataclass(frozen=True, slots=True)
class LedgerConfig:
    """What the cut into tasks depends on; a resumed ledger must have the same."""

    records_per_task: int
    num_epochs: int
    kind: TaskKind = TaskKind.TRAINING
    max_task_failures: int = 3
    skip_bad_records: int = 0
    may_shrink: bool = False
    """Whether to go on with smaller minibatches where those of the job fail by their size."""
    first_task_id: int = 0
    """Keeps the task ids of two ledgers of one job apart."""


@dataclass(order=True, slots=True)
class _Queued:
    """A range waiting for a worker; sorted by the place of its task in the epoch."""

    order: int
    start: int
    end: int
    attempt: int = field(default=0, compare=False)
    failures: int = field(default=0, compare=False)
    failed_on: str | None = field(default=None, compare=False)
    """Who is not to try it again, if there is anybody else."""


@dataclass(slots=True)
class _Lease:
    worker: str
    task: Task
    order: int
    next_start: int
    failures: int
    failed_on: str | None


@dataclass(slots=True)
class _OpenTask:
    """The account of one task of the epoch from its first lease to its last record."""

    records: RecordRange
    committed: IntervalSet = field(default_factory=IntervalSet)
    skipped: IntervalSet = field(default_factory=IntervalSet)

    @property
    def is_complete(self) -> bool:
        return self.committed.size + self.skipped.size == self.records.num_records


class Ledger:
    """Accounts for every record of every epoch. Not thread-safe; touches nothing outside."""

    def __init__(self, shards: Sequence[Shard], config: LedgerConfig) -> None:
        self._shards = [shard for shard in shards if shard.num_records]
        self._config = config
        step = config.records_per_task
        tasks_per_shard = [-(-shard.num_records // step) for shard in self._shards]
        self._first_task = [0, *accumulate(tasks_per_shard)]
        self._num_tasks = self._first_task[-1]
        self.num_records = sum(shard.num_records for shard in self._shards)
        self.epoch = 0
        self.skipped_records: list[tuple[str, int]] = []
        self.audits: list[Audit] = []
        self.computed_again = 0
        self.shrunk_to: int | None = None
        """Records of a minibatch, where the job's own size fails."""
        self._next_task_id = config.first_task_id
        self._committed = 0
        self._skipped = 0
        self._leases: dict[int, _Lease] = {}
        self._held: dict[str, set[int]] = {}
        self._staged = 0
        self._is_stopped = False
        self._left_out = 0
        self._queue: list[_Queued] = []
        self._open: dict[int, _OpenTask] = {}
        self._position = 0

    # -- what a worker does --------------------------------------------------------------------

    def lease(
        self, worker: str, *, has_peers: bool = False, is_ahead: bool = False
    ) -> Task | NoTask:
        """Give a worker the next range; requeued ranges go first, in their old order.

        Args:
            worker: Who asks.
            has_peers: Others are there to try what failed on this one.
            is_ahead: It asks ahead, to have the records read: none of that is of use for a search.
        """
        queued = None if self._is_stopped else self._pop(worker, has_peers, is_ahead)
        if queued is None:
            return NoTask.FINISHED if self.is_finished else NoTask.WAIT
        open_task = self._open[queued.order]
        shard_index = open_task.records.shard_index
        task = Task(
            task_id=self._next_task_id,
            attempt=queued.attempt,
            kind=self._config.kind,
            epoch=self.epoch,
            records=RecordRange(shard_index, queued.start, queued.end),
            shard=self._shards[shard_index],
            is_search=self._is_search(queued),
            minibatch_size=self.shrunk_to,
        )
        self._next_task_id += 1
        self._leases[task.task_id] = _Lease(
            worker, task, queued.order, queued.start, queued.failures, queued.failed_on
        )
        self._held.setdefault(worker, set()).add(task.task_id)
        return task

    def foresee(self) -> Callable[[], None] | None:
        """What makes the next lease cheaper, to be called in any thread; None for nothing."""
        return None

    def stage(self, task_id: int, attempt: int, start: int, end: int) -> StagedRange | Refusal:
        """Accept the next minibatch of a lease; it counts only once it is committed."""
        lease = self._find(task_id, attempt)
        if lease is None:
            return Refusal.LEASE_LOST
        if start != lease.next_start or not start < end <= lease.task.records.end:
            return Refusal.OUT_OF_ORDER
        lease.next_start = end
        lease.failures = 0
        if end == lease.task.records.end:
            self._end_lease(lease)
        self._staged += end - start
        return StagedRange(lease.order, RecordRange(lease.task.records.shard_index, start, end))

    def commit(self, staged: Iterable[StagedRange]) -> Audit | None:
        """Count staged ranges, in the step that applies their update.

        Returns:
            The audit of the epoch, when this was its last update; the next epoch has then begun.

        Raises:
            LedgerError: A record would count twice.
        """
        for item in staged:
            records = item.records
            open_task = self._open.get(item.order)
            if open_task is None or not open_task.committed.add(records.start, records.end):
                name = self._shards[records.shard_index].name
                raise LedgerError(
                    f"records [{records.start}, {records.end}) of {name!r} would count twice "
                    f"in epoch {self.epoch}"
                )
            self._staged -= records.num_records
            self._committed += records.num_records
            self._close_if_complete(item.order)
        return self.end_epoch_if_complete()

    def release(self, task_id: int, attempt: int) -> bool:
        """Take back the rest of a lease that its worker gives up; False if it had none."""
        lease = self._find(task_id, attempt)
        if lease is None:
            return False
        self._take_back(lease)
        return True

    def lose_worker(self, worker: str, but: int | None = None) -> list[Task]:
        """Take back all tasks that a worker held, but for one; returns those it lost."""
        held = sorted(self._held.get(worker, ()))
        lost = [self._leases[task_id] for task_id in held if task_id != but]
        for lease in lost:
            self._take_back(lease)
        return [lease.task for lease in lost]

    def fail(
        self, task_id: int, attempt: int, start: int, end: int, runs_at: int = 0
    ) -> Retry | SizeFault | SkipRecord | PoisonedRecord | Refusal:
        """Record that the user's code failed on a minibatch, and say what to do about it.

        Args:
            task_id: Of the lease.
            attempt: Of the lease.
            start: The first record of the minibatch; of a search, the one that fails alone.
            end: One past its last record.
            runs_at: Of a search in which all parts ran and the whole failed, or of a record that
                fails alone and runs beside itself: see `SizeFault`.
        """
        lease = self._find(task_id, attempt)
        if lease is None:
            return Refusal.LEASE_LOST
        if lease.task.is_search:
            return self._end_search(lease, start, end, runs_at)
        if start != lease.next_start or not start < end <= lease.task.records.end:
            return Refusal.OUT_OF_ORDER
        self._end_lease(lease)
        # What has failed before is a range of its own, unless minibatches have shrunk since.
        failures = 1 + (lease.failures if end == lease.task.records.end else 0)
        if end - start == 1 and failures >= self._config.max_task_failures:
            self._push_rest(lease, end)
            if runs_at:
                self._push(_Queued(lease.order, start, end, attempt + 1))
                return SizeFault(1, runs_at, goes_on=False)
            return self._give_up(lease, start, failures)
        is_search = end - start > 1 and failures >= WHOLE_ATTEMPTS
        failed_on = None if is_search else lease.worker
        self._push_rest(lease, end)
        self._push(_Queued(lease.order, start, end, attempt + 1, failures, failed_on))
        if end - start == 1:
            return Retry.ALONE
        return Retry.IN_PARTS if is_search else Retry.WHOLE

    def _end_search(
        self, lease: _Lease, start: int, end: int, runs_at: int
    ) -> Retry | SizeFault | Refusal:
        """Queue the record that failed by itself, and what is around it; or all, if none did."""
        records, attempt = lease.task.records, lease.task.attempt + 1
        size = records.num_records
        is_whole = (start, end) == (records.start, records.end)
        is_record = records.start <= start < records.end and end == start + 1
        if not (is_whole and 0 < runs_at < size if runs_at else is_record):
            return Refusal.OUT_OF_ORDER
        self._end_lease(lease)
        if runs_at:
            self._push(_Queued(lease.order, start, end, attempt))
            if self._config.may_shrink and not self.shrink_to(runs_at):
                return Retry.WHOLE
            return SizeFault(size, runs_at, self._config.may_shrink)
        if records.start < start:
            self._push(_Queued(lease.order, records.start, start, attempt))
        self._push(_Queued(lease.order, start, end, attempt, failed_on=lease.worker))
        self._push_rest(lease, end)
        return Retry.ALONE

    def shrink_to(self, minibatch_size: int) -> bool:
        """Have what is leased from now on computed by so many records; False if it is already."""
        if self.shrunk_to is not None and self.shrunk_to <= minibatch_size:
            return False
        self.shrunk_to = minibatch_size
        return True

    def end_epoch_if_complete(self) -> Audit | None:
        """Close the epoch if nothing of it is left; `commit` does so too.

        Needed by itself only where the last record of an epoch was skipped.
        """
        if self.is_finished or self._open or self._position < self._num_tasks:
            return None
        audit = self._account()
        if self.records_done != self.num_records or self._staged or self._leases:
            raise LedgerError(
                f"epoch {audit.epoch} ended with {audit.committed} committed and {audit.skipped} "
                f"skipped of {self.num_records} records"
            )
        self.audits.append(audit)
        self.epoch += 1
        self._committed = self._skipped = self._position = 0
        return audit

    def stop(self) -> None:
        """Hand out nothing more; what is leased or staged is taken back and counts no more.

        A snapshot does not know of it, so that another ledger can go on where this one stands.
        """
        for lease in list(self._leases.values()):
            self._take_back(lease)
        self._staged = 0
        self._is_stopped = True

    # -- where it stands -----------------------------------------------------------------------

    @property
    def is_finished(self) -> bool:
        """Whether no record will be handed out any more."""
        return self._is_stopped or self.epoch >= self._config.num_epochs or self.num_records == 0

    @property
    def cut_short(self) -> Audit | None:
        """The account of the epoch that `stop` has cut, if it had begun: some records are left."""
        if not self._is_stopped or self.records_done == 0:
            return None
        return self._account()

    @property
    def only_staged_left(self) -> bool:
        """Whether all that the epoch still lacks waits for an update, so none more can come."""
        return (
            self._staged > 0
            and not self._queue
            and not self._leases
            and self._position == self._num_tasks
        )

    @property
    def records_done(self) -> int:
        """Records counted in the current epoch, skipped ones included."""
        return self._committed + self._skipped

    @property
    def total_done(self) -> int:
        """The same over all epochs."""
        return self.epoch * self.num_records + self.records_done

    @property
    def num_queued(self) -> int:
        """Ranges of this epoch that wait for a worker."""
        return len(self._queue) + self._num_tasks - self._position

    @property
    def num_leased(self) -> int:
        """Ranges that workers have."""
        return len(self._leases)

    def holds_lease(self, worker: str, task_id: int | None = None) -> bool:
        """Whether a worker has a task, or that task, in work."""
        held = self._held.get(worker, ())
        return bool(held) if task_id is None else task_id in held

    def task_of(self, task_id: int, attempt: int) -> Task | None:
        """The task of a standing lease."""
        lease = self._find(task_id, attempt)
        return None if lease is None else lease.task

    def shard_name(self, shard_index: int) -> str:
        return self._shards[shard_index].name

    def named(self, records: RecordRange, epoch: int) -> list[tuple[str, int, int]]:  # noqa: ARG002 (where each epoch has an order of its own)
        """The records of a range, as ranges of sources."""
        return [(self.shard_name(records.shard_index), records.start, records.end)]

    # -- cuts ----------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """The account as JSON values. Leased and staged records are not in it: they come again."""
        return {
            "format": SNAPSHOT_FORMAT,
            "fingerprint": self.fingerprint(),
            "epoch": self.epoch,
            "position": self._position,
            "open": [
                [order, task.committed.as_lists(), task.skipped.as_lists()]
                for order, task in sorted(self._open.items())
            ],
            "committed": self._committed,
            "skipped": self._skipped,
            "skipped_records": [list(record) for record in self.skipped_records],
            "audits": [
                [a.epoch, a.records, a.committed, a.skipped, a.left_out] for a in self.audits
            ],
            "computed_again": self.computed_again,
            "shrunk_to": self.shrunk_to,
        }

    def fingerprint(self) -> dict[str, Any]:
        """What must be equal for a snapshot of one ledger to be continued by another."""
        return {
            "records_per_task": self._config.records_per_task,
            "shards": len(self._shards),
            "records": self.num_records,
            # Not what is in them: who goes on after a bad record has mended it.
            "layout": digest(f"{s.name}\0{s.start}\0{s.end}\0" for s in self._shards),
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Go on from a snapshot: what it has not committed is queued again, in its old order.

        Raises:
            LedgerError: The snapshot is of other data or of another cut into tasks.
        """
        difference = tell_difference(snapshot.get("fingerprint", {}), self.fingerprint())
        if difference:
            raise LedgerError(f"it was taken with {difference}")
        self.epoch = snapshot["epoch"]
        self._committed = snapshot["committed"]
        self._skipped = snapshot["skipped"]
        self.skipped_records = [(name, index) for name, index in snapshot["skipped_records"]]
        self.audits = [Audit(*values) for values in snapshot["audits"]]
        self.computed_again = snapshot["computed_again"]
        self.shrunk_to = snapshot.get("shrunk_to") if self._config.may_shrink else None
        self._position = snapshot["position"]
        self._leases.clear()
        self._held.clear()
        self._staged = 0
        self._queue = []
        self._open = {}
        for order, committed, skipped in snapshot["open"]:
            task = _OpenTask(
                self._range_of(order),
                IntervalSet.from_lists(committed),
                IntervalSet.from_lists(skipped),
            )
            self._open[order] = task
            done = IntervalSet.from_lists([*committed, *skipped])
            for start, end in done.gaps(task.records.start, task.records.end):
                self._push(_Queued(order, start, end))

    def count_undone(self, records_done: int, computed_again: int) -> int:
        """Count what is computed again since the job has gone back to where this ledger stands.

        Args:
            records_done: Records that had counted by then, over all epochs.
            computed_again: Those that had been computed again.

        Returns:
            How many records had counted, and come again.
        """
        undone = max(records_done - self.total_done, 0)
        self.computed_again = max(self.computed_again, computed_again) + undone
        return undone

    # -- inside --------------------------------------------------------------------------------

    def _account(self) -> Audit:
        records = self.num_records + self._left_out
        return Audit(self.epoch, records, self._committed, self._skipped, self._left_out)

    def _range_of(self, order: int) -> RecordRange:
        shard_index = bisect_right(self._first_task, order) - 1
        shard = self._shards[shard_index]
        step = self._config.records_per_task
        start = shard.start + (order - self._first_task[shard_index]) * step
        return RecordRange(shard_index, start, min(start + step, shard.end))

    def _pop(self, worker: str, has_peers: bool, is_ahead: bool) -> _Queued | None:
        queued = self._pop_queued(
            lambda each: (
                not (
                    (has_peers and each.failed_on == worker) or (is_ahead and self._is_search(each))
                )
            )
        )
        if queued is not None:
            return queued
        if self.is_finished or self._position == self._num_tasks:
            return None
        order = self._position
        self._position += 1
        records = self._range_of(order)
        self._open[order] = _OpenTask(records)
        return _Queued(order, records.start, records.end)

    def _pop_queued(self, is_wanted: Callable[[_Queued], bool]) -> _Queued | None:
        """The first of those that came back, passing over what is for somebody else."""
        passed: list[_Queued] = []
        found = None
        while self._queue and found is None:
            queued = heapq.heappop(self._queue)
            if is_wanted(queued):
                found = queued
            else:
                passed.append(queued)
        for queued in passed:
            self._push(queued)
        return found

    def _is_search(self, queued: _Queued) -> bool:
        """Whether it has failed whole often enough, and still is one minibatch."""
        size = queued.end - queued.start
        is_minibatch = 1 < size <= (self.shrunk_to or size)
        return is_minibatch and queued.failures >= WHOLE_ATTEMPTS

    def _push(self, queued: _Queued) -> None:
        heapq.heappush(self._queue, queued)

    def _push_rest(self, lease: _Lease, start: int) -> None:
        """Queue what a lease has behind a record; nothing of it has been tried."""
        end = lease.task.records.end
        if start < end:
            self._push(_Queued(lease.order, start, end, lease.task.attempt + 1))

    def _find(self, task_id: int, attempt: int) -> _Lease | None:
        lease = self._leases.get(task_id)
        return lease if lease is not None and lease.task.attempt == attempt else None

    def _end_lease(self, lease: _Lease) -> None:
        task_id = lease.task.task_id
        del self._leases[task_id]
        held = self._held[lease.worker]
        held.remove(task_id)
        if not held:
            del self._held[lease.worker]

    def _take_back(self, lease: _Lease) -> None:
        self._end_lease(lease)
        end = lease.task.records.end
        attempt = lease.task.attempt + 1
        self._push(
            _Queued(lease.order, lease.next_start, end, attempt, lease.failures, lease.failed_on)
        )

    def _give_up(self, lease: _Lease, at: int, attempts: int) -> SkipRecord | PoisonedRecord:
        records = RecordRange(lease.task.records.shard_index, at, at + 1)
        ((name, index, _),) = self.named(records, self.epoch)
        if len(self.skipped_records) >= self._config.skip_bad_records:
            return PoisonedRecord(name, index, attempts)
        self._open[lease.order].skipped.add(at, at + 1)
        self._skipped += 1
        self.skipped_records.append((name, index))
        self._close_if_complete(lease.order)
        return SkipRecord(name, index)

    def _close_if_complete(self, order: int) -> None:
        if self._open[order].is_complete:
            del self._open[order]


_IN_WORDS: Final = {"layout": "other files of data, or other numbers of records in them"}
"""What is a digest in a fingerprint, and tells nobody anything."""


def tell_difference(theirs: Mapping[str, Any], mine: Mapping[str, Any]) -> str | None:
    """The first difference of a fingerprint to that of this job; None if there is none."""
    for key, value in mine.items():
        if theirs.get(key) != value:
            return _IN_WORDS.get(key) or f"{key}={theirs.get(key)}, this job has {key}={value}"
    return None


def digest(parts: Iterable[str]) -> str:
    """Tells texts from others, and is short."""
    hashed = hashlib.sha256()
    for part in parts:
        hashed.update(part.encode("utf-8", "surrogateescape"))
    return hashed.hexdigest()[:16]
