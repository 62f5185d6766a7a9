"""Makes a worker's model and readers from the JobSpec."""

from collections.abc import Callable
from pathlib import Path

from elastic.data import open_reader
from elastic.data.predictions import SystemFiles
from elastic.data.taking import read_whole
from elastic.frameworks import load_framework
from elastic.policy.replicas import ReplicaId
from elastic.policy.tasks.records import TaskKind
from elastic.rpc.client import MasterClient, Session
from elastic.spec.job import JobSpec
from elastic.spec.kinds import JobKind, Mode
from elastic.spec.model_def import ModelDef, load_model_def
from elastic.worker.batches import BatchStream
from elastic.worker.loop import Parts
from elastic.worker.meter import StepMeter
from elastic.worker.prediction import Outputs, open_processor
from elastic.worker.rows import MasterRows, Rows, RowsOnServers, RowsUsedAgain
from elastic.worker.rows_ahead import ForeseenRows
from elastic.worker.servers import ServerExchange
from elastic.worker.step import Trainer
from elastic.worker.strategy import Exchange, MasterExchange, PulledParameters


def assemble(
    spec: JobSpec, client: MasterClient, replica: ReplicaId, meter: StepMeter | None = None
) -> Callable[[Session], Parts]:
    """Import the model_def now; build the rest once the master has named the sample.

    Args:
        spec: Of the job.
        client: Connection to the master.
        replica: Which one this is.
        meter: Told how long the parts of each step take.

    Raises:
        UserError: The model_def cannot be used here.
    """
    model_def = load_model_def(spec.model_zoo, spec.model_def, spec.symbol_names())
    framework = load_framework(model_def.framework)
    readers = {
        kind: open_reader(
            origin,
            spec.records_per_range,
            spec.data_reader_params,
            model_def.custom_data_reader,
            beside=True,
        )
        for kind, origin in (
            (TaskKind.TRAINING, spec.training_data_dir),
            (TaskKind.EVALUATION, spec.evaluation_data_dir),
            (TaskKind.PREDICTION, spec.prediction_data_dir),
        )
        if origin
    }

    def build(session: Session) -> Parts:
        sample = session.sample
        by_columns = model_def.takes_columns
        records = read_whole(readers[sample.kind], sample, by_columns=by_columns)
        batch = framework.make_batch(model_def, records, Mode(sample.kind))
        model = framework.build_model(
            model_def, spec.model_params, batch, spec.seed, spec.embedding_threshold
        )
        local = spec.get_model_steps > 1
        updater = framework.build_updater(model_def, model, session.total_steps) if local else None
        exchange = _exchange(spec, client)
        rows: Rows | None = None
        foreseen: ForeseenRows | None = None
        if model.tables:
            rows = _rows(spec, client, exchange)
            if spec.embedding_staleness:
                rows = RowsUsedAgain(rows, model.tables, spec.embedding_staleness)
            elif _may_come_ahead(spec, session):
                rows = foreseen = ForeseenRows(rows, exchange)
            model.read_rows_from(rows)
        strategy = PulledParameters(exchange, model, updater, spec.get_model_steps, meter, rows)
        trainer = Trainer(strategy, model, spec.seed, meter, spec.train_metrics, foreseen)
        foresee = None if foreseen is None else foreseen.wanted
        stream = BatchStream(framework, model_def, spec.minibatch_size, readers, foresee)
        return Parts(strategy, trainer, stream, _outputs(spec, model_def, session, replica))

    return build


def _exchange(spec: JobSpec, client: MasterClient) -> Exchange:
    narrows = spec.wire_dtype == "bfloat16"
    if not spec.num_ps:
        return MasterExchange(client, narrows=narrows)
    return ServerExchange(
        client,
        is_synchronous=not spec.is_async,
        keeps_rows=spec.embedding_store == "ps",
        narrows=narrows,
    )


def _rows(spec: JobSpec, client: MasterClient, exchange: Exchange) -> Rows:
    if spec.embedding_store == "ps" and isinstance(exchange, ServerExchange):
        return RowsOnServers(exchange)
    return MasterRows(client)


def _may_come_ahead(spec: JobSpec, session: Session) -> bool:
    """Whether rows can come with the version that a minibatch is computed on.

    Those who have both have to be on this machine. And where updates do not wait for each other, a
    row that is read later lacks less.
    """
    if spec.is_async or spec.get_model_steps > 1:
        return False
    if not session.servers:
        return session.shares_memory
    return spec.embedding_store == "ps" and all(each.shares_memory for each in session.servers)


def _outputs(spec: JobSpec, model_def: ModelDef, session: Session, replica: ReplicaId) -> Outputs:
    is_predicting = spec.kind is JobKind.PREDICT
    folder = None if session.prediction_dir is None else Path(session.prediction_dir)
    return Outputs(
        folder,
        spec.prediction_format,
        open_processor(model_def, replica.index) if is_predicting else None,
        f"{replica.name}-{replica.launch}",
        SystemFiles(),
    )
