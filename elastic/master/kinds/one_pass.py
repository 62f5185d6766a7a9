"""A job that goes through its records once, on parameters that stay as they are.

One that predicts keeps a journal of the ranges whose predictions are there.
"""

import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Protocol

from elastic.checkpoints.destinations import advice, in_words
from elastic.data.predictions import Part, PredictionFolder, SystemFiles, part_name
from elastic.errors import CheckpointError, JobSpecError, TrainingError
from elastic.master.coordination.rounds import FIRST_TASK_ID, EvaluationRound, Round
from elastic.master.coordination.running import RunningJob
from elastic.master.coordination.updates import CommitLog
from elastic.master.cutter import FencedWriter
from elastic.master.kinds.beginning import begin_tables
from elastic.master.kinds.preparation import JobParts, Sources, Until, checkpoint_path
from elastic.master.parameters.rows import WithRows
from elastic.master.parameters.store import ParameterStore
from elastic.master.parameters.strategy import AnyStrategy
from elastic.master.status_board import StatusBoard
from elastic.platforms.base import Fence
from elastic.platforms.registry import MasterEnvironment
from elastic.policy.fleet import Liveness
from elastic.policy.tasks.ledger import Ledger, LedgerConfig, Refusal, tell_difference
from elastic.policy.tasks.ledger_kinds import FixedRangeLedger
from elastic.policy.tasks.records import RecordRange, Shard, TaskKind
from elastic.policy.updates.update_group import UpdateRule
from elastic.spec.job import JobSpec
from elastic.spec.platforms import JobKind

log = logging.getLogger(__name__)

JOURNAL: Final = "predictions.jsonl"
PINNED: Final = "parameters.json"

SIGHT_S: Final = 60.0
"""How long another machine's file may take to show in a folder of a network file system."""
SIGHT_POLL_S: Final = 0.2


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


class OnePass(Protocol):
    """What is done with the records, and what comes of it."""

    @property
    def round(self) -> Round:
        """The pass itself."""

    def prepare(self) -> None:
        """Do what has to be done before the first record is given out; does I/O."""

    def finish(self) -> None:
        """Make the job's result of the finished round; does I/O."""


class Evaluation:
    """Adds the metrics up; a restarted master begins anew, since the sums went with the last."""

    def __init__(self, spec: JobSpec, sources: Sources, store: ParameterStore, board: StatusBoard):
        self.round = EvaluationRound(0, store.version, sources.shards, spec)
        self._store = store
        self._board = board

    def prepare(self) -> None:
        """Nothing is kept that a next life could go on from."""

    def finish(self) -> None:
        """Tell the metrics of all records."""
        results = self._store.model.metric_results(self.round.states())
        self._board.evaluated(self.round.version, self.round.ledger.num_records, results)


class Prediction:
    """Has every range written, or processed, and says when all of them are."""

    def __init__(
        self, env: MasterEnvironment, sources: Sources, store: ParameterStore, board: StatusBoard
    ) -> None:
        self.round = PredictionRound(store.version, sources.shards, env.spec)
        self._env = env
        self._sources = sources
        self._board = board
        self.path = _prediction_dir(env, sources)
        self._folder = None if self.path is None else PredictionFolder(self.path, SystemFiles())

    def prepare(self) -> None:
        """Claim the folder, and find what has been predicted before.

        Raises:
            UserError: The folder cannot be used, or what is there was made otherwise.
        """
        spec, ledger = self._env.spec, self.round.ledger
        if spec.prediction_format == "parquet" and find_spec("pyarrow") is None:
            raise JobSpecError(
                "--prediction_format=parquet needs pyarrow, which is not installed where the job "
                "runs: add it to the image's requirements, or write csv"
            )
        journal = Journal(
            self._env.recovery_dir / JOURNAL, self._env.run_id, self._fingerprint(ledger)
        )
        # What is refused leaves the predictions that are there as they are.
        journal.check(resume=spec.resume)
        if self._folder is not None:
            self._on_disk(
                lambda folder: folder.claim(
                    spec.job_name, self._env.run_id, resume=spec.resume, overwrite=spec.overwrite
                )
            )
        counted = journal.read(resume=spec.resume)
        if self._folder is not None:
            gone = set(self._folder.missing(filter(None, map(self._file_of, counted))))
            counted = [item for item in counted if self._file_of(item) not in gone]
        if counted:
            self.round.restore(counted)
            self._board.note(
                "Resumed",
                f"{ledger.num_records if ledger.is_finished else ledger.records_done} of "
                f"{ledger.num_records} records have been predicted already",
            )
        self.round.journal = journal

    def finish(self) -> None:
        """See that every range has its file and no other is there, and say so in the manifest.

        Raises:
            UserError: A file has gone, or the manifest cannot be written.
        """
        if self._folder is None:
            return
        parts = self._parts()
        names = [part.file for part in parts if part.file is not None]
        missing = self._missing(names)
        if missing:
            raise TrainingError(
                f"{len(missing)} files of predictions have gone from {self.path}, such as "
                f"{missing[0]}: who removed them? Predict them again with --overwrite",
                "PredictionsLost",
            )
        self._on_disk(lambda folder: folder.remove_others(names))
        self._on_disk(lambda folder: folder.finish(self._description(), parts))
        self._board.predictions = str(self.path)

    def _missing(self, names: Sequence[str]) -> list[str]:
        """The files that are not there, nor come into sight."""
        assert self._folder is not None
        deadline_s = time.monotonic() + SIGHT_S
        while (missing := self._folder.missing(names)) and time.monotonic() < deadline_s:
            time.sleep(SIGHT_POLL_S)
        return missing

    def _parts(self) -> list[Part]:
        ledger = self.round.ledger
        return [
            Part(
                self._file_of(item),
                ledger.shard_name(item.records.shard_index),
                item.records.start,
                item.records.end,
                item.num_predictions,
            )
            for item in sorted(self.round.counted, key=lambda item: item.records)
        ]

    def _file_of(self, item: Counted) -> str | None:
        """The file of a range; one without a prediction has none."""
        form = self._env.spec.prediction_format
        return part_name(item.records, form) if item.num_predictions else None

    def _description(self) -> dict[str, Any]:
        (audit,) = self.round.ledger.audits
        predictions = sum(item.num_predictions for item in self.round.counted)
        return {
            "job_name": self._env.spec.job_name,
            "run_id": self._env.run_id,
            "model_version": self.round.version,
            "records": audit.records,
            "predictions": predictions,
            "skipped": [list(record) for record in self.round.ledger.skipped_records],
            "dropped": audit.committed - predictions,
        }

    def _fingerprint(self, ledger: Ledger) -> dict[str, Any]:
        spec = self._env.spec
        return {
            **ledger.fingerprint(),
            "model": spec.model or spec.checkpoint_filename_for_init,
            "prediction_outputs": "" if self.path is None else str(self.path),
            "prediction_format": spec.prediction_format,
        }

    def _on_disk(self, work: Callable[[PredictionFolder], object]) -> None:
        assert self._folder is not None
        try:
            work(self._folder)
        except OSError as error:
            raise JobSpecError(
                f"--prediction_outputs={self.path} cannot be written: {in_words(error)}: "
                f"{advice(error)}"
            ) from error


