"""The ledgers of jobs that train, and of those whose tasks are counted whole or not at all.

What the ledger of the training records counts are positions of an epoch's order.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final

from elastic.policy.minibatches import Retry, SizeFault
from elastic.policy.tasks.epochs import RecordOrder, Shuffle, cut_tasks, whole_minibatches
from elastic.policy.tasks.ledger import (
    IntervalSet,
    Ledger,
    LedgerConfig,
    LedgerError,
    NoTask,
    PoisonedRecord,
    Refusal,
    SkipRecord,
    StagedRange,
    _OpenTask,
    _Queued,
    digest,
)
from elastic.policy.tasks.records import Picks, Places, RecordRange, Shard, Task

TRAINING_FORMAT: Final = 2
"""Of snapshots; 1 counted the records of shards, of which whole tasks were shuffled."""

FORESEEN_RECORDS: Final = 4096
"""Of a task at least: fewer are looked up sooner than another thread has begun."""


@dataclass(frozen=True, slots=True)
class TaskCut:
    """How an epoch is cut into tasks; a cut is gone on with whatever these are.

    Attributes:
        records_per_task: At most; a multiple of the minibatch is taken.
        minibatch_size: Records of a gradient.
        num_workers: See `cut_tasks`.
        drop_last: Whether an epoch's last minibatch is left out where it is short.
    """

    records_per_task: int
    minibatch_size: int
    num_workers: int = 1
    drop_last: bool = False

    def num_records(self, of_all: int) -> int:
        """Those of an epoch."""
        return of_all - of_all % self.minibatch_size if self.drop_last else of_all

    def starts(self, num_records: int) -> list[int]:
        """The positions at which tasks begin."""
        size = whole_minibatches(self.records_per_task, self.minibatch_size)
        return cut_tasks(num_records, size, self.minibatch_size, self.num_workers)


@dataclass(frozen=True, slots=True)
class _Foreseen:
    """Which records stand at positions of an epoch, in an order."""

    order: RecordOrder
    epoch: int
    records: RecordRange
    picks: Picks

    def is_of(self, order: RecordOrder, epoch: int, records: RecordRange) -> bool:
        return self.order is order and (self.epoch, self.records) == (epoch, records)


class TrainingLedger(Ledger):
    """Accounts for every position of every epoch, and says which records stand there."""

    def __init__(
        self, places: Places, order: RecordOrder, cut: TaskCut, config: LedgerConfig, seed: int = 0
    ) -> None:
        """Begin with the first epoch.

        Args:
            places: The records.
            order: Of all of them.
            cut: Into tasks.
            config: Of it, `records_per_task` is not used.
            seed: Of `order`, for the cuts.
        """
        num_records = cut.num_records(places.num_records)
        super().__init__([Shard("positions", 0, num_records)], config)
        self._left_out = places.num_records - num_records
        self._places = places
        self._order = order
        self._seed = seed
        self._minibatch_size = cut.minibatch_size
        self._starts = cut.starts(num_records)
        self._num_tasks = len(self._starts)
        self._foreseen: _Foreseen | None = None

    @property
    def num_tasks(self) -> int:
        """Of an epoch."""
        return self._num_tasks

    @property
    def num_minibatches(self) -> int:
        """Of an epoch."""
        return -(-self.num_records // self._minibatch_size)

    def lease(
        self, worker: str, *, has_peers: bool = False, is_ahead: bool = False
    ) -> Task | NoTask:
        """Give a worker the next positions, with the records that stand there."""
        task = super().lease(worker, has_peers=has_peers, is_ahead=is_ahead)
        if not isinstance(task, Task):
            return task
        lease = self._leases[task.task_id]
        lease.task = replace(task, picks=self._picks_of(task.records))
        return lease.task

    def foresee(self) -> Callable[[], None] | None:
        """Look up which records stand at the next positions of the epoch.

        Of a large task that takes ten milliseconds, for which the worker that asks would wait.
        """
        if self._position >= self._num_tasks:
            return None
        records = self._range_of(self._position)
        order, epoch, foreseen = self._order, self.epoch, self._foreseen
        is_at_hand = foreseen is not None and foreseen.is_of(order, epoch, records)
        if is_at_hand or records.num_records < FORESEEN_RECORDS:
            return None

        def look_up() -> None:
            self._foreseen = _Foreseen(order, epoch, records, self._picks(records, epoch))

        return look_up

    def _picks_of(self, records: RecordRange) -> Picks:
        """What stands at positions of this epoch, which may have been looked up already."""
        foreseen = self._foreseen
        if foreseen is not None and foreseen.is_of(self._order, self.epoch, records):
            self._foreseen = None
            return foreseen.picks
        return self._picks(records, self.epoch)

    def named(self, records: RecordRange, epoch: int) -> list[tuple[str, int, int]]:
        """The records at positions of an epoch, as ranges of sources."""
        runs = self._picks(records, epoch).runs()
        return [(shard.name, start, end) for shard, start, end in runs]

    def _picks(self, records: RecordRange, epoch: int) -> Picks:
        numbers = self._order.records(epoch, records.start, records.end)
        return self._places.pick(numbers)

    def _range_of(self, order: int) -> RecordRange:
        return RecordRange(0, self._starts[order], self._begin_of(order + 1))

    # -- cuts ----------------------------------------------------------------------------------

    def fingerprint(self) -> dict[str, Any]:
        """What must be equal for a snapshot of one ledger to be continued by another."""
        form = self._order.form.as_json()
        # Those of a cut are taken over.
        form.pop("chunk")
        return {
            "shuffle": form.pop("shuffle"),
            "seed": self._seed,
            "records": self.num_records,
            # Not how files are cut: only with chunks does the order depend on it.
            "layout": _layout(self._places.shards, self._order.has_chunks),
            **form,
        }

    def snapshot(self) -> dict[str, Any]:
        """The account as JSON values: what is left of the positions that were handed out."""
        gaps = [
            [start, end]
            for order, task in sorted(self._open.items())
            for start, end in _union(task.committed, task.skipped).gaps(
                task.records.start, task.records.end
            )
        ]
        reached = self._begin_of(self._position)
        account = super().snapshot()
        # Of the tasks of this ledger, which another one may cut otherwise.
        del account["position"], account["open"]
        return {
            **account,
            "format": TRAINING_FORMAT,
            "chunk": self._order.form.chunk,
            "reached": reached,
            "gaps": gaps,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Go on from a snapshot, whatever tasks its epoch was cut into.

        Raises:
            LedgerError: The snapshot is of other data or of another order.
        """
        if snapshot.get("format") == TRAINING_FORMAT - 1:
            snapshot = self._of_last_format(snapshot)
        if self._order.form.shuffle is Shuffle.TASKS:
            self._order = self._order.with_chunk(snapshot["chunk"])
        reached, gaps = snapshot["reached"], [tuple(gap) for gap in snapshot["gaps"]]
        position = bisect_left(self._starts, reached)
        if reached < self._begin_of(position):
            gaps.append((reached, self._begin_of(position)))
        super().restore({**snapshot, "position": position, "open": list(self._opened(gaps))})

    def _opened(self, gaps: Sequence[tuple[int, int]]) -> Iterator[list[Any]]:
        """The tasks that these positions are left of, as the ledger's snapshots have them."""
        orders = {
            order
            for start, end in gaps
            for order in range(
                bisect_right(self._starts, start) - 1, bisect_left(self._starts, end)
            )
        }
        for order in sorted(orders):
            task = self._range_of(order)
            within = [(max(start, task.start), min(end, task.end)) for start, end in gaps]
            left = IntervalSet.from_lists(span for span in within if span[0] < span[1])
            yield [order, [list(done) for done in left.gaps(task.start, task.end)], []]

    def _begin_of(self, order: int) -> int:
        return self._starts[order] if order < self._num_tasks else self.num_records

    def _of_last_format(self, snapshot: dict[str, Any]) -> dict[str, Any]:
        """What stands between two epochs can be gone on with: it depends on no order."""
        if snapshot["position"] or snapshot["open"]:
            raise LedgerError(
                f"it was taken within epoch {snapshot['epoch']} by a version of elastic that "
                "shuffled tasks and not records: end the epoch with that version, or begin with "
                "this model by --init_from"
            )
        records = snapshot["fingerprint"].get("records")
        if records != self._places.num_records:
            raise LedgerError(
                f"it was taken with records={records}, this job has "
                f"records={self._places.num_records}"
            )
        chunk = self._order.form.chunk
        known = {"fingerprint": self.fingerprint(), "chunk": chunk, "reached": 0, "gaps": []}
        return {**snapshot, **known}


