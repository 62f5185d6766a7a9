"""A ledger whose tasks are counted whole or not at all.

What is made of a task, such as a file of predictions, is named after its records. So its range is
the same whoever works on it and however often: it is never cut, and what failed for good is told
to whoever gets the task next, to be left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from elastic.policy.failing import Retry, SizeFault
from elastic.policy.tasks.ledger import (
    Ledger,
    LedgerConfig,
    NoTask,
    PoisonedRecord,
    Refusal,
    SkipRecord,
    StagedRange,
    _OpenTask,
    _Queued,
)
from elastic.policy.tasks.records import RecordRange, Shard, Task


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