class SinglePass:
    """Has every record evaluated or predicted, and makes the result."""

    def __init__(self, one_pass: OnePass, job: RunningJob, fence: Fence) -> None:
        """Keep the parts; `open_one_pass` makes them."""
        self._writer = FencedWriter(fence)
        self.job = job
        self.prediction_dir = one_pass.path if isinstance(one_pass, Prediction) else None
        self._pass = one_pass

    async def abandon(self) -> None:
        """Nothing goes on beside the workers."""

    async def leave(self) -> None:
        """Nothing: what counted is in the journal, and an evaluation begins anew."""

    async def run(self, until: Until) -> None:
        """Have every record worked through, and make the result."""
        parameters = self.job.parameters
        async with parameters.lock:
            await parameters.keep(self._pass.round)
        self.job.tasks.open_round(self._pass.round)
        await until(self._pass.round.done)
        await self._writer.write(lambda _: self._pass.finish())


async def open_one_pass(parts: JobParts, sources: Sources, store: ParameterStore) -> SinglePass:
    """Find out what is left to do, and make the parts that do it.

    Raises:
        UserError: What has been done before cannot be used.
    """
    spec, board = parts.spec, parts.board
    one_pass: OnePass
    if spec.kind is JobKind.EVALUATE:
        one_pass = Evaluation(spec, sources, store, board)
    else:
        one_pass = Prediction(parts.env, sources, store, board)
    parameters: AnyStrategy = store
    tables = parts.tables
    if tables is not None:
        parts.preparation.at("rows of embeddings")
        await parts.preparation.run(
            partial(begin_tables, spec, sources.model_def, tables, store.version)
        )
        with_rows = WithRows(store, tables)
        board.follow_tables(with_rows.sizes)
        parameters = with_rows
    parts.preparation.at("what has been done before")
    await parts.preparation.run(one_pass.prepare)
    board.count_by(one_pass.round.ledger)
    job = RunningJob.assemble(
        Ledger([], LedgerConfig(1, 1)),
        parameters,
        UpdateRule(),
        Liveness(spec.hang_timeout, spec.start_timeout),
        CommitLog(""),
        parts.listeners,
    )
    parts.telemetry.attach_pass(job, one_pass.round.ledger)
    return SinglePass(one_pass, job, parts.env.fence)


def pinned(env: MasterEnvironment) -> JobSpec:
    """The job with one checkpoint, that of its first life, instead of a folder that may get more.

    Raises:
        CheckpointError: There is none.
    """
    spec = env.spec
    if spec.kind is JobKind.TRAIN or not spec.checkpoint_filename_for_init:
        return spec
    path = env.recovery_dir / PINNED
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        known = {}
    asked = spec.checkpoint_filename_for_init
    is_of_run = known.get("run_id") == env.run_id or spec.resume
    if not is_of_run or known.get("asked") != asked:
        known = {"run_id": env.run_id, "asked": asked, "used": str(checkpoint_path(Path(asked)))}
        replace_text(path, json.dumps(known))
    return spec.model_copy(update={"checkpoint_filename_for_init": known["used"]})


def _prediction_dir(env: MasterEnvironment, sources: Sources) -> Path | None:
    """The folder for files of predictions; None where a processor takes them instead.

    Raises:
        JobSpecError: They have nowhere to go.
    """
    spec = env.spec
    if spec.prediction_outputs:
        return Path(spec.prediction_outputs)
    if sources.model_def.prediction_outputs_processor is not None:
        return None
    if not spec.platform.traits.shares_files:
        raise JobSpecError(
            "--prediction_outputs is missing: name a folder below the mount_path of a --volume "
            f"that all pods share, or define {spec.prediction_outputs_processor} in the model_def"
        )
    return env.recovery_dir.with_name("predictions")
