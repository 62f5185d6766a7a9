"""A job that trains: from its newest cut to the exported model."""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from elastic.checkpoints.contents import read_rows
from elastic.checkpoints.cuts import Cut
from elastic.checkpoints.destinations import advice, in_words
from elastic.checkpoints.table_files import export_tables, writes_parquet
from elastic.errors import CheckpointError, JobSpecError, TrainingError
from elastic.master.callbacks import CallbackRunner
from elastic.master.coordination.running import RunningJob
from elastic.master.cutter import CutPlan, Cutter, FencedWriter
from elastic.master.evaluator import BestVersions, Evaluator
from elastic.master.hang_watch import LEAST_S
from elastic.master.kinds.beginning import begin_tables, held_versions, restore
from elastic.master.kinds.preparation import (
    JobParts,
    Sources,
    Until,
    build_callbacks,
    total_updates,
    training_ledger,
)
from elastic.master.parameters.rows import WithRows
from elastic.master.parameters.servers import ServerLife, ServerParameters, ServerRules
from elastic.master.parameters.servers_with_rows import ServerRows, ServersWithRows
from elastic.master.parameters.store import ParameterStore
from elastic.master.parameters.strategy import AnyStrategy
from elastic.master.parameters.tables import NewestRows
from elastic.policy.fleet import Liveness
from elastic.policy.tasks.epochs import idle_workers
from elastic.policy.tasks.ledger import Ledger
from elastic.policy.tasks.records import Shard
from elastic.policy.updates.elastic_batch import BatchChoice
from elastic.policy.updates.update_group import UpdateRule
from elastic.spec.job import JobSpec
from elastic.spec.status import JobPhase


