"""One pass over the evaluation data on one version of the model, each record once."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from elastic.frameworks.base import MetricState
from elastic.master.coordination.sums import MetricSums
from elastic.policy.ledger import Ledger, LedgerConfig, NoTask, Refusal
from elastic.policy.records import Shard, Task, TaskKind
from elastic.policy.task_sizes import default_records_per_task
from elastic.spec.job import JobSpec

FIRST_TASK_ID: Final = 1 << 48
"""Above every training task, so that a late report is never taken for an evaluation's."""
TASK_IDS_PER_ROUND: Final = 1 << 32


def evaluation_task_size(spec: JobSpec, shards: Sequence[Shard]) -> int:
    """Records of a task of an evaluation."""
    if spec.records_per_task is not None:
        return spec.records_per_task
    num_records = sum(shard.num_records for shard in shards)
    return default_records_per_task(num_records, spec.minibatch_size, spec.num_workers.maximum)


class Round:
    """One pass of the workers over some records, on one version of the model."""

    def __init__(self, version: int, ledger: Ledger) -> None:
        self.version = version
        self.ledger = ledger
        self.done = asyncio.Event()
        self._began_s = time.monotonic()

    def lease(
        self, worker: str, *, has_peers: bool = False, is_ahead: bool = False
    ) -> Task | NoTask:
        """The next range for a worker, with the version to use; see `Ledger.lease`."""
        task = self.ledger.lease(worker, has_peers=has_peers, is_ahead=is_ahead)
        return replace(task, model_version=self.version) if isinstance(task, Task) else task

    def samples_per_s(self) -> float:
        """Records done per second since the round was opened."""
        return self.ledger.records_done / max(time.monotonic() - self._began_s, 1e-3)

    def note_progress(self) -> None:
        """Wake whoever waits for the end of the round, if it has come."""
        if self.ledger.is_finished:
            self.done.set()


class EvaluationRound(Round):
    """Leases the evaluation records and adds up what workers report of them.

    A report counts together with its records, so that a worker lost between two reports neither
    loses nor doubles any.
    """

    def __init__(self, number: int, version: int, shards: Sequence[Shard], spec: JobSpec) -> None:
        """Open a round.

        Args:
            number: Counts the rounds of a master's life; keeps their task ids apart.
            version: The version of the model that all of its workers use.
            shards: The evaluation records.
            spec: How they are cut into tasks, and what a failing record means.
        """
        ledger = Ledger(
            shards,
            LedgerConfig(
                records_per_task=evaluation_task_size(spec, shards),
                num_epochs=1,
                kind=TaskKind.EVALUATION,
                first_task_id=FIRST_TASK_ID + number * TASK_IDS_PER_ROUND,
                max_task_failures=spec.max_task_failures,
                skip_bad_records=spec.skip_bad_records,
                # Sums over records are the same whatever the minibatches.
                may_shrink=True,
            ),
        )
        super().__init__(version, ledger)
        self._sums = MetricSums()

    def add(
        self, task_id: int, attempt: int, start: int, end: int, metrics: Sequence[MetricState]
    ) -> bool:
        """Count the sums over records `[start, end)` of a task; False if the lease was lost.

        Raises:
            ValueError: The metrics do not match those reported before; nothing was changed.
        """
        self._sums.check(metrics)
        staged = self.ledger.stage(task_id, attempt, start, end)
        if isinstance(staged, Refusal):
            return False
        self.ledger.commit([staged])
        self._sums.add(metrics)
        self.note_progress()
        return True

    def states(self) -> list[MetricState]:
        """The merged metrics."""
        return self._sums.states()
