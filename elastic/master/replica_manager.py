"""Keeps the observed replicas as the fleet policy wants them."""

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from typing import Final

from elastic.errors import PlatformError, TrainingError
from elastic.master.coordination.running import RunningJob
from elastic.master.parameters.servers import ServerRing
from elastic.master.status_board import PAUSED, StatusBoard
from elastic.platforms.base import JobControl, Replica, ReplicaRunner
from elastic.policy.fleet import (
    FIRST_TASK,
    Action,
    Delete,
    FailJob,
    Fleet,
    Forget,
    Hang,
    Launch,
    NoteExit,
    desired_replicas,
)
from elastic.policy.replicas import ASKED_TO_END, ExitReason, ReplicaId, ReplicaPhase, exit_text
from elastic.spec.job import JobSpec
from elastic.spec.roles import FLEET, PS, REDIS, WORKER, words_of
from elastic.spec.status import JobPhase

log = logging.getLogger(__name__)

POLL_S = 0.5
SET_UP_GRACE_S = 1.0
"""For workers still in set-up when the job has its end: they hold nothing, and one may hang."""

AUTOSCALED = "Autoscaled"
PARAMETERS_LOST: Final = "ParametersLost"
"""The reason of a job that goes back to a cut within this life of the master."""

_NO_WORKERS: Final = ("NoWorkers", "no worker runs at the moment")
_OURS = frozenset(role.name for role in FLEET)
_HUNG: Final = {PS: "ServerHung", REDIS: "RedisHung"}


async def _nobody() -> None:
    """There are no servers."""


def _uncounted(_reason: ExitReason | None) -> None:
    pass