class Training:
    """Trains every epoch, evaluates meanwhile and at the end, keeps and exports the model."""

    prediction_dir: Path | None = None

    def __init__(
        self,
        parts: JobParts,
        sources: Sources,
        job: RunningJob,
        cutter: Cutter,
        evaluator: Evaluator,
    ) -> None:
        """Keep the parts; `open_training` makes them."""
        self.job = job
        self._spec = parts.spec
        self._board = parts.board
        self._sources = sources
        self._writer = FencedWriter(parts.env.fence)
        self._cutter = cutter
        self._evaluator = evaluator
        self._best: Path | None = None
        self._recovery_stays = parts.env.recovery_stays

    async def run(self, until: Until) -> None:
        """Train to the end, and make the most of what came of it."""
        await self._train(until)
        self._check_audits()
        is_kept = await self._keep(until)
        kept = f"the trained model is in the checkpoint {self._board.checkpoint}"
        if not is_kept:
            kept = f"the trained model could not be kept as a checkpoint: {self._cutter.problem}"
        if self._spec.output:
            with self._board.time.checkpointing():
                self._board.export = await self._export(kept)
        elif not is_kept:
            raise CheckpointError(kept)

    async def abandon(self) -> None:
        """See `Work`: returns when nothing of it is written or evaluated any more."""
        await self.job.updates.abandon()
        await self._evaluator.stop()
        await self._cutter.finish()

    async def leave(self) -> None:
        """Keep the newest version where whoever resumes the job finds it."""
        version = self.job.parameters.version
        # Where the cuts go with the pod, checkpoints alone outlive it.
        if await self._cutter.last_cut(is_checkpoint=not self._recovery_stays):
            self._board.note("VersionKept", f"version {version} is kept, for the master is to end")
            self._tell_checkpoint()

    async def _train(self, until: Until) -> None:
        await self.job.updates.end_epoch_if_complete()
        cutting = asyncio.create_task(self._cutter.run(self._spec.recovery_interval))
        training = asyncio.ensure_future(until(self.job.updates.training_done))
        try:
            # The first ends by an error alone, which would leave a job without any cut.
            await asyncio.wait({cutting, training}, return_when=asyncio.FIRST_COMPLETED)
            await (cutting if cutting.done() else training)
        finally:
            cutting.cancel()
            training.cancel()
            await self._cutter.settle()
            self._tell_checkpoint()

    async def _keep(self, until: Until) -> bool:
        """Keep what was trained, with its metrics; False if it could not be."""
        cutter, evaluator = self._cutter, self._evaluator
        is_kept = await cutter.final_checkpoint()
        if self._sources.evaluation_shards and not cutter.metrics:
            self._board.set_phase(JobPhase.RUNNING, "Evaluating", "evaluates the trained model")
            evaluated = asyncio.Event()
            evaluating = asyncio.create_task(evaluator.evaluate_final())
            evaluating.add_done_callback(lambda _: evaluated.set())
            await until(evaluated)
            await evaluating
            cutter.metrics = evaluator.final_results
            is_kept = await cutter.final_checkpoint()
        checkpoint = self._best = await evaluator.finish()
        self._board.metrics = cutter.metrics
        self._tell_checkpoint()
        if checkpoint is not None:
            self._board.checkpoint = str(checkpoint)
        return is_kept

    def _tell_checkpoint(self) -> None:
        self._board.checkpoint_problem = self._cutter.problem
        if self._cutter.newest_checkpoint is not None:
            self._board.checkpoint = str(self._cutter.newest_checkpoint)

    def _check_audits(self) -> None:
        ledger = self.job.ledger
        num_epochs = self._spec.num_epochs if self.job.updates.ending is None else ledger.epoch
        if len(ledger.audits) != num_epochs:
            raise TrainingError(f"{len(ledger.audits)} of {num_epochs} epochs were audited")

    async def _export(self, kept: str) -> str:
        try:
            async with self.job.parameters.lock:
                export = (await self.job.parameters.whole()).export
            written = await self._writer.write(lambda _: export(self._spec.output))
            await self._export_tables(Path(written))
        except OSError as error:
            raise JobSpecError(
                f"--output={self._spec.output} cannot be written: {in_words(error)}; {kept}: "
                f"{advice(error)}, and run the job again with --resume"
            ) from error
        return written

    async def _export_tables(self, export: Path) -> None:
        """Write the rows of what was exported beside it.

        Raises:
            CheckpointError: Those of the best version cannot be read.
        """
        async with self.job.parameters.lock:
            newest = await self.job.parameters.hold_rows()
        if newest is None:
            return
        best = self._best
        try:
            rows = newest if best is None else await asyncio.to_thread(read_rows, best)
            assert rows is not None, "cuts of a model with tables have rows"
            folder = await self._writer.write(lambda check: export_tables(export, rows, check))
        finally:
            newest.let_go()
        missing = "" if writes_parquet() else ", as npz, since pyarrow is not installed"
        self._board.note("TablesExported", f"rows of embeddings are in {folder}{missing}")


