"""Makes a worker's model and readers from the JobSpec."""

from collections.abc import Callable

from elastic.data import open_reader
from elastic.data.base import ReadTask
from elastic.frameworks import load_framework
from elastic.policy.records import Task, TaskKind
from elastic.rpc.client import MasterClient
from elastic.spec.job import JobSpec
from elastic.spec.mode import Mode
from elastic.spec.model_def import load_model_def
from elastic.worker.batches import BatchStream
from elastic.worker.meter import StepMeter
from elastic.worker.step import Trainer


def assemble(
    spec: JobSpec, client: MasterClient, meter: StepMeter | None = None
) -> Callable[[Task], tuple[Trainer, BatchStream]]:
    """Import the model_def now; build the rest once the master has named the sample.

    Args:
        spec: Of the job.
        client: Connection to the master.
        meter: Told how long the parts of each step take.

    Raises:
        UserError: The model_def cannot be used here.
    """
    model_def = load_model_def(spec.model_zoo, spec.model_def, spec.symbol_names())
    framework = load_framework(model_def.framework)
    readers = {
        kind: open_reader(
            origin, spec.records_per_task, spec.data_reader_params, model_def.custom_data_reader
        )
        for kind, origin in (
            (TaskKind.TRAINING, spec.training_data_dir),
            (TaskKind.EVALUATION, spec.evaluation_data_dir),
        )
        if origin
    }

    def build(sample: Task) -> tuple[Trainer, BatchStream]:
        task = ReadTask(sample.shard, sample.records.start, sample.records.end)
        records = list(readers[TaskKind.TRAINING].read_records(task))
        batch = framework.make_batch(model_def, records, Mode.TRAINING)
        model = framework.build_model(model_def, spec.model_params, batch, spec.seed)
        local = spec.get_model_steps > 1
        updater = framework.build_updater(model_def, model) if local else None
        trainer = Trainer(client, model, updater, spec.get_model_steps, spec.seed, meter)
        return trainer, BatchStream(framework, model_def, spec.minibatch_size, readers)

    return build
