"""What fails: minibatches by the user's code, counted and told as it happens; and the job."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from elastic.errors import TrainingError, UserError
from elastic.policy.failing import Retry, SizeFault
from elastic.policy.replicas import ReplicaId
from elastic.policy.tasks.ledger import LedgerError, PoisonedRecord, SkipRecord
from elastic.policy.tasks.records import Task, TaskKind

FAILED: Final = "MinibatchFailed"
SHRUNK: Final = "MinibatchesShrunk"


@dataclass(frozen=True, slots=True)
class FailureReport:
    """What a worker tells of a failure; see `Ledger.fail`.

    Attributes:
        message: The exception, with the user's line.
        trace: The whole traceback.
    """

    task_id: int
    attempt: int
    start: int
    end: int
    message: str
    trace: str
    runs_at: int = 0


class JobFailure:
    """Why a job must end, if it must; the first reason stands.

    Attributes:
        event: Set when there is one.
    """

    def __init__(self) -> None:
        self.error: UserError | None = None
        self.event = asyncio.Event()

    def fail(self, error: UserError) -> None:
        """End the job."""
        if self.error is None:
            self.error = error
            self.event.set()

    @contextmanager
    def on_error(self) -> Iterator[None]:
        """What goes wrong between an update and its account ends the job, told by its reason."""
        try:
            yield
        except LedgerError as error:
            self.fail(TrainingError(f"the ledger does not add up: {error}"))
        except UserError as error:
            self.fail(error)


class Failures:
    """Counts over this life of the master.

    Attributes:
        tried_again: Minibatches that failed and were given out whole again.
        computed_alone: Times that one record was computed by itself, to see whether it fails.
    """

    def __init__(self, on_event: Callable[[str, str], None]) -> None:
        """Take what tells events."""
        self.tried_again = 0
        self.computed_alone = 0
        self._on_event = on_event

    def part_computed(self, num_records: int) -> None:
        """A part of what failed was computed, in search of the record that fails."""
        self.computed_alone += num_records == 1

    def judge(
        self,
        verdict: Retry | SizeFault | SkipRecord | PoisonedRecord,
        report: FailureReport,
        task: Task,
        replica: ReplicaId,
    ) -> UserError | None:
        """Count and tell what the ledger has decided; what ends the job is returned."""
        match verdict:
            case PoisonedRecord():
                return TrainingError(
                    f"record {verdict.index} of {verdict.shard_name!r} failed on "
                    f"{verdict.attempts} attempts: {report.message}: mend the record or the "
                    "model_def, or allow it with --skip_bad_records"
                )
            case SkipRecord():
                self._on_event(
                    "RecordSkipped",
                    f"record {verdict.index} of {verdict.shard_name!r} failed for good: "
                    f"{report.message}",
                )
            case SizeFault() if verdict.goes_on:
                self.shrunk(task.kind, verdict.fails_at, verdict.runs_at, report.message)
            case SizeFault():
                where = task.tell(report.start, report.end)
                too_what = _too_large if verdict.fails_at > 1 else _too_small
                return too_what(verdict, where, report.message)
            case Retry():
                self.retry(verdict, report, task, replica)
        return None

    def shrunk(self, kind: TaskKind, fails_at: int, runs_at: int, message: str) -> None:
        """Tell that the job goes on with smaller minibatches."""
        self._on_event(
            SHRUNK,
            f"{kind} fails at {fails_at} records a minibatch and runs at {runs_at}, with which it "
            f"goes on: {message}",
        )

    def retry(self, retry: Retry, report: FailureReport, task: Task, replica: ReplicaId) -> None:
        """Tell that a minibatch, or a record by itself, failed and is tried again."""
        self.tried_again += retry is Retry.WHOLE
        self.computed_alone += retry is Retry.ALONE
        self._on_event(
            FAILED,
            f"{task.tell(report.start, report.end)} failed on {replica.name}: "
            f"{report.message}: {_NEXT[retry]}",
        )


_NEXT: Final = {
    Retry.WHOLE: "the minibatch is tried again",
    Retry.IN_PARTS: "it is computed in parts, to find the record that fails",
    Retry.ALONE: "it is tried again by itself",
}


def _too_small(fault: SizeFault, where: str, message: str) -> UserError:
    return TrainingError(
        f"the minibatch fails at 1 record, runs at {fault.runs_at} ({where}, which is not to "
        f"blame): {message}: leave out an epoch's short last minibatch with --drop_last, or take a "
        "--minibatch_size that leaves no single record"
    )


def _too_large(fault: SizeFault, where: str, message: str) -> UserError:
    return TrainingError(
        f"the minibatch fails at {fault.fails_at} records, runs at {fault.runs_at} "
        f"({where}, none of which is to blame): {message}: give --minibatch_size "
        f"{fault.runs_at}, or --shrink_minibatches to go on with the size that runs"
    )