async def open_training(
    parts: JobParts, sources: Sources, store: ParameterStore, metric_names: Sequence[str]
) -> Training:
    """Go back to the newest cut, if there is one, and make the parts that go on from there.

    Args:
        parts: Of the job.
        sources: What it trains on, and evaluates with.
        store: The parameters as the model has them.
        metric_names: What an evaluation gives; none where nobody knows yet.

    Raises:
        UserError: A callback or the cut cannot be used.
    """
    spec, board = parts.spec, parts.board
    run, at = parts.preparation.run, parts.preparation.at
    hooks = await run(partial(build_callbacks, spec, sources, store, at))
    parameters = _with_rows(
        parts, store, _strategy(parts, store, total_updates(spec, sources.shards))
    )
    tables = parts.tables
    callbacks = CallbackRunner(hooks, parameters, spec.hang_timeout, board.note)
    callbacks.check(bool(sources.evaluation_shards), metric_names)
    ledger = training_ledger(spec, sources.chunks)
    cut = await _go_back(parts, parameters, ledger)
    if cut is None and tables is not None:
        await run(partial(begin_tables, spec, sources.model_def, tables))
    parts.commit_log.open(parameters.version)
    idle = idle_workers(ledger.num_tasks, ledger.num_minibatches, spec.num_workers.maximum)
    if idle is not None and parts.is_first_life:
        board.note("WorkersIdle", idle)
    job = RunningJob.assemble(
        ledger,
        parameters,
        _update_rule(spec),
        Liveness(spec.hang_timeout, spec.start_timeout),
        parts.commit_log,
        parts.listeners,
        loss=None if cut is None else cut.loss,
        batch=_batch_choice(parts, store, is_resumed=cut is not None),
    )
    cutter = _cutter(parts, job, _digest(sources.evaluation_shards))
    # Who resumes a job may have other records, or other metrics, in mind.
    evaluated = cut if cut is not None and cut.evaluated_on == cutter.evaluated_on else None
    parts.telemetry.attach(job, evaluates_as_before=evaluated is not None)
    evaluator = await _evaluator(parts, job, cutter, callbacks, sources, cut)
    await _begin_cuts(parts, parameters, cutter, cut)
    # Metrics of a cut are those of its last record: training on makes them old.
    if evaluated is not None and job.updates.training_done.is_set():
        is_same = not metric_names or set(metric_names) == evaluated.metrics.keys()
        cutter.metrics = evaluated.metrics if is_same else {}
    job.updates.subscribe(parts.telemetry.updated, parts.telemetry.epoch_ended)
    job.updates.subscribe(cutter.checkpoint_if_due)
    job.updates.subscribe(evaluator.begin_if_due, evaluator.epoch_ended)
    return Training(parts, sources, job, cutter, evaluator)


def _with_rows(parts: JobParts, store: ParameterStore, parameters: AnyStrategy) -> AnyStrategy:
    """The same with the tables of the model's embeddings, if it has some, which its layers read."""
    tables = parts.tables
    if tables is None:
        return parameters
    if not isinstance(parameters, ServersWithRows):
        # Where the newest rows need not fit into memory, older ones need not either.
        folder = parts.env.recovery_dir.parent if tables.store.is_durable else None
        parameters = WithRows(parameters, tables, folder)
    parts.board.follow_tables(parameters.sizes)
    store.model.read_rows_from(NewestRows(tables))
    return parameters


async def _go_back(parts: JobParts, parameters: AnyStrategy, ledger: Ledger) -> Cut | None:
    """Restore the newest cut, if there is one; what was computed after it counts as undone.

    Raises:
        CheckpointError: Parameters were lost, and there is none; or it cannot be used.
    """
    parts.preparation.at("newest cut")
    note, tables = parts.board.note, parts.tables
    cut = await parts.preparation.run(
        partial(restore, parts.env, parameters, ledger, note, parts.is_first_life, tables)
    )
    if cut is None and parts.is_back:
        raise CheckpointError(
            "parameters were lost, and there is no cut that the job could go back to: the "
            f"events of `elastic status` say why none could be written to {parts.env.recovery_dir}"
        )
    told = parts.board.progress
    undone = ledger.count_undone(told.records_done, told.computed_again)
    if parts.is_back:
        # What a life before has counted is told with what this one begins with.
        parts.listeners.meter.undo(undone)
    return cut


async def _begin_cuts(
    parts: JobParts, parameters: AnyStrategy, cutter: Cutter, cut: Cut | None
) -> None:
    """Take over the rows that cuts hold, or have the first cut where losses are to be expected."""
    if isinstance(parameters, WithRows) and cut is not None:
        versions = held_versions(parts.env.recovery_dir, cut.version)
        await parts.preparation.run(partial(parameters.tables.let_go_but, versions))
        cutter.take_over([parameters.held_at(version) for version in versions], cut)
    tables = parts.tables
    is_outside = parts.ring is not None or (tables is not None and tables.store.is_durable)
    if cut is None and is_outside:
        # What the job goes back to where a server, or the store, is lost before the next cut.
        await cutter.recovery_cut(is_wanted=True)


