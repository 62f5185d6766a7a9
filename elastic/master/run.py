"""The life of one master: prepare, serve, finish."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Final

import grpc

from elastic.checkpoints.destinations import check_destinations
from elastic.errors import ElasticError, JobSpecError, TrainingError, UserError
from elastic.master.coordination.running import Listeners, RunningJob
from elastic.master.coordination.updates import CommitLog
from elastic.master.kinds.beginning import (
    check_store,
    open_tables,
    told_of_tables,
    with_group_of_cut,
)
from elastic.master.kinds.one_pass import open_one_pass, pinned
from elastic.master.kinds.preparation import (
    JobParts,
    Preparation,
    Sources,
    Work,
    build_store,
    check_evaluation,
    check_sources,
    choose_sample,
    total_updates,
)
from elastic.master.kinds.training import open_training
from elastic.master.parameters.rows import never_reached, row_store
from elastic.master.parameters.servers import ServerRing, dismiss
from elastic.master.parameters.store import ParameterStore, Watched, unwatched
from elastic.master.parameters.strategy import ParametersLostError
from elastic.master.parameters.tables import Tables
from elastic.master.replica_manager import PARAMETERS_LOST, ReplicaManager
from elastic.master.servicer import MasterServicer, Reception
from elastic.master.status_board import StatusBoard
from elastic.master.telemetry import Telemetry
from elastic.platforms.base import Fence, FencedError
from elastic.platforms.registry import MasterEnvironment
from elastic.policy.fleet import Fleet, FleetRules
from elastic.policy.replicas import KEEPING, PREPARING
from elastic.policy.tasks.epochs import Ending
from elastic.policy.tasks.records import Task
from elastic.rows.base import RowsLostError
from elastic.rpc.network import SocketListeners
from elastic.rpc.server import SERVER_OPTIONS, MasterHandler, fenced
from elastic.rpc.wire import add_port
from elastic.spec.model_def import user_traceback
from elastic.spec.platforms import JobKind
from elastic.spec.roles import PS, REDIS, WORKER
from elastic.spec.status import JobPhase

log = logging.getLogger(__name__)

ROWS_LEFT: Final = "RowsLeft"
PUBLISH_S: Final = 0.25
STOP_S: Final = 0.1
FAREWELL_S: Final = 10.0
"""How long ended workers may take to exit by themselves."""


def _untold(_kind: str, _message: str) -> None:
    pass


def _check_may_answer(fence: Fence) -> None:
    try:
        fence.check()
    except FencedError as error:
        raise fenced(str(error)) from error


class Cancelled(Exception):  # noqa: N818 - no error: the user asked for it
    """`elastic kill` was called."""


class Master:
    """Owns the parts of a running job and the order in which they start and stop."""

    def __init__(
        self, environment: MasterEnvironment, board: StatusBoard, watched: Watched = unwatched
    ) -> None:
        """Take what the platform gives, and what looks at the work on parameters; see `open`."""
        self._env = environment
        self._watched = watched
        self._spec = environment.spec
        self._board = board
        self._is_first_life = self._board.phase is JobPhase.STARTING
        self._telemetry = Telemetry(environment, self._board, self._is_first_life)
        self._commit_log = CommitLog(environment.spec.commit_log)
        self._cancelled = asyncio.Event()
        self._work: Work | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._tables: Tables | None = None
        self._metric_names: Sequence[str] = ()
        self._preparation = Preparation(
            environment.spec.start_timeout,
            environment.step_path,
            partial(self._board.explain, PREPARING),
        )
        spec = self._spec
        self._fleet = Fleet(
            FleetRules.of(spec),
            {WORKER: self._board.worker_failures},
            taken=environment.taken_launches,
        )
        servers = ((PS, spec.num_ps), (REDIS, spec.num_redis))
        self._rings = {
            role: ServerRing(number, spec.start_timeout) for role, number in servers if number
        }
        self._ring = self._rings.get(PS)
        self._reception = Reception(self._rings, self._fleet.current_launch)
        self._listeners = SocketListeners()
        self._manager = ReplicaManager(
            spec,
            environment.runner,
            environment.room,
            self._fleet,
            self._board,
            self._cancelled.set,
            self._telemetry.exited,
            self._rings,
        )

    @classmethod
    def open(cls, environment: MasterEnvironment, watched: Watched = unwatched) -> "Master":
        """The master of a job, which goes on from what is published of it."""
        board = StatusBoard.open(
            environment.spec, environment.runner, environment.master_history, environment.last_end
        )
        return cls(environment, board, watched)

    async def run(self) -> JobPhase:
        """Run the job to its end; returns the final phase, which has been published."""
        publishing = asyncio.create_task(self._publish_for_ever())
        self._prepare_departure()
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

    def _prepare_departure(self) -> None:
        departure = self._env.departure
        if departure is None:
            return
        loop, leaving = asyncio.get_running_loop(), set[asyncio.Task[None]]()

        async def leave() -> None:
            try:
                if self._work is not None:
                    await self._leave(self._work)
                    self._board.publish()
            finally:
                departure.be_ready()

        def on_asked() -> None:
            loop.call_soon_threadsafe(lambda: leaving.add(asyncio.create_task(leave())))

        departure.prepare(on_asked)

    async def _leave(self, work: Work) -> None:
        """Keep what would be lost with this master, once, whoever asks for it."""
        if self._leaving is None:
            self._leaving = asyncio.create_task(work.leave())
        await asyncio.shield(self._leaving)

    async def _work_to_end(self, work: Work) -> None:
        """Have all work done; of a job that its user ends, its newest version is kept."""
        try:
            await work.run(partial(self._until, work.job))
        except Cancelled:
            if self._env.keeps_versions and work.job.ledger.total_done:
                await self._keep_newest(work)
            raise

    async def _keep_newest(self, work: Work) -> None:
        self._board.explain(KEEPING, "cancelled by its user; its newest version is kept first")
        try:
            await self._leave(work)
        except (ParametersLostError, RowsLostError) as error:
            self._board.note("CheckpointFailed", f"the newest version could not be kept: {error}")
        # Nothing counts that is in no cut, and workers hear so instead of waiting for the lock.
        work.job.updates.close()
        work.job.parameters.lock.release()

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
        spec = await asyncio.to_thread(pinned, self._env)
        note = self._board.note if self._is_first_life else _untold
        self._spec = await asyncio.to_thread(with_group_of_cut, self._env, spec, note)
        sources = await self._preparation.run(
            partial(check_sources, self._spec, self._preparation.at)
        )
        # Workers need seconds to import their framework: they start while the model is built.
        self._manager.start()
        try:
            sample = await self._preparation.run(
                partial(choose_sample, self._spec, sources, self._preparation.at)
            )
            store = await self._build_store(sources, sample)
            work = await self._serve_through(sources, sample, store)
        finally:
            await self._manager.stop()
        job = work.job
        # Told last, so that whoever waits for it finds nothing of the job still running.
        ending = job.updates.ending or Ending("Succeeded", "every record has counted")
        self._board.set_phase(JobPhase.SUCCEEDED, ending.reason, ending.message)

    async def _serve_through(self, sources: Sources, sample: Task, store: ParameterStore) -> Work:
        """Open the job, and answer its calls until it has come to its end."""
        # After any other error than those below the next master needs the workers, which wait.
        async with AsyncExitStack() as serving:
            if REDIS in self._rings:
                # Which has to say where it is before the job can be opened.
                await self._serve(serving)
                await self._wait_for_redis()
            work = self._work = await self._open(sources, store)
            self._end_preparation()
            if REDIS not in self._rings:
                await self._serve(serving)
            try:
                work = await self._work_through(work, sources, sample, store)
            except (UserError, Cancelled):
                await self._dismiss_workers(self._work.job)
                raise
            await self._dismiss_workers(work.job)
            return work

    async def _wait_for_redis(self) -> None:
        """Wait until the job's Redis serves, or for what ends the job before."""
        self._preparation.at("the job's Redis")
        waits: list[asyncio.Future[object]] = [
            asyncio.ensure_future(waiting)
            for waiting in (
                self._rings[REDIS].complete(),
                self._manager.failed.wait(),
                self._cancelled.wait(),
            )
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiting in waits:
                waiting.cancel()
        self._raise_end()

    async def _work_through(
        self, work: Work, sources: Sources, sample: Task, store: ParameterStore
    ) -> Work:
        """Work to the end, from a cut again each time that some of the newest version is lost.

        Returns:
            The work that has come to its end.
        """
        total_steps = total_updates(self._spec, sources.shards)
        while True:
            job = work.job
            servicer = MasterServicer(
                job,
                sample,
                self._fleet.current_launch,
                work.prediction_dir,
                total_steps,
                self._listeners.proof,
            )
            try:
                try:
                    await self._start(work)
                    self._reception.open(servicer)
                    await self._work_to_end(work)
                except ParametersLostError as lost:
                    work = self._work = await self._go_back(work, lost, sources, store)
                else:
                    return work
            except (UserError, Cancelled):
                # So that workers hear that there is nothing left to do.
                self._reception.open(servicer)
                raise

    async def _start(self, work: Work) -> None:
        """Bring the parameters to where workers find them, unless the job ends before."""
        if self._ring is None:
            return
        starting = asyncio.ensure_future(work.job.parameters.start())
        started = asyncio.Event()
        starting.add_done_callback(lambda _: started.set())
        try:
            await self._until(work.job, started)
            await starting
        finally:
            starting.cancel()

    async def _go_back(
        self, work: Work, lost: ParametersLostError, sources: Sources, store: ParameterStore
    ) -> Work:
        """Begin the job again with its newest cut; processes, model and records stay."""
        self._reception.close()
        message = f"{lost}: the job goes back to its newest cut"
        self._board.note(PARAMETERS_LOST, message)
        self._board.set_phase(JobPhase.RECOVERING, PARAMETERS_LOST, message)
        await work.abandon()
        self._board.follow_tables(None)
        if REDIS in self._rings:
            await self._wait_for_redis()
        return await self._open(sources, store, is_back=True)

    async def _dismiss_workers(self, job: RunningJob) -> None:
        job.tasks.close()
        await self._manager.stop()
        await self._erase_rows()
        if not self._cancelled.is_set():
            await self._manager.wait_for_exits(FAREWELL_S, self._dismiss_servers)

    async def _dismiss_servers(self) -> None:
        if self._ring is not None:
            await dismiss(self._ring, self._env.token, self._env.certificate)

    async def _erase_rows(self) -> None:
        """Leave nothing in a server that is others' too: the job's end is in its checkpoints."""
        if self._tables is None or not self._spec.embedding_redis_url:
            return
        try:
            await asyncio.to_thread(self._tables.store.erase)
        except ElasticError as error:
            self._board.note(ROWS_LEFT, f"rows of embeddings are left behind: {error}")

    def _end_preparation(self) -> None:
        self._preparation.end()
        self._board.explain("", "")

    async def _build_store(self, sources: Sources, sample: Task) -> ParameterStore:
        spec, run, at = self._spec, self._preparation.run, self._preparation.at
        store = await run(partial(build_store, spec, sources, sample, at, self._watched))
        if self._is_first_life:
            check_store(spec, store.model)
            for kind, message in told_of_tables(spec, store.model):
                self._board.note(kind, message)
        return store

    async def _open(
        self, sources: Sources, store: ParameterStore, *, is_back: bool = False
    ) -> Work:
        """Make what the job needs to do its work, from its newest cut.

        Args:
            is_back: The job has been at work before in this life, and has nothing but its cut.
        """
        spec, run, at = self._spec, self._preparation.run, self._preparation.at
        parts = JobParts(
            self._env,
            spec,
            self._board,
            self._telemetry,
            self._commit_log,
            self._preparation,
            self._is_first_life and not is_back,
            Listeners(
                self._board.note,
                self._fleet.made_progress,
                self._telemetry.meter,
            ),
            self._ring,
            self._fleet.made_progress,
            is_back,
            await run(partial(self._open_tables, sources, store)),
        )
        if not is_back:
            # Once: a model that goes back would look up rows where they have just been lost.
            check = partial(check_evaluation, spec, sources, store.model, at)
            self._metric_names = await run(check)
        work: Work
        if spec.kind is JobKind.TRAIN:
            work = await open_training(parts, sources, store, self._metric_names)
        else:
            work = await open_one_pass(parts, sources, store)
        self._board.follow(work.job)
        self._manager.attach(work.job)
        return work

    def _open_tables(self, sources: Sources, store: ParameterStore) -> Tables | None:
        """The tables of the model, with rows as their store has them; what was open is closed."""
        if self._tables is not None:
            self._tables.store.close()
        is_first = self._is_first_life and self._tables is None
        open_store = partial(row_store, self._spec, self._env, self._rings.get(REDIS))
        try:
            self._tables = open_tables(
                self._spec, sources.model_def, store, self._preparation.at, open_store
            )
        except RowsLostError as error:
            if is_first and self._spec.embedding_redis_url:
                raise never_reached(error) from error
            raise
        return self._tables

    async def _serve(self, serving: AsyncExitStack) -> None:
        """Answer calls until `serving` is left."""
        server = grpc.aio.server(options=SERVER_OPTIONS)
        guard = partial(_check_may_answer, self._env.fence)
        handler = MasterHandler(self._reception, self._env.token, guard)
        server.add_generic_rpc_handlers((handler,))
        host, port = self._env.host, self._spec.master_port
        try:
            bound = add_port(server, f"{host}:{port}", self._env.certificate)
        except RuntimeError as error:
            raise JobSpecError(
                f"master_port={port} is in use on {host}: choose another, or 0 for a free one"
            ) from error
        await server.start()
        serving.push_async_callback(server.stop, STOP_S)
        own = self._env.calls_port
        listening = self._listeners.start(
            handler, self._env.token, self._env.certificate, host, own.bound
        )
        if await listening and own.told:
            self._listeners.proof.calls_port = own.told
        serving.push_async_callback(self._listeners.stop, STOP_S)
        await asyncio.to_thread(self._env.runner.publish_address, f"{host}:{bound}")

    async def _until(self, job: RunningJob, event: asyncio.Event) -> None:
        """Wait for an event, or for whatever ends the job before."""
        waits: list[asyncio.Future[object]] = [
            asyncio.ensure_future(waiting)
            for waiting in (
                event.wait(),
                job.failure.event.wait(),
                self._manager.failed.wait(),
                self._reception.failed.wait(),
                self._cancelled.wait(),
                job.parameters.lost(),
            )
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            lost = waits[-1].result() if waits[-1].done() else None
        finally:
            for waiting in waits:
                waiting.cancel()
        if job.failure.error is not None and not self._cancelled.is_set():
            raise job.failure.error
        self._raise_end()
        if lost is not None and not event.is_set():
            raise ParametersLostError(str(lost))

    def _raise_end(self) -> None:
        if self._cancelled.is_set():
            raise Cancelled
        if self._manager.failure is not None:
            raise self._manager.failure
        if self._reception.failure is not None:
            raise self._reception.failure

    async def _publish_for_ever(self) -> None:
        while True:
            self._enter_running()
            self._board.publish()
            self._telemetry.look()
            await asyncio.sleep(PUBLISH_S)

    def _enter_running(self) -> None:
        job, board = self._board.job, self._board
        if job is None or board.phase not in (JobPhase.STARTING, JobPhase.RECOVERING):
            return
        if job.sessions.last_contribution_s > board.phase_since_s:
            board.set_phase(JobPhase.RUNNING)
