"""From a JobSpec to a model with parameters: every check of the job before it starts.

And what there is to do then, whatever the kind of the job, with what the master gives it for that.
"""

import asyncio
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol, TypeAlias, TypeVar

import numpy as np

from elastic.callbacks import Callback
from elastic.checkpoints.contents import MANIFEST, refuse_rows
from elastic.checkpoints.cuts import Cut, list_cuts, no_cut_at, read_cut
from elastic.checkpoints.table_files import rows_folder
from elastic.data import open_reader
from elastic.data.base import Chunks, DataReader, read_whole
from elastic.errors import CheckpointError, DataError, ModelDefError, TrainingError, UserError
from elastic.frameworks import load_framework
from elastic.frameworks.base import Batch, Framework, Model, Tensors
from elastic.master.coordination.running import Listeners, RunningJob
from elastic.master.coordination.updates import CommitLog
from elastic.master.parameters.servers import ServerRing
from elastic.master.parameters.store import ParameterStore, Watched, unwatched
from elastic.master.parameters.tables import Tables
from elastic.master.status_board import StatusBoard
from elastic.master.telemetry import Telemetry
from elastic.platforms.registry import MasterEnvironment
from elastic.policy.replicas import ReplicaId
from elastic.policy.tasks.epochs import (
    OrderForm,
    RecordOrder,
    Shuffle,
    default_records_per_task,
    minibatches_of_epoch,
    updates_of_job,
)
from elastic.policy.tasks.ledger import LedgerConfig
from elastic.policy.tasks.ledger_kinds import TaskCut, TrainingLedger
from elastic.policy.tasks.records import Places, RecordRange, Shard, Task, TaskKind
from elastic.spec.job import JobSpec
from elastic.spec.model_def import ModelDef, error_text, load_model_def, stuck_in
from elastic.spec.platforms import JobKind, Mode
from elastic.spec.values import export_target

R = TypeVar("R")

MAX_TRIES: Final = 31
"""Five halvings: a record that fails stands alone in minibatches of up to 16."""

log = logging.getLogger(__name__)


def first_part(first: Task, attempt: Callable[[Task], R]) -> tuple[Task, R]:
    """The largest part of the first records that an attempt succeeds with, and its result.

    A record that fails is for the ledger to try again, to name and to skip: one among the first
    must not end the job before it starts.

    Args:
        first: The first records there are; the user's code may fail on some.
        attempt: Raises a `UserError` where it fails, or a `MemoryError`.

    Raises:
        UserError: The attempt fails with every part; what it said of the whole.
        MemoryError: The same.
    """
    parts = deque([first])
    of_all: UserError | MemoryError | None = None
    for _ in range(MAX_TRIES):
        if not parts:
            break
        part = parts.popleft()
        try:
            return part, attempt(part)
        except (UserError, MemoryError) as error:
            of_all = of_all or error
            parts.extend(_halves(part))
    assert of_all is not None
    raise of_all


def sample_batch(
    framework: Framework,
    model_def: ModelDef,
    reader: DataReader,
    sample: Task,
    mode: Mode,
    *,
    may_be_empty: bool = False,
) -> Batch:
    """Read and prepare the sample.

    Raises:
        UserError: The reader or dataset_fn fails on the first records already.
    """
    records = read_whole(reader, sample, by_columns=model_def.takes_columns)
    batch = framework.make_batch(model_def, records, mode)
    if batch.num_examples == 0 and not may_be_empty:
        raise ModelDefError(
            f"{model_def.records_fn} made no example of the first {sample.records.num_records} "
            f"records of {sample.shard.name!r}: the model cannot be built without one"
        )
    return batch


def _halves(part: Task) -> list[Task]:
    records = part.records
    if records.num_records < 2:
        return []
    middle = (records.start + records.end) // 2
    return [
        replace(
            part,
            records=RecordRange(records.shard_index, start, end),
            picks=part.picked(start, end),
        )
        for start, end in ((records.start, middle), (middle, records.end))
    ]


