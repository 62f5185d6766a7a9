"""The life of one master: prepare, serve, finish."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import grpc

from elastic.errors import CheckpointError, ElasticError, JobSpecError, TrainingError, UserError
from elastic.master.best import BestVersions
from elastic.master.commit_log import CommitLog
from elastic.master.coordinator import Coordinator
from elastic.master.cuts import Cut
from elastic.master.cutter import Cutter
from elastic.master.destinations import advice, check_destinations, in_words
from elastic.master.environment import MasterEnvironment
from elastic.master.evaluator import Evaluator
from elastic.master.one_pass import (
    Prediction,
    coordinator_of,
    go_through,
    open_one_pass,
    pinned,
)
from elastic.master.parameters import ParameterStore
from elastic.master.preparation import (
    Sources,
    build_callbacks,
    build_store,
    check_evaluation,
    check_sources,
    choose_sample,
    training_ledger,
)
from elastic.master.preparing import Preparation
from elastic.master.restoring import restore
from elastic.master.servicer import MasterServicer
from elastic.master.status_board import StatusBoard
from elastic.master.steering import Steering
from elastic.master.telemetry import Telemetry
from elastic.master.worker_manager import WorkerManager
from elastic.policy.aggregation import UpdateRule
from elastic.policy.ending import Ending
from elastic.policy.fleet import Fleet, FleetRules
from elastic.policy.liveness import Liveness
from elastic.policy.masters import PREPARING
from elastic.policy.records import Task
from elastic.rpc.server import SERVER_OPTIONS, MasterHandler
from elastic.spec.job import JobSpec
from elastic.spec.kinds import JobKind
from elastic.spec.status import JobPhase
from elastic.spec.user_frames import user_traceback

log = logging.getLogger(__name__)

PUBLISH_S: Final = 0.25
FAREWELL_S: Final = 10.0
"""How long ended workers may take to exit by themselves."""


class Cancelled(Exception):  # noqa: N818 - no error: the user asked for it
    """`elastic kill` was called."""


class Master:
    """Owns the parts of a running job and the order in which they start and stop."""

    def __init__(self, environment: MasterEnvironment) -> None:
        self._env = environment
        self._spec = environment.spec
        self._board = StatusBoard(environment.spec, environment.runner)
        self._is_first_life = self._board.phase is JobPhase.STARTING
        self._telemetry = Telemetry(environment, self._board, self._is_first_life)
        self._commit_log = CommitLog(environment.spec.commit_log)
        self._cancelled = asyncio.Event()
        self._preparation = Preparation(
            environment.spec.start_timeout,
            environment.step_path,
            partial(self._board.explain, PREPARING),
        )
        spec = self._spec
        self._fleet = Fleet(
            FleetRules(spec.max_worker_failures, spec.start_timeout),
            failures=self._board.worker_failures,
        )
        self._manager = WorkerManager(
            spec,
            environment.runner,
            environment.room,
            self._fleet,
            self._board,
            self._cancelled.set,
        )
        self._manager.on_exit = self._telemetry.exited

    async def run(self) -> JobPhase:
        """Run the job to its end; returns the final phase, which has been published."""
        publishing = asyncio.create_task(self._publish_for_ever())
        try:
            await self._run_job()
        except UserError as error:
            self._fail(error)
        except Cancelled:
            self._board.set_phase(JobPhase.CANCELLED, "Cancelled", "cancelled by its user")
        finally:
            publishing.cancel()
        self._preparation.end()
        self._commit_log.close()
        await self._telemetry.close()
        while not self._board.publish():
            await asyncio.sleep(PUBLISH_S)
        return self._board.phase

    def _fail(self, error: ElasticError) -> None:
        reason = (
            error.reason
            if isinstance(error, TrainingError)
            else type(error).__name__.removesuffix("Error")
        )
        message = str(error)
        self._board.note("JobFailed", message)
        trace = user_traceback(error)
        if trace is not None:
            log.error("%s", trace)
            message += "; the master's log has the traceback"
        self._board.set_phase(JobPhase.FAILED, reason, message)

    async def _run_job(self) -> None:
        self._board.publish()
        self._telemetry.start()
        if self._is_first_life:
            # A disk that has filled since costs a restarted master its checkpoints, not the job.
            await asyncio.to_thread(check_destinations, self._spec)
        self._spec = await asyncio.to_thread(pinned, self._env)
        sources = await self._preparation.run(
            partial(check_sources, self._spec, self._preparation.at)
        )
        # Workers need seconds to import their framework: they start while the model is built.
        self._manager.start()
        try:
            sample = await self._preparation.run(
                partial(choose_sample, self._spec, sources, self._preparation.at)
            )
            coordinator, work, prediction_dir = await self._build(sources, sample)
            self._end_preparation()
            server = await self._serve(coordinator, sample, prediction_dir)
            try:
                await work()
            except (UserError, Cancelled):
                await self._dismiss_workers(coordinator)
                raise
            else:
                await self._dismiss_workers(coordinator)
            finally:
                # After any other error the next master needs the workers, which wait for it.
                await server.stop(0.1)
        finally:
            await self._manager.stop()
        # Told last, so that whoever waits for it finds nothing of the job still running.
        ending = coordinator.ending or Ending("Succeeded", "every record has counted")
        self._board.set_phase(JobPhase.SUCCEEDED, ending.reason, ending.message)

    async def _dismiss_workers(self, coordinator: Coordinator) -> None:
        coordinator.closed = True
        await self._manager.stop()
        if not self._cancelled.is_set():
            await self._manager.wait_for_exits(FAREWELL_S)

    def _end_preparation(self) -> None:
        self._preparation.end()
        self._board.explain("", "")

    async def _build(
        self, sources: Sources, sample: Task
    ) -> tuple[Coordinator, Callable[[], Awaitable[None]], Path | None]:
        """Make what the job needs; gives its work, and where its workers put predictions."""
        spec = self._spec
        at = self._preparation.at
        store = await self._preparation.run(partial(build_store, spec, sources, sample, at))
        names = await self._preparation.run(
            partial(check_evaluation, spec, sources, store.model, at)
        )
        if spec.kind is not JobKind.TRAIN:
            return await self._build_one_pass(sources, store)
        coordinator, cutter, evaluator = await self._build_training(sources, store, names)

        async def train() -> None:
            await self._train(coordinator, cutter)
            await self._finish(coordinator, cutter, evaluator, sources)

        return coordinator, train, None

    async def _build_one_pass(
        self, sources: Sources, store: ParameterStore
    ) -> tuple[Coordinator, Callable[[], Awaitable[None]], Path | None]:
        one_pass = open_one_pass(self._env, sources, store, self._board)
        self._preparation.at("what has been done before")
        await self._preparation.run(one_pass.prepare)
        coordinator = coordinator_of(self._spec, store, self._board.note)
        self._board.ledger = one_pass.round.ledger
        self._board.coordinator = coordinator
        self._manager.attach(coordinator)
        prediction_dir = one_pass.path if isinstance(one_pass, Prediction) else None
        return coordinator, partial(go_through, one_pass, coordinator, self._until), prediction_dir

    async def _build_training(
        self, sources: Sources, store: ParameterStore, metric_names: Sequence[str]
    ) -> tuple[Coordinator, Cutter, Evaluator]:
        spec = self._spec
        at = self._preparation.at
        run = self._preparation.run
        steering = Steering(await run(partial(build_callbacks, spec, sources, store, at)), store)
        steering.check(bool(sources.evaluation_shards), metric_names)
        ledger = training_ledger(spec, sources.shards)
        at("newest cut")
        cut = await run(
            partial(restore, self._env, store, ledger, self._board.note, self._is_first_life)
        )
        self._commit_log.open(store.version)
        coordinator = Coordinator(
            ledger,
            store,
            _update_rule(spec),
            Liveness(spec.hang_timeout, spec.start_timeout),
            self._commit_log,
            self._board.note,
        )
        cutter = self._cutter(coordinator)
        self._telemetry.attach(coordinator, cutter)
        evaluator = await self._steer(coordinator, cutter, steering, sources, cut)
        # Metrics of a cut are those of its last record; training on makes them old.
        cutter.metrics = cut.metrics if cut and coordinator.training_done.is_set() else {}

        async def on_update() -> None:
            self._telemetry.updated()
            await cutter.checkpoint_if_due()
            await evaluator.begin_if_due()

        coordinator.on_update = on_update
        self._board.coordinator = coordinator
        self._manager.attach(coordinator)
        return coordinator, cutter, evaluator

    async def _steer(
        self,
        coordinator: Coordinator,
        cutter: Cutter,
        steering: Steering,
        sources: Sources,
        cut: Cut | None,
    ) -> Evaluator:
        """Let callbacks begin, or go on from a cut."""
        folder = self._kept_dir() or self._env.checkpoint_dir
        best = BestVersions(self._env.recovery_dir, folder, cutter.writing, self._board.note)
        best.go_back(cut.version if cut else 0)
        self._board.steering, self._board.best_path = steering, best.path
        evaluator = Evaluator(
            self._spec,
            coordinator,
            sources.evaluation_shards,
            cutter,
            steering,
            best,
            self._evaluated,
            self._board.evaluation_lost,
        )
        cutter.steering = evaluator.snapshot
        await evaluator.start(None if cut is None else cut.steering)
        coordinator.on_epoch_end = evaluator.epoch_ended
        return evaluator

    def _evaluated(self, version: int, num_records: int, metrics: dict[str, float]) -> None:
        self._board.evaluated(version, num_records, metrics)
        self._telemetry.evaluated(version, metrics)

    def _cutter(self, coordinator: Coordinator) -> Cutter:
        return Cutter(
            coordinator,
            self._env.recovery_dir,
            self._kept_dir(),
            self._spec.checkpoint_steps,
            self._spec.keep_checkpoint_max,
            self._spec.job_name,
            self._env.run_id,
            self._board.note,
            self._board.time.checkpointing,
        )

    def _kept_dir(self) -> Path | None:
        """Where checkpoints are kept; None where the user asks for none."""
        if self._spec.checkpoint_dir:
            return Path(self._spec.checkpoint_dir)
        return self._env.checkpoint_dir if self._spec.checkpoint_steps else None

    async def _serve(
        self, coordinator: Coordinator, sample: Task, prediction_dir: Path | None
    ) -> grpc.aio.Server:
        servicer = MasterServicer(coordinator, sample, self._fleet.current_launch, prediction_dir)
        server = grpc.aio.server(options=SERVER_OPTIONS)
        server.add_generic_rpc_handlers((MasterHandler(servicer, self._env.token),))
        host, port = self._env.host, self._spec.master_port
        try:
            bound = server.add_insecure_port(f"{host}:{port}")
        except RuntimeError as error:
            raise JobSpecError(
                f"master_port={port} is in use on {host}: choose another, or 0 for a free one"
            ) from error
        await server.start()
        await asyncio.to_thread(self._env.runner.publish_address, f"{host}:{bound}")
        return server

    async def _train(self, coordinator: Coordinator, cutter: Cutter) -> None:
        cutting = asyncio.create_task(cutter.run(self._spec.recovery_interval))
        try:
            await self._until(coordinator, coordinator.training_done)
        finally:
            cutting.cancel()
            await cutter.settle()
            self._tell_checkpoint(cutter)

    async def _finish(
        self, coordinator: Coordinator, cutter: Cutter, evaluator: Evaluator, sources: Sources
    ) -> None:
        self._check_audits(coordinator)
        is_kept = await cutter.final_checkpoint()
        if sources.evaluation_shards and not cutter.metrics:
            self._board.set_phase(JobPhase.RUNNING, "Evaluating", "evaluates the trained model")
            evaluated = asyncio.Event()
            evaluating = asyncio.create_task(evaluator.evaluate_final())
            evaluating.add_done_callback(lambda _: evaluated.set())
            await self._until(coordinator, evaluated)
            await evaluating
            cutter.metrics = evaluator.final_results
            is_kept = await cutter.final_checkpoint()
        checkpoint = await evaluator.finish()
        self._board.metrics = cutter.metrics
        self._tell_checkpoint(cutter)
        if checkpoint is not None:
            self._board.checkpoint = str(checkpoint)
        kept = f"the trained model is in the checkpoint {self._board.checkpoint}"
        if not is_kept:
            kept = f"the trained model could not be kept as a checkpoint: {cutter.problem}"
        if self._spec.output:
            with self._board.time.checkpointing():
                self._board.export = await self._export(coordinator, kept)
        elif not is_kept:
            raise CheckpointError(kept)

    def _tell_checkpoint(self, cutter: Cutter) -> None:
        self._board.checkpoint_problem = cutter.problem
        if cutter.newest_checkpoint is not None:
            self._board.checkpoint = str(cutter.newest_checkpoint)

    def _check_audits(self, coordinator: Coordinator) -> None:
        ledger = coordinator.ledger
        num_epochs = self._spec.num_epochs if coordinator.ending is None else ledger.epoch
        if len(ledger.audits) != num_epochs:
            raise TrainingError(f"{len(ledger.audits)} of {num_epochs} epochs were audited")

    async def _export(self, coordinator: Coordinator, kept: str) -> str:
        try:
            return await asyncio.to_thread(coordinator.store.model.export, self._spec.output)
        except OSError as error:
            raise JobSpecError(
                f"--output={self._spec.output} cannot be written: {in_words(error)}; {kept}: "
                f"{advice(error)}, and run the job again with --resume"
            ) from error

    async def _until(self, coordinator: Coordinator, event: asyncio.Event) -> None:
        """Wait for an event, or for whatever ends the job before."""
        waits: list[asyncio.Future[bool]] = [
            asyncio.ensure_future(waiting)
            for waiting in (
                event.wait(),
                coordinator.failed.wait(),
                self._manager.failed.wait(),
                self._cancelled.wait(),
            )
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiting in waits:
                waiting.cancel()
        if self._cancelled.is_set():
            raise Cancelled
        if coordinator.failure is not None:
            raise coordinator.failure
        if self._manager.failure is not None:
            raise self._manager.failure

    async def _publish_for_ever(self) -> None:
        while True:
            self._enter_running()
            self._board.publish()
            self._telemetry.look()
            await asyncio.sleep(PUBLISH_S)

    def _enter_running(self) -> None:
        coordinator, board = self._board.coordinator, self._board
        if coordinator is None or board.phase not in (JobPhase.STARTING, JobPhase.RECOVERING):
            return
        if coordinator.last_contribution_s > board.phase_since_s:
            board.set_phase(JobPhase.RUNNING)


def _update_rule(spec: JobSpec) -> UpdateRule:
    return UpdateRule(
        grads_to_wait=spec.grads_to_wait,
        is_async=spec.is_async,
        lr_staleness_modulation=spec.lr_staleness_modulation,
        max_staleness=spec.max_staleness,
        max_steps=spec.max_steps,
    )
