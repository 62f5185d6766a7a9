"""A job that goes through its records once, on parameters that stay as they are."""

import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Protocol

from elastic.checkpoints.destinations import advice, in_words
from elastic.data.predictions.folder import Part, PredictionFolder, SystemFiles
from elastic.data.predictions.parts import part_name
from elastic.errors import JobSpecError, TrainingError
from elastic.master.coordination.commit_log import CommitLog
from elastic.master.coordination.rounds import EvaluationRound, Round
from elastic.master.coordination.running import RunningJob
from elastic.master.fenced import FencedWriter
from elastic.master.kinds.prediction import Counted, Journal, PredictionRound, replace_text
from elastic.master.kinds.work import JobParts, Until
from elastic.master.parameters.rows import WithRows
from elastic.master.parameters.store import ParameterStore
from elastic.master.parameters.strategy import AnyStrategy
from elastic.master.prepare.preparation import Sources, checkpoint_path
from elastic.master.prepare.tables import begin_tables
from elastic.master.report.status_board import StatusBoard
from elastic.platforms.base import Fence
from elastic.platforms.surroundings import MasterEnvironment
from elastic.policy.aggregation import UpdateRule
from elastic.policy.ledger import Ledger, LedgerConfig
from elastic.policy.liveness import Liveness
from elastic.spec.job import JobSpec
from elastic.spec.kinds import JobKind

JOURNAL: Final = "predictions.jsonl"
PINNED: Final = "parameters.json"

SIGHT_S: Final = 60.0
"""How long another machine's file may take to show in a folder of a network file system."""
SIGHT_POLL_S: Final = 0.2


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