def _step_untold(_step: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Sources:
    """The checked model_def and data of a job.

    Attributes:
        chunks: The records that the job goes through.
        evaluation_shards: Those that a training job evaluates on besides.
    """

    model_def: ModelDef
    reader: DataReader
    chunks: Chunks
    evaluation_shards: Sequence[Shard]

    @property
    def shards(self) -> Sequence[Shard]:
        return self.chunks.shards


def check_sources(spec: JobSpec, at: Callable[[str], None] = _step_untold) -> Sources:
    """Import the model_def and list the records.

    Args:
        spec: Of the job.
        at: Told each step before it is taken, since the user's code may not come back from it.

    Raises:
        UserError: What the user has to mend.
    """
    at(f"import of {spec.model_def}")
    model_def = load_model_def(spec.model_zoo, spec.model_def, spec.symbol_names())
    if spec.output:
        export_target(spec.output, model_def.framework)
    at(f"records of {spec.kind.data_setting}={spec.data_origin}")
    reader = _open(spec, model_def, spec.data_origin)
    chunks = _chunks(spec, reader)
    evaluation_shards: Sequence[Shard] = ()
    if spec.kind is JobKind.TRAIN and spec.evaluation_data_dir:
        at(f"records of evaluation_data_dir={spec.evaluation_data_dir}")
        evaluation = _open(spec, model_def, spec.evaluation_data_dir)
        evaluation_shards = _shards(evaluation, "evaluation_data_dir", spec.evaluation_data_dir)
    return Sources(model_def, reader, chunks, evaluation_shards)


def build_store(
    spec: JobSpec,
    sources: Sources,
    sample: Task,
    at: Callable[[str], None] = _step_untold,
    watched: Watched = unwatched,
) -> ParameterStore:
    """Build model and, to train, optimizer, with the parameters of the seed or of a file.

    Args:
        spec: Of the job.
        sources: From `check_sources`.
        sample: From `choose_sample`.
        at: See `check_sources`.
        watched: See `ParameterStore`.

    Raises:
        UserError: The model cannot be built from the first records, or not from the checkpoint.
    """
    framework = load_framework(sources.model_def.framework)
    name = sources.model_def.module_name
    batch = sample_batch(framework, sources.model_def, sources.reader, sample, spec.kind.mode)
    at(f"model of {name}")
    model = framework.build_model(
        sources.model_def, spec.model_params, batch, spec.seed, spec.embedding_threshold
    )
    is_trained = spec.kind is JobKind.TRAIN
    if is_trained:
        at(f"optimizer of {name}")
    total_steps = total_updates(spec, sources.shards)
    updater = framework.build_updater(sources.model_def, model, total_steps) if is_trained else None
    if spec.train_metrics:
        _check_train_metrics(sources, model, sample, at)
    if updater is not None:
        # A state that no checkpoint can hold is found now, and not by the first cut.
        updater.state()
    store = ParameterStore(model, updater, watched)
    if spec.checkpoint_filename_for_init:
        at(f"checkpoint_filename_for_init={spec.checkpoint_filename_for_init}")
        cut = read_cut(checkpoint_path(Path(spec.checkpoint_filename_for_init)))
        if not model.tables:
            refuse_rows(cut.rows)
        store.load(0 if is_trained else cut.version, *_values_for(model, cut), None)
    elif spec.model:
        at(f"model={spec.model}")
        _load_export(model, Path(spec.model))
    return store


def _values_for(model: Model, cut: Cut) -> tuple[Tensors, Tensors]:
    """The parameters and the state of a cut, as this model has them.

    Of a Keras layer that is frozen it is state what was trained before, and the other way round.
    Where the names are others than the model's they stay as they are, and the model tells which.
    """
    held = {**cut.parameters, **cut.state}
    parameters, state = list(model.parameters()), [*model.state(), *model.frozen_names]
    if held.keys() != {*parameters, *state}:
        return cut.parameters, cut.state
    return {name: held[name] for name in parameters}, {name: held[name] for name in state}


def _load_export(model: Model, path: Path) -> None:
    """Copy the parameters of an exported model.

    Raises:
        CheckpointError: They do not fit; where it has tables and the model none, that says why.
    """
    try:
        model.load_export(str(path))
    except CheckpointError as error:
        tables = rows_folder(path)
        if model.tables or not (path.exists() and tables.exists()):
            raise
        raise CheckpointError(
            f"--model={path} has tables of embeddings, in {tables}, and this model has none: "
            "give the --embedding_threshold that it was trained with"
        ) from error


def _check_train_metrics(
    sources: Sources, model: Model, sample: Task, at: Callable[[str], None]
) -> None:
    """Find before anything is trained that there are no metrics, or that one fails."""
    model_def = sources.model_def
    if model_def.eval_metrics_fn is None:
        raise ModelDefError(
            f"--train_metrics asks for metrics, and module {model_def.module_name} has no "
            "eval_metrics_fn: define it, or leave the flag out"
        )
    at(f"metrics of {model_def.module_name}")
    framework = load_framework(model_def.framework)

    def measure(part: Task) -> object:
        return model.metrics(
            sample_batch(framework, model_def, sources.reader, part, Mode.TRAINING)
        )

    first_part(sample, measure)


def total_updates(spec: JobSpec, shards: Sequence[Shard]) -> int:
    """Updates that the whole job will make, if no record fails and no callback ends it."""
    num_records = sum(shard.num_records for shard in shards)
    num_minibatches = minibatches_of_epoch(num_records, spec.minibatch_size, spec.drop_last)
    return updates_of_job(
        num_minibatches, spec.num_epochs, spec.gradients_per_update, spec.max_steps
    )


def build_callbacks(
    spec: JobSpec, sources: Sources, store: ParameterStore, at: Callable[[str], None] = _step_untold
) -> Sequence[Callback]:
    """Build the user's callbacks around the model.

    Raises:
        UserError: They cannot be built, or not be served.
    """
    model_def = sources.model_def
    at(f"callbacks of {model_def.module_name}")
    return load_framework(model_def.framework).build_callbacks(
        model_def,
        store.model,
        store.updater,
        is_local=spec.get_model_steps > 1,
        num_epochs=spec.num_epochs,
        with_metrics=spec.train_metrics,
        on_servers=spec.num_ps > 0,
    )


def training_ledger(spec: JobSpec, chunks: Chunks) -> TrainingLedger:
    """The ledger of the training records.

    Raises:
        DataError: Without a short last minibatch, none are left.
    """
    places = Places(chunks.shards)
    cut = _task_cut(spec, places, chunks)
    if not cut.num_records(places.num_records):
        raise DataError(
            f"{spec.training_data_dir} holds {places.num_records} records, which is less than one "
            f"minibatch_size={spec.minibatch_size}, and --drop_last leaves them out: lower the "
            "one, or leave the other out"
        )
    config = LedgerConfig(
        records_per_task=cut.records_per_task,
        num_epochs=spec.num_epochs,
        max_task_failures=spec.max_task_failures,
        skip_bad_records=spec.skip_bad_records,
        may_shrink=spec.shrink_minibatches,
    )
    shuffle = Shuffle(spec.shuffle)
    form = OrderForm(shuffle, cut.records_per_task, chunks.mixed or 1, chunks.is_forward)
    firsts = () if chunks.mixed is None else places.firsts
    order = RecordOrder(places.num_records, spec.seed, form, firsts)
    return TrainingLedger(places, order, cut, config, spec.seed)


def _task_cut(spec: JobSpec, places: Places, chunks: Chunks) -> TaskCut:
    size, num_workers = spec.minibatch_size, spec.num_workers.maximum
    if spec.records_per_task is not None:
        # As the user has it: all alike, up to the end of an epoch.
        return TaskCut(spec.records_per_task, size, 1, spec.drop_last)
    window = 0
    if chunks.mixed is not None:
        window = places.num_records * chunks.mixed // len(places.shards)
    each = default_records_per_task(places.num_records, size, num_workers, window)
    return TaskCut(each, size, num_workers, spec.drop_last)


def choose_sample(
    spec: JobSpec, sources: Sources, at: Callable[[str], None] = _step_untold
) -> Task:
    """The records that every process builds the model with: of the first minibatch, what works.

    Args:
        spec: Of the job.
        sources: From `check_sources`.
        at: See `check_sources`.

    Raises:
        UserError: The reader or dataset_fn fails on all of the first minibatch.
    """
    model_def = sources.model_def
    framework = load_framework(model_def.framework)
    at(f"{model_def.records_fn} of {model_def.module_name} on the first records")
    sample, _ = first_part(
        _first_minibatch(spec, sources.shards, TaskKind(spec.kind.mode)),
        lambda part: sample_batch(framework, model_def, sources.reader, part, spec.kind.mode),
    )
    return sample


def check_evaluation(
    spec: JobSpec, sources: Sources, model: Model, at: Callable[[str], None] = _step_untold
) -> Sequence[str]:
    """Evaluate the model on the first records, if the job will evaluate at all.

    Returns:
        The names of the metrics; none where these records do not tell.

    Raises:
        UserError: What would else be found when everything is trained.
    """
    is_all = spec.kind is JobKind.EVALUATE
    shards = sources.shards if is_all else sources.evaluation_shards
    if not shards:
        return ()
    model_def = sources.model_def
    framework = load_framework(model_def.framework)
    reader = _open(spec, model_def, spec.evaluation_data_dir)
    at(f"evaluation by {model_def.module_name} of the first records")

    def evaluate(part: Task) -> Sequence[str]:
        batch = sample_batch(framework, model_def, reader, part, Mode.EVALUATION, may_be_empty=True)
        return list(model.metric_results(model.metrics(batch))) if batch.num_examples else ()

    return first_part(_first_minibatch(spec, shards, TaskKind.EVALUATION), evaluate)[1]


def _first_minibatch(spec: JobSpec, shards: Sequence[Shard], kind: TaskKind) -> Task:
    places = Places(shards)
    # As they stand in the files, be they of several chunks.
    end = min(spec.minibatch_size, places.num_records)
    picks = places.pick(np.arange(end))
    return Task(0, 0, kind, 0, RecordRange(0, 0, end), picks.shards[0], picks=picks)


def _open(spec: JobSpec, model_def: ModelDef, origin: str) -> DataReader:
    return open_reader(
        origin, spec.records_per_range, spec.data_reader_params, model_def.custom_data_reader
    )


def _chunks(spec: JobSpec, reader: DataReader) -> Chunks:
    setting, origin = spec.kind.data_setting, spec.data_origin
    if spec.kind is not JobKind.TRAIN or Shuffle(spec.shuffle) is not Shuffle.RECORDS:
        return Chunks(_shards(reader, setting, origin))
    chunks = reader.create_chunks()
    _check_filled(chunks.shards, setting, origin)
    return chunks


def _shards(reader: DataReader, setting: str, origin: str) -> Sequence[Shard]:
    shards = reader.create_shards()
    _check_filled(shards, setting, origin)
    return shards


def _check_filled(shards: Sequence[Shard], setting: str, origin: str) -> None:
    if not any(shard.num_records for shard in shards):
        raise DataError(f"{setting}={origin} holds no records: give it data, or another path")


def checkpoint_path(path: Path) -> Path:
    """A checkpoint itself, or the newest of a folder of checkpoints.

    Raises:
        CheckpointError: It is neither.
    """
    if (path / MANIFEST).exists():
        return path
    cuts = list_cuts(path)
    if not cuts:
        raise CheckpointError(f"checkpoint_filename_for_init={no_cut_at(path)}")
    return cuts[0]


# What a job has to do, whatever its kind, what the master gives it for that, and its preparation.
#
# The master prepares its job on a thread: the user's code may hang on it for ever.


T = TypeVar("T")

Until: TypeAlias = Callable[[asyncio.Event], Awaitable[None]]
"""Waits for an event, or raises what ends the job before."""


class Preparation:
    """Runs one piece of work after the other, all of them within one time limit.

    Which step it is at is told to `on_step` on the event loop, and kept in a file, which says so
    even where the step ends the process.
    """

    def __init__(self, timeout_s: float, step_path: Path, on_step: Callable[[str], None]) -> None:
        self._timeout_s = timeout_s
        self._step_path = step_path
        self._on_step = on_step
        self._loop = asyncio.get_running_loop()
        self._deadline_s: float | None = None
        self._step = ""
        self._is_over = False

    def at(self, step: str) -> None:
        """Say what comes next; called from the work."""
        self._step = step
        with suppress(OSError):
            # A full disk costs only the name of the step.
            self._step_path.write_text(step, encoding="utf-8")
        self._loop.call_soon_threadsafe(self._tell, step)

    async def run(self, work: Callable[[], T]) -> T:
        """Do a piece of work; what it raises is raised here.

        Raises:
            UserError: Also where the work ends the process, or takes longer than is left.
        """
        self._deadline_s = self._deadline_s or time.monotonic() + self._timeout_s
        done: Future[T] = Future()
        # So that it cannot be cancelled, though nobody may wait for it any more.
        done.set_running_or_notify_cancel()
        thread = threading.Thread(
            target=_settle, args=(done, work), name="preparation", daemon=True
        )
        thread.start()
        waiting = asyncio.wrap_future(done)
        left_s = max(0.0, self._deadline_s - time.monotonic())
        try:
            await asyncio.wait([waiting], timeout=left_s)
            if waiting.done():
                return waiting.result()
        finally:
            waiting.cancel()
        raise self._hung(thread)

    def end(self) -> None:
        """Nothing is prepared any more, whatever a thread that hangs may still do."""
        self._is_over = True
        with suppress(OSError):
            self._step_path.unlink(missing_ok=True)

    def _tell(self, step: str) -> None:
        if not self._is_over:
            self._on_step(step)

    def _hung(self, thread: threading.Thread) -> TrainingError:
        frame = sys._current_frames().get(thread.ident or 0)  # noqa: SLF001 - documented
        stuck = None if frame is None else stuck_in(frame)
        what = f"{stuck} hangs" if stuck else "the master hangs"
        return TrainingError(
            f"{what} while the master prepares the job ({self._step}): that took longer than "
            f"start_timeout={self._timeout_s:g} s: mend it, or raise --start_timeout",
            "PreparationTimeout",
        )


def _settle(done: "Future[T]", work: Callable[[], T]) -> None:
    try:
        result = work()
    except SystemExit as error:
        ended = ModelDefError(f"the user's code ended the process: {error_text(error)}")
        ended.__cause__ = error
        done.set_exception(ended)
    except BaseException as error:  # noqa: BLE001 - whoever waits for the thread raises it again
        done.set_exception(error)
    else:
        done.set_result(result)


def _progress_untold(_replica: ReplicaId) -> None:
    """Nobody wants to know."""


@dataclass(frozen=True, slots=True)
class JobParts:
    """What there is of a job before its model is.

    Attributes:
        spec: The job's own, with what its first life has settled for good.
        is_first_life: No master of this submission has been there before.
        ring: The parameter servers; None where the master has the parameters.
        on_server_progress: Told of each server when it has made an update.
        is_back: The job was at work before in this life of the master: only a cut has its values.
        tables: Of embeddings, whose rows are kept beside the parameters; None where there are none.
    """

    env: MasterEnvironment
    spec: JobSpec
    board: StatusBoard
    telemetry: Telemetry
    commit_log: CommitLog
    preparation: Preparation
    is_first_life: bool
    listeners: Listeners
    ring: ServerRing | None = None
    on_server_progress: Callable[[ReplicaId], None] = _progress_untold
    is_back: bool = False
    tables: Tables | None = None


class Work(Protocol):
    """Everything between a job's preparation and its end."""

    @property
    def job(self) -> RunningJob:
        """Its parts, which meet the workers."""

    @property
    def prediction_dir(self) -> Path | None:
        """Where workers put files of predictions; None where there are none."""

    async def run(self, until: Until) -> None:
        """Have every record worked through, and make the job's result.

        Raises:
            UserError: What ended the job before.
        """

    async def abandon(self) -> None:
        """Stop all that goes on beside the workers; the job begins anew with its newest cut."""

    async def leave(self) -> None:
        """Keep what would be lost with the master, which is to end; nothing counts after it."""