def _strategy(parts: JobParts, store: ParameterStore, total_steps: int) -> AnyStrategy:
    """What has the parameters: the master, or servers that get them from it.

    Raises:
        ModelDefError: The servers cannot have those of this model.
    """
    spec, ring = parts.spec, parts.ring
    if ring is None:
        return store
    rules = ServerRules(
        parts.env.token,
        total_steps,
        not spec.is_async,
        spec.start_timeout,
        max(spec.hang_timeout, LEAST_S),
        parts.env.certificate,
    )
    told, fence, tables = _server_progress(parts), parts.env.fence, parts.tables
    if tables is not None and isinstance(tables.store, ServerRows):
        return ServersWithRows(store, ring, rules, told, fence, tables=tables, rows=tables.store)
    return ServerParameters(store, ring, rules, told, fence)


def _server_progress(parts: JobParts) -> Callable[[ServerLife], None]:
    return lambda life: parts.on_server_progress(life.replica)


def _digest(shards: Sequence[Shard]) -> str:
    """Tells evaluation records from others."""
    ranges = [(each.name, each.start, each.end, each.fingerprint) for each in shards]
    return hashlib.sha256(repr(ranges).encode("utf-8", "surrogateescape")).hexdigest()[:16]


async def _evaluator(
    parts: JobParts,
    job: RunningJob,
    cutter: Cutter,
    callbacks: CallbackRunner,
    sources: Sources,
    cut: Cut | None,
) -> Evaluator:
    """Let callbacks begin, or go on from a cut."""
    board = parts.board
    folder = _kept_dir(parts) or parts.env.checkpoint_dir
    best = BestVersions(parts.env.recovery_dir, folder, cutter.writing, board.note, parts.env.fence)
    best.go_back(cut.version if cut else 0)
    board.follow_callbacks(callbacks, best.path)

    def evaluated(version: int, num_records: int, metrics: dict[str, float]) -> None:
        board.evaluated(version, num_records, metrics)
        parts.telemetry.evaluated(version, metrics)

    evaluator = Evaluator(
        parts.spec,
        job,
        sources.evaluation_shards,
        cutter,
        callbacks,
        best,
        evaluated,
        board.evaluation_lost,
    )
    cutter.include(evaluator.snapshot)
    await evaluator.start(None if cut is None else cut.steering)
    return evaluator


def _cutter(parts: JobParts, job: RunningJob, evaluated_on: str) -> Cutter:
    spec = parts.spec
    plan = CutPlan(
        parts.env.recovery_dir,
        _kept_dir(parts),
        spec.job_name,
        parts.env.run_id,
        spec.checkpoint_steps,
        spec.keep_checkpoint_max,
        evaluated_on,
        None if spec.is_async else spec.gradients_per_update,
    )
    meter = parts.listeners.meter
    return Cutter(
        job,
        plan,
        parts.board.note,
        parts.board.time.checkpointing,
        lambda seconds: meter.on_checkpoint_s(seconds),
        parts.env.fence,
    )


def _kept_dir(parts: JobParts) -> Path | None:
    """Where checkpoints are kept; None where the user asks for none."""
    if parts.spec.checkpoint_dir:
        return Path(parts.spec.checkpoint_dir)
    return parts.env.checkpoint_dir if parts.spec.checkpoint_steps else None


def _batch_choice(
    parts: JobParts, store: ParameterStore, *, is_resumed: bool
) -> BatchChoice | None:
    """What chooses the batch, where the user lets the master do so.

    Args:
        is_resumed: Whether there is a cut to go on from; else gradients are as noisy as at first.
    """
    limits = parts.spec.batch_range
    if limits is None:
        return None
    size, earlier = parts.spec.minibatch_size, parts.board.earlier_batch if is_resumed else None
    choice = BatchChoice.begun(limits, size, store.updater.is_proportional(), earlier)
    store.measure(choice.take)
    return choice


def _update_rule(spec: JobSpec) -> UpdateRule:
    return UpdateRule(
        grads_to_wait=spec.gradients_per_update,
        is_async=spec.is_async,
        lr_staleness_modulation=spec.lr_staleness_modulation,
        max_staleness=spec.max_staleness,
        max_steps=spec.max_steps,
    )