class ReplicaManager:
    """A thread that observes and acts; what to do is decided on the event loop.

    Observing and acting may take seconds on a cluster, and must not hold up the calls of workers.
    """

    def __init__(
        self,
        spec: JobSpec,
        runner: ReplicaRunner,
        room: int | None,
        fleet: Fleet,
        board: StatusBoard,
        on_cancelled: Callable[[], None],
        on_exit: Callable[[ExitReason | None], None] = _uncounted,
        rings: Mapping[str, ServerRing] | None = None,
    ) -> None:
        """Keep the parts.

        Args:
            room: How many workers the platform has room for, as far as it can tell.
            on_cancelled: Told, again and again, that the user wants the job to end.
            on_exit: Told why each worker has ended.
            rings: The servers that there are, by their roles; None where there are none.
        """
        self._spec = spec
        self._runner = runner
        self._room = room
        self._fleet = fleet
        self._board = board
        self._on_cancelled = on_cancelled
        self._job: RunningJob | None = None
        self._loop = asyncio.get_running_loop()
        self._stopping = threading.Event()
        self._is_away = False
        self._noted_waits: set[ReplicaId] = set()
        self._thread = threading.Thread(target=self._run, name="replica-manager", daemon=True)
        self._on_exit = on_exit
        self._rings = rings or {}
        self.failed = asyncio.Event()
        self.failure: Exception | None = None

    def start(self) -> None:
        """Begin to launch replicas."""
        self._thread.start()

    def attach(self, job: RunningJob) -> None:
        """Tell who leases to the workers, once the model is built."""
        self._job = job

    async def stop(self) -> None:
        """Launch nothing any more."""
        self._stopping.set()
        await asyncio.to_thread(self._thread.join)

    async def wait_for_exits(
        self, timeout_s: float, dismiss_servers: Callable[[], Awaitable[None]] = _nobody
    ) -> None:
        """Wait until no replica runs, so that their last words are in the logs.

        Args:
            timeout_s: How long; parameter servers are given as long once more, and then ended.
            dismiss_servers: Tells parameter servers to leave, which workers may need to the last.
        """
        dismissed: set[ReplicaId] = set()
        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s:
            alive = await self._look_who_leaves(dismissed)
            if alive is not None and all(replica.role == PS for replica in alive):
                break
        # A worker that takes longer to leave has done its work. Servers are told again and again:
        # one that did not hear it would wait for the master for as long as that may be away.
        deadline_s = time.monotonic() + timeout_s
        servers: list[ReplicaId] = []
        while time.monotonic() < deadline_s:
            await dismiss_servers()
            alive = await self._look_who_leaves(dismissed)
            if alive is not None:
                servers = [replica for replica in alive if replica.role == PS]
                if not servers:
                    return
        for server in servers:
            log.warning("%s does not leave by itself, and is ended", server.name)
            await self._end(server)

    async def _look_who_leaves(self, dismissed: set[ReplicaId]) -> list[ReplicaId] | None:
        """Have what is still starting end, and wait a moment where anything runs.

        Returns:
            What runs; None where the platform does not say.
        """
        try:
            replicas = await asyncio.to_thread(self._runner.observe)
            await self._dismiss_starting(replicas, dismissed)
            self._board.replicas = tuple(replicas)
            alive = [replica.id for replica in replicas if not replica.phase.is_final]
            if alive:
                await asyncio.to_thread(self._runner.wait, POLL_S)
        except PlatformError as error:
            # The job has its end already; only its replicas' last words are not seen.
            log.warning("%s", error)
            await asyncio.sleep(POLL_S)
            return None
        return alive

    async def _end(self, replica: ReplicaId) -> None:
        try:
            await asyncio.to_thread(self._runner.delete, replica, SET_UP_GRACE_S)
        except PlatformError as error:
            log.warning("%s", error)

    async def _dismiss_starting(
        self, replicas: Sequence[Replica], dismissed: set[ReplicaId]
    ) -> None:
        """End what has not asked for a task yet, each once."""
        alive = {replica.id for replica in replicas if not replica.phase.is_final}
        for replica in alive - dismissed:
            if not self._is_at_work(replica):
                self._board.asked_to_end.add(replica)
                await asyncio.to_thread(self._runner.delete, replica, SET_UP_GRACE_S)
                dismissed.add(replica)

    def _is_at_work(self, replica: ReplicaId) -> bool:
        if replica.role == PS and PS in self._rings:
            return any(life.replica == replica for life in self._rings[PS].lives())
        job = self._job
        return job is not None and job.sessions.liveness.is_at_work(replica)

    # -- on the manager's thread ---------------------------------------------------------------

    def _run(self) -> None:
        is_first = True
        while not self._stopping.is_set():
            try:
                observed = self._runner.observe()
                control = self._runner.control()
                deciding = asyncio.run_coroutine_threadsafe(
                    self._decide(observed, control, is_first), self._loop
                )
                is_first = False
                self._act_all(deciding.result())
                self._note_platform(None)
                self._runner.wait(POLL_S)
            except PlatformError as error:
                # Nothing healthy is touched while the platform is away; the next look decides.
                self._note_platform(error)
                self._stopping.wait(POLL_S)
            except CancelledError:
                return
            except Exception as error:  # noqa: BLE001 - or the job would "run" without anybody
                # The master ends by it, and its supervisor counts that: the next may do better.
                self._loop.call_soon_threadsafe(self._fail, error)
                return

    def _note_platform(self, error: PlatformError | None) -> None:
        """Tell that the platform is away or back, once for each outage."""
        if self._is_away == (error is not None):
            return
        self._is_away = error is not None
        kind = "PlatformBack" if error is None else "PlatformAway"
        message = "the platform answers again" if error is None else str(error)
        self._loop.call_soon_threadsafe(self._board.note, kind, message)

    def _act_all(self, actions: Sequence[Action]) -> None:
        """Do everything that can be done, and only then tell what could not."""
        failure: PlatformError | None = None
        for action in actions:
            try:
                self._act(action)
            except PlatformError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def _act(self, action: Action) -> None:
        match action:
            case Launch(replica):
                self._runner.launch(replica)
            case Delete(replica, grace_s):
                self._runner.delete(replica, grace_s)
            case Forget(replica):
                self._runner.forget(replica)

    # -- on the event loop ---------------------------------------------------------------------

    def _fail(self, error: Exception) -> None:
        self.failure = self.failure or error
        self.failed.set()

    async def _decide(
        self, observed: Sequence[Replica], control: JobControl, is_first: bool
    ) -> list[Action]:
        if is_first:
            self._fleet.adopt_exits(observed, self._board.has_told_end)
        self._board.replicas = tuple(observed)
        if control.cancelled:
            self._on_cancelled()
            return []
        if self.failed.is_set():
            return []
        desired = desired_replicas(self._spec, control.num_workers, self._room)
        self._note_autoscaling(control, desired[WORKER])
        self._board.desired_workers = desired[WORKER]
        fenced = self._fence_hung(observed)
        planned = self._fleet.plan(observed, desired, time.monotonic())
        for action in planned:
            self._note(action, desired)
        self._board.worker_failures = self._fleet.failures(WORKER)
        self._note_absence(observed, control)
        self._note_waits(observed)
        return fenced + planned

    def _note_autoscaling(self, control: JobControl, wanted: int) -> None:
        """Tell why there are to be more or fewer, unless a life before this one has."""
        if control.autoscaled_for:
            workers = "1 worker" if wanted == 1 else f"{wanted} workers"
            message = f"{workers} from now on: {control.autoscaled_for}"
            if message != self._board.last_note(AUTOSCALED):
                self._board.note(AUTOSCALED, message)

    def _note(self, action: Action, desired: Mapping[str, int]) -> None:
        match action:
            case NoteExit(replica, is_failure):
                wanted = replica.id.index < desired[replica.id.role]
                self._note_exit(replica, is_failure, wanted)
            case FailJob(reason, message):
                self._fail(TrainingError(message, reason))
            case Launch(replica) if replica.launch > 1:
                message = f"{replica.name} is started again (launch {replica.launch})"
                self._board.note(words_of(replica.role).started_again, message)
            # One that is slow to leave is asked again and again, and told of once.
            case Delete(replica, _) if replica not in self._board.asked_to_end:
                self._board.asked_to_end.add(replica)
                message = f"{replica.name} is asked to end"
                self._board.note(words_of(replica.role).scaled_away, message)

    def _note_exit(self, replica: Replica, is_failure: bool, wanted: bool) -> None:
        how = exit_text(replica)
        # Kubernetes does not always tell how a pod ended that was asked to, see `exits`.
        was_asked = (
            replica.id in self._board.asked_to_end and replica.exit_reason is ExitReason.KILLED
        )
        has_left = was_asked or (replica.exit_reason is ExitReason.COMPLETED and not wanted)
        self._board.lost[replica.id.role] += not has_left
        if (ring := self._rings.get(replica.id.role)) is not None:
            ring.gone(replica.id)
        self._board.last_exits[replica.id.name] = ASKED_TO_END if has_left else how
        if replica.id.role == WORKER:
            self._on_exit(replica.exit_reason)
            self._lose_worker(replica.id)
        words = words_of(replica.id.role)
        if has_left:
            self._board.note(words.left, f"{replica.id.name} has left")
        else:
            kind = words.failed if is_failure else words.lost
            self._board.note(kind, f"{replica.id.name} {how}")

    def _lose_worker(self, worker: ReplicaId) -> None:
        """Take back what a worker held, which no other role has."""
        if self._job is not None:
            self._job.tasks.lose(worker)

    def _fence_hung(self, observed: Sequence[Replica]) -> list[Action]:
        actions: list[Action] = []
        running = [r.id for r in observed if r.phase is ReplicaPhase.RUNNING]
        for role, ring in self._rings.items():
            servers = [replica for replica in running if replica.role == role]
            for server, how in ring.to_replace(servers):
                ring.fence(server)
                self._board.note(_HUNG[role], f"{server.name} {how} and is replaced")
                actions.append(Delete(server, 0.0))
        if self._job is None:
            return actions
        self._job.sessions.liveness.observed_running(
            [replica for replica in running if replica.role == WORKER], time.monotonic()
        )
        for hang in self._job.sessions.hangs():
            self._job.tasks.lose(hang.worker)
            message = f"{hang.worker.name} {_describe_hang(hang)} and is replaced"
            self._board.note("WorkerHung", message)
            actions.append(Delete(hang.worker, 0.0))
        return actions

    def _note_absence(self, observed: Sequence[Replica], control: JobControl) -> None:
        """Tell that nobody trains, and whether somebody wants it so."""
        board, job = self._board, self._job
        if job is None or job.sessions.all():
            return
        if not all(r.phase.is_final for r in observed if r.id.role == WORKER):
            return
        if board.phase is JobPhase.RUNNING:
            board.set_phase(JobPhase.RECOVERING, *_NO_WORKERS)
        if board.phase not in (JobPhase.STARTING, JobPhase.RECOVERING):
            return
        if not board.desired_workers:
            why = control.autoscaled_for or "as its user has asked for"
            board.explain(PAUSED, f"goes on when it is to have workers again: {why}")
        elif board.reason == PAUSED:
            board.explain(*_NO_WORKERS)

    def _note_waits(self, observed: Sequence[Replica]) -> None:
        """Tell once of each launch that it cannot start yet, and why the job stands still."""
        board = self._board
        ours = [r for r in observed if r.id.role in _OURS]
        waiting = [r for r in ours if r.phase is ReplicaPhase.PENDING and r.message]
        for replica in waiting:
            if replica.id not in self._noted_waits:
                message = f"{replica.id.name} waits: {replica.message}"
                board.note(words_of(replica.id.role).waiting, message)
        self._noted_waits |= {replica.id for replica in waiting}
        if board.phase not in (JobPhase.STARTING, JobPhase.RECOVERING):
            return
        if self._job is None:
            # Until the master is ready, it is what the job waits for.
            return
        servers = [replica for replica in waiting if replica.id.role in self._rings]
        is_at_work = any(r.phase is ReplicaPhase.RUNNING for r in observed if r.id.role == WORKER)
        if servers:
            # However many workers run, nothing is trained without all of them.
            board.explain("ServersPending", f"{servers[0].id.name}: {servers[0].message}")
        elif is_at_work and board.reason != PARAMETERS_LOST:
            board.explain("", "")
        elif waiting:
            board.explain("WorkersPending", f"{waiting[0].id.name}: {waiting[0].message}")


def _describe_hang(hang: Hang) -> str:
    if hang.what == FIRST_TASK:
        return f"hung in set-up: no first task within start_timeout={hang.limit_s:g} s"
    return f"gave no {hang.what} for {hang.silent_s:.1f} s (limit {hang.limit_s:.1f} s)"
