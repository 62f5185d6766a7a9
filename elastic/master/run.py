"""The life of one master: prepare, serve, finish."""

import asyncio
import logging
from pathlib import Path
from typing import Final

import grpc

from elastic.errors import CheckpointError, ElasticError, JobSpecError, TrainingError, UserError
from elastic.master.commit_log import CommitLog
from elastic.master.coordinator import Coordinator
from elastic.master.cuts import clean_up, list_cuts, newest_cut, remove_all
from elastic.master.cutter import Cutter
from elastic.master.environment import MasterEnvironment
from elastic.master.evaluator import Evaluator
from elastic.master.parameters import ParameterStore
from elastic.master.preparation import (
    Sources,
    build_store,
    check_sources,
    sample_task,
    training_ledger,
)
from elastic.master.servicer import MasterServicer
from elastic.master.status_board import StatusBoard
from elastic.master.worker_manager import WorkerManager
from elastic.policy.aggregation import UpdateRule
from elastic.policy.fleet import Fleet, FleetRules
from elastic.policy.ledger import Ledger, LedgerError
from elastic.policy.liveness import Liveness
from elastic.rpc.server import SERVER_OPTIONS, MasterHandler
from elastic.spec.status import JobPhase

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
        self._commit_log = CommitLog(environment.spec.commit_log)
        self._cancelled = asyncio.Event()
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
        self._commit_log.close()
        while not self._board.publish():
            await asyncio.sleep(PUBLISH_S)
        return self._board.phase

    def _fail(self, error: ElasticError) -> None:
        reason = (
            error.reason
            if isinstance(error, TrainingError)
            else type(error).__name__.removesuffix("Error")
        )
        self._board.note("JobFailed", str(error))
        self._board.set_phase(JobPhase.FAILED, reason, str(error))

    async def _run_job(self) -> None:
        self._board.publish()
        sources = await asyncio.to_thread(check_sources, self._spec)
        # Workers need seconds to import their framework: they start while the model is built.
        self._manager.start()
        try:
            coordinator, cutter, evaluator = await self._build(sources)
            server = await self._serve(coordinator, sources)
            try:
                await self._train(coordinator, cutter)
                await self._finish(coordinator, cutter, evaluator, sources)
            finally:
                coordinator.closed = True
                await self._manager.stop()
                if not self._cancelled.is_set():
                    await self._manager.wait_for_exits(FAREWELL_S)
                await server.stop(0.1)
        finally:
            await self._manager.stop()
        # Told last, so that whoever waits for it finds nothing of the job still running.
        self._board.set_phase(JobPhase.SUCCEEDED, "Succeeded", "every record has counted")

    async def _build(self, sources: Sources) -> tuple[Coordinator, Cutter, Evaluator]:
        spec = self._spec
        sample = sample_task(spec, sources.shards)
        store = await asyncio.to_thread(build_store, spec, sources, sample)
        ledger = training_ledger(spec, sources.shards)
        metrics = await asyncio.to_thread(self._restore, store, ledger)
        self._commit_log.open(store.version)
        coordinator = Coordinator(
            ledger,
            store,
            UpdateRule(
                grads_to_wait=spec.grads_to_wait,
                is_async=spec.is_async,
                lr_staleness_modulation=spec.lr_staleness_modulation,
                max_staleness=spec.max_staleness,
            ),
            Liveness(spec.hang_timeout, spec.start_timeout),
            self._commit_log,
            self._board.note,
        )
        cutter = Cutter(
            coordinator,
            self._env.recovery_dir,
            Path(spec.checkpoint_dir) if spec.checkpoint_dir else None,
            spec.checkpoint_steps,
            spec.keep_checkpoint_max,
            spec.job_name,
            self._env.run_id,
            self._board.note,
        )
        # Metrics of a cut are those of its last record; training on makes them old.
        cutter.metrics = metrics if ledger.is_finished else {}
        evaluator = Evaluator(spec, coordinator, sources.evaluation_shards, self._board.evaluated)

        async def on_update() -> None:
            await cutter.checkpoint_if_due()
            await evaluator.begin_if_due()

        coordinator.on_update = on_update
        self._board.coordinator = coordinator
        self._manager.attach(coordinator)
        return coordinator, cutter, evaluator

    def _restore(self, store: ParameterStore, ledger: Ledger) -> dict[str, float]:
        """Go to the newest cut of this run or, with --resume, of this job."""
        spec = self._spec
        folders = [self._env.recovery_dir]
        if spec.checkpoint_dir:
            folders.append(Path(spec.checkpoint_dir))
        run_id = None if spec.resume else self._env.run_id
        for folder in folders:
            clean_up(folder)
        damaged: list[str] = []
        found = newest_cut(folders, run_id, damaged.append)
        for message in damaged:
            self._board.note("CheckpointDamaged", message)
        if found is None and damaged and spec.resume:
            raise CheckpointError(
                f"no checkpoint of {' or '.join(map(str, folders))} is usable, so there is nothing "
                f"to resume from: {damaged[0]}: start anew with --overwrite"
            )
        if found is None:
            self._settle_foreign_checkpoints()
            return {}
        path, cut = found
        if cut.ledger is None:
            raise CheckpointError(f"checkpoint {path} has no ledger: use it with --init_from")
        try:
            ledger.restore(cut.ledger)
            store.load(cut.version, cut.parameters, cut.state, cut.optimizer)
        except (LedgerError, CheckpointError) as error:
            raise CheckpointError(f"checkpoint {path} does not fit this job: {error}") from error
        if ledger.epoch > spec.num_epochs:
            raise CheckpointError(
                f"checkpoint {path} has trained {ledger.epoch} epochs, this job has "
                f"num_epochs={spec.num_epochs}: raise it"
            )
        self._board.note("Resumed", f"resumed from {path} (version {cut.version})")
        return cut.metrics

    def _settle_foreign_checkpoints(self) -> None:
        """Remove or refuse what another run has left where this one keeps its checkpoints."""
        spec = self._spec
        if spec.resume or not spec.checkpoint_dir:
            return
        folder = Path(spec.checkpoint_dir)
        if spec.overwrite:
            # Versions of theirs that ours has not reached would count as newer than ours.
            remove_all(folder)
        elif list_cuts(folder):
            raise CheckpointError(
                f"checkpoint_dir={spec.checkpoint_dir} holds checkpoints of another run: go on "
                f"from them with --resume, write over them with --overwrite, or name another folder"
            )

    async def _serve(self, coordinator: Coordinator, sources: Sources) -> grpc.aio.Server:
        sample = sample_task(self._spec, sources.shards)
        servicer = MasterServicer(coordinator, sample, self._fleet.current_launch)
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
        await cutter.final_checkpoint()
        if sources.evaluation_shards and not cutter.metrics:
            self._board.set_phase(JobPhase.RUNNING, "Evaluating", "evaluates the trained model")
            evaluated = asyncio.Event()
            evaluating = asyncio.create_task(evaluator.evaluate_final())
            evaluating.add_done_callback(lambda _: evaluated.set())
            await self._until(coordinator, evaluated)
            await evaluating
            cutter.metrics = evaluator.results
            await cutter.final_checkpoint()
        self._board.metrics = cutter.metrics
        self._tell_checkpoint(cutter)
        if self._spec.output:
            self._board.export = await self._export(coordinator)

    def _tell_checkpoint(self, cutter: Cutter) -> None:
        if cutter.newest_checkpoint is not None:
            self._board.checkpoint = str(cutter.newest_checkpoint)

    def _check_audits(self, coordinator: Coordinator) -> None:
        ledger = coordinator.ledger
        if len(ledger.audits) != self._spec.num_epochs:
            raise TrainingError(
                f"{len(ledger.audits)} of {self._spec.num_epochs} epochs were audited"
            )

    async def _export(self, coordinator: Coordinator) -> str:
        try:
            return await asyncio.to_thread(coordinator.store.model.export, self._spec.output)
        except OSError as error:
            raise JobSpecError(
                f"output={self._spec.output} cannot be written: {error.strerror or error}"
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
            await asyncio.sleep(PUBLISH_S)

    def _enter_running(self) -> None:
        coordinator, board = self._board.coordinator, self._board
        if coordinator is None or board.phase not in (JobPhase.STARTING, JobPhase.RECOVERING):
            return
        if coordinator.last_contribution_s > board.phase_since_s:
            board.set_phase(JobPhase.RUNNING)
