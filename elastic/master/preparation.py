"""From a JobSpec to a model with parameters: every check of the job before it starts."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from elastic.data import open_reader
from elastic.data.base import DataReader, ReadTask
from elastic.errors import CheckpointError, DataError, ModelDefError
from elastic.frameworks import load_framework
from elastic.frameworks.base import Batch, Framework
from elastic.master.cuts import MANIFEST, list_cuts, read_cut
from elastic.master.parameters import ParameterStore
from elastic.policy.ledger import Ledger, LedgerConfig
from elastic.policy.records import RecordRange, Shard, Task, TaskKind
from elastic.spec.job import JobSpec
from elastic.spec.mode import Mode
from elastic.spec.model_def import ModelDef, load_model_def

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sources:
    """The checked model_def and data of a job."""

    model_def: ModelDef
    reader: DataReader
    shards: Sequence[Shard]
    evaluation_shards: Sequence[Shard]


def check_sources(spec: JobSpec) -> Sources:
    """Import the model_def and list the records.

    Raises:
        UserError: What the user has to mend.
    """
    model_def = load_model_def(spec.model_zoo, spec.model_def, spec.symbol_names())
    reader = _open(spec, model_def, spec.training_data_dir)
    shards = _shards(reader, "training_data_dir", spec.training_data_dir)
    evaluation_shards: Sequence[Shard] = ()
    if spec.evaluation_data_dir:
        evaluation = _open(spec, model_def, spec.evaluation_data_dir)
        evaluation_shards = _shards(evaluation, "evaluation_data_dir", spec.evaluation_data_dir)
    return Sources(model_def, reader, shards, evaluation_shards)


def build_store(spec: JobSpec, sources: Sources, sample: Task) -> ParameterStore:
    """Build model and optimizer, with the initial parameters of the seed or of a checkpoint.

    Raises:
        UserError: The model cannot be built from the first records, or not from the checkpoint.
    """
    framework = load_framework(sources.model_def.framework)
    batch = sample_batch(framework, sources.model_def, sources.reader, sample)
    model = framework.build_model(sources.model_def, spec.model_params, batch, spec.seed)
    store = ParameterStore(model, framework.build_updater(sources.model_def, model))
    if spec.checkpoint_filename_for_init:
        cut = read_cut(_cut_path(Path(spec.checkpoint_filename_for_init)))
        store.load(0, cut.parameters, cut.state, None)
    return store


def training_ledger(spec: JobSpec, shards: Sequence[Shard]) -> Ledger:
    """The ledger of the training records."""
    return Ledger(
        shards,
        LedgerConfig(
            records_per_task=spec.records_per_task,
            num_epochs=spec.num_epochs,
            seed=spec.seed,
            shuffle=spec.shuffle,
            max_task_failures=spec.max_task_failures,
            skip_bad_records=spec.skip_bad_records,
        ),
    )


def sample_task(spec: JobSpec, shards: Sequence[Shard]) -> Task:
    """The records that every process builds the model with: the first minibatch there is."""
    shard = next(shard for shard in shards if shard.num_records)
    end = min(shard.end, shard.start + min(spec.minibatch_size, spec.records_per_task))
    return Task(0, 0, TaskKind.TRAINING, 0, RecordRange(0, shard.start, end), shard)


def sample_batch(
    framework: Framework, model_def: ModelDef, reader: DataReader, sample: Task
) -> Batch:
    """Read and prepare the sample.

    Raises:
        UserError: The reader or dataset_fn fails on the first records already.
    """
    task = ReadTask(sample.shard, sample.records.start, sample.records.end)
    batch = framework.make_batch(model_def, list(reader.read_records(task)), Mode.TRAINING)
    if batch.num_examples == 0:
        raise ModelDefError(
            f"dataset_fn made no example of the first {sample.records.num_records} records of "
            f"{sample.shard.name!r}: the model cannot be built without one"
        )
    return batch


def _open(spec: JobSpec, model_def: ModelDef, origin: str) -> DataReader:
    return open_reader(
        origin, spec.records_per_task, spec.data_reader_params, model_def.custom_data_reader
    )


def _shards(reader: DataReader, setting: str, origin: str) -> Sequence[Shard]:
    shards = reader.create_shards()
    if not any(shard.num_records for shard in shards):
        raise DataError(f"{setting}={origin} holds no records: give it data, or another path")
    return shards


def _cut_path(path: Path) -> Path:
    """A checkpoint itself, or the newest of a folder of checkpoints.

    Raises:
        CheckpointError: It is neither.
    """
    if (path / MANIFEST).exists():
        return path
    cuts = list_cuts(path)
    if not cuts:
        raise CheckpointError(
            f"checkpoint_filename_for_init={path} is neither a checkpoint nor a folder of them"
        )
    return cuts[0]