def _layout(shards: Sequence[Shard], is_cut: bool) -> str:
    """Tells data from other data by names and numbers of records."""
    if is_cut:
        return digest(f"{s.name}\0{s.start}\0{s.end}\0" for s in shards)
    counts = groupby(shards, key=lambda shard: shard.name)
    return digest(f"{name}\0{sum(s.num_records for s in group)}\0" for name, group in counts)


def _union(one: IntervalSet, other: IntervalSet) -> IntervalSet:
    return IntervalSet.from_lists([*one.as_lists(), *other.as_lists()])


# A ledger whose tasks are counted whole or not at all.
#
# What is made of a task, such as a file of predictions, is named after its records. So its range is
# the same whoever works on it and however often: it is never cut, and what failed for good is told
# to whoever gets the task next, to be left out.


class FixedRangeLedger(Ledger):
    """Accounts for every record once, a whole task at a time."""

    def __init__(self, shards: Sequence[Shard], config: LedgerConfig) -> None:
        super().__init__(shards, replace(config, num_epochs=1))
        self._failures: dict[tuple[int, int], int] = {}

    def lease(
        self, worker: str, *, has_peers: bool = False, is_ahead: bool = False
    ) -> Task | NoTask:
        """Give a worker a whole task, with those of its records that have failed for good."""
        task = super().lease(worker, has_peers=has_peers, is_ahead=is_ahead)
        if not isinstance(task, Task):
            return task
        lease = self._leases[task.task_id]
        skipped = self._open[lease.order].skipped.as_lists()
        lease.task = replace(
            task, skipped=tuple(i for low, high in skipped for i in range(low, high))
        )
        return lease.task

    def commit_whole(self, task_id: int, attempt: int, start: int, end: int) -> Task | Refusal:
        """Count all records of a task but those it was told to leave out.

        Returns:
            The task that now counts, or why none does.

        Raises:
            LedgerError: A record would count twice.
        """
        lease = self._find(task_id, attempt)
        if lease is None:
            return Refusal.LEASE_LOST
        records = lease.task.records
        if (start, end) != (records.start, records.end):
            return Refusal.OUT_OF_ORDER
        self._end_lease(lease)
        self._count(lease.order)
        return lease.task

    def is_leased(self, task_id: int, attempt: int) -> bool:
        """Whether an attempt still stands, so that going on with it is of use."""
        return self._find(task_id, attempt) is not None

    def fail(
        self,
        task_id: int,
        attempt: int,
        start: int,
        end: int,
        runs_at: int = 0,  # noqa: ARG002 - who predicts goes on with parts by itself
    ) -> Retry | SizeFault | SkipRecord | PoisonedRecord | Refusal:
        """Record that the user's code failed on one record; its task goes back whole."""
        lease = self._find(task_id, attempt)
        if lease is None:
            return Refusal.LEASE_LOST
        records = lease.task.records
        if end != start + 1 or not records.start <= start < records.end:
            return Refusal.OUT_OF_ORDER
        key = (records.shard_index, start)
        self._failures[key] = self._failures.get(key, 0) + 1
        if self._failures[key] < self._config.max_task_failures:
            lease.failed_on = lease.worker
            self._take_back(lease)
            return Retry.ALONE
        verdict = self._give_up(lease, start, self._failures.pop(key))
        if lease.order in self._open:
            self._take_back(lease)
        else:
            self._end_lease(lease)
        return verdict

    def restore_whole(self, counted: Mapping[RecordRange, Sequence[int]]) -> None:
        """Go on where tasks have been counted before; to be called before the first lease.

        Args:
            counted: The tasks that count, each with the records that it left out. Others than
                this ledger's are passed over.
        """
        self._position = self._num_tasks
        # All of them before the first counts: with none open the epoch would be over.
        tasks = {order: self._range_of(order) for order in range(self._num_tasks)}
        self._open = {order: _OpenTask(records) for order, records in tasks.items()}
        for order, records in tasks.items():
            skipped = counted.get(records)
            if skipped is None:
                self._push(_Queued(order, records.start, records.end))
            else:
                self._skip(order, skipped)
                self._count(order)

    def _skip(self, order: int, indices: Sequence[int]) -> None:
        task = self._open[order]
        for index in indices:
            task.skipped.add(index, index + 1)
            self.skipped_records.append((self.shard_name(task.records.shard_index), index))
        self._skipped += len(indices)

    def _count(self, order: int) -> None:
        task = self._open[order]
        shard_index, start, end = task.records.shard_index, task.records.start, task.records.end
        gaps = [RecordRange(shard_index, *gap) for gap in task.skipped.gaps(start, end)]
        self._staged += sum(gap.num_records for gap in gaps)
        if not gaps:
            self._close_if_complete(order)
        self.commit(StagedRange(order, gap) for gap in gaps)
