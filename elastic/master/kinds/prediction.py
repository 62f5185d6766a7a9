"""One pass that makes a prediction of each record: which ranges have theirs."""

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elastic.errors import CheckpointError
from elastic.master.coordination.rounds import FIRST_TASK_ID, Round
from elastic.policy.fixed_ranges import FixedRangeLedger
from elastic.policy.ledger import LedgerConfig, Refusal, tell_difference
from elastic.policy.records import RecordRange, Shard, TaskKind
from elastic.spec.job import JobSpec

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Counted:
    """A range that has its predictions."""

    records: RecordRange
    skipped: tuple[int, ...]
    num_predictions: int


class Journal:
    """The ranges that count, one a line, so that a restarted master does not begin anew.

    A line is written after the predictions are where they belong and before anybody relies on it.
    One that is lost, or cut off, costs its range another pass, which gives the same file again.
    """

    def __init__(self, path: Path, run_id: str, fingerprint: dict[str, Any]) -> None:
        """Keep the arguments; `read` does I/O.

        Args:
            path: Outlives the master.
            run_id: The same for all lives of the master of one submission.
            fingerprint: What must be equal for what is in it to count here.
        """
        self._path = path
        self._run_id = run_id
        self._fingerprint = fingerprint

    def read(self, *, resume: bool) -> list[Counted]:
        """What has counted before, in this run or, with `resume`, in the one before.

        Raises:
            CheckpointError: That was with other data, another model or other settings.
        """
        lines = self.check(resume=resume)
        counted = [_counted(line) for line in lines if "shard_index" in line]
        # Anew, since what is appended to a line that was cut off would be lost with it.
        self._begin(counted)
        return counted

    def check(self, *, resume: bool) -> list[dict[str, Any]]:
        """See whether what has counted before counts here, and change nothing.

        Returns:
            The lines that do; none of another run, which is not gone on with.

        Raises:
            CheckpointError: That was with other data, another model or other settings.
        """
        lines = list(self._lines())
        head = lines[0] if lines and "run_id" in lines[0] else None
        if head is None or not (resume or head["run_id"] == self._run_id):
            return []
        difference = tell_difference(head.get("fingerprint", {}), self._fingerprint)
        if difference:
            raise CheckpointError(
                f"the predictions so far were made with {difference}: make it the same, or begin "
                "anew with --overwrite"
            )
        return lines[1:]

    def append(self, counted: Counted) -> None:
        """Note a range; a full disk costs a restarted master its range, not the job."""
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(_line(counted))
        except OSError as error:
            log.warning("%s: %s", self._path, error)

    def _begin(self, counted: Sequence[Counted]) -> None:
        head = {"run_id": self._run_id, "fingerprint": self._fingerprint}
        replace_text(self._path, json.dumps(head) + "\n" + "".join(map(_line, counted)))

    def _lines(self) -> Iterator[dict[str, Any]]:
        try:
            text = self._path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return
        for line in text.splitlines():
            try:
                value = json.loads(line)
            except ValueError:
                # Cut off by the death of its writer.
                continue
            if isinstance(value, dict):
                yield value


def replace_text(path: Path, text: str) -> None:
    """Replace a file that only spares a restarted master work; a full disk is no reason to fail."""
    begun = path.with_suffix(".begun")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        begun.write_text(text, encoding="utf-8")
        begun.replace(path)
    except OSError as error:
        log.warning("%s: %s", path, error)


class PredictionRound(Round):
    """Leases the records by whole tasks, and knows which have their predictions."""

    ledger: FixedRangeLedger

    def __init__(self, version: int, shards: Sequence[Shard], spec: JobSpec) -> None:
        """Open the round; see `EvaluationRound`."""
        config = LedgerConfig(
            records_per_task=spec.records_per_range,
            num_epochs=1,
            kind=TaskKind.PREDICTION,
            first_task_id=FIRST_TASK_ID,
            max_task_failures=spec.max_task_failures,
            skip_bad_records=spec.skip_bad_records,
            may_shrink=True,
        )
        super().__init__(version, FixedRangeLedger(shards, config))
        self.counted: list[Counted] = []
        self.journal: Journal | None = None

    def restore(self, counted: Sequence[Counted]) -> None:
        """Go on where these ranges count; to be called before the first lease."""
        self.ledger.restore_whole({item.records: item.skipped for item in counted})
        self.counted = list(counted)
        self.note_progress()

    def add(self, task_id: int, attempt: int, start: int, end: int, num_predictions: int) -> bool:
        """Count a whole task, whose predictions are where they belong; False if it was lost.

        Raises:
            ValueError: The range is not the task's, or the predictions are too many.
        """
        if not 0 <= num_predictions <= end - start:
            raise ValueError(f"{num_predictions} predictions of records [{start}, {end})")
        task = self.ledger.commit_whole(task_id, attempt, start, end)
        if task is Refusal.OUT_OF_ORDER:
            raise ValueError(f"records [{start}, {end}) are not all of task {task_id}")
        if isinstance(task, Refusal):
            return False
        counted = Counted(task.records, task.skipped, num_predictions)
        self.counted.append(counted)
        if self.journal is not None:
            self.journal.append(counted)
        self.note_progress()
        return True


def _line(counted: Counted) -> str:
    records = counted.records
    return (
        json.dumps(
            {
                "shard_index": records.shard_index,
                "start": records.start,
                "end": records.end,
                "skipped": counted.skipped,
                "num_predictions": counted.num_predictions,
            }
        )
        + "\n"
    )


def _counted(line: dict[str, Any]) -> Counted:
    records = RecordRange(line["shard_index"], line["start"], line["end"])
    return Counted(records, tuple(line["skipped"]), line["num_predictions"])
