"""A master's life in its pod: how earlier ones ended, what the pod gives it, and what ends it.

Whatever a master died of, it is started again, by the first process of its container or by the
kubelet, and for ever. So each life looks, before it does anything else, how those before have
ended: it gives up where their end will repeat, and waits where they came too fast.
"""

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from elastic.errors import PlatformError
from elastic.platforms.base import NO_FENCE, FencedError, ReplicaRunner, StatusRefusedError
from elastic.platforms.kubernetes import masters, pods
from elastic.platforms.kubernetes.api.cluster import Cluster, Lease, RefusedError, connect_from_pod
from elastic.platforms.kubernetes.api.resources import PODS, Manifest
from elastic.platforms.kubernetes.api.transport import pod_access
from elastic.platforms.kubernetes.master.runner import PATIENCE_S as REQUEST_PATIENCE_S
from elastic.platforms.kubernetes.master.runner import KubernetesReplicaRunner
from elastic.platforms.kubernetes.objects import manifests, names
from elastic.platforms.kubernetes.objects.manifests import MASTER_REPLICA, calls_port
from elastic.platforms.kubernetes.objects.podspec import Job, keeps_versions
from elastic.platforms.kubernetes.pods import last_terminated, own_status
from elastic.platforms.kubernetes.supervisor import ACCOUNT_NAME, ERROR, Life, LifeLog
from elastic.platforms.kubernetes.surroundings import PodSurroundings, variable
from elastic.platforms.process import STEP_NAME, read_step
from elastic.platforms.registry import CallsPort, Departure, MasterEnvironment
from elastic.policy.replicas import EndJob, RestartMaster, exit_text, on_exit
from elastic.spec.job import JobSpec
from elastic.spec.settings.cluster import state_volume
from elastic.spec.status import JobPhase, JobStatus, MasterHistory

logger = logging.getLogger(__name__)

NODE_TELLS_S: Final = 5.0
"""How long a node may take to tell of a container's end after it has started the next."""

POLL_S: Final = 0.25
_UNKNOWN_END: Final[dict[str, Any]] = {"exitCode": 137, "reason": ERROR}
"""Of a life that ended with its container, of which the cluster keeps the newest end alone."""


class Account(BaseModel):
    """What all ends so far come to.

    Attributes:
        counted: How many lives are in it, from the first.
        last_end: How the newest of those ended that were added last; empty where none was.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    counted: int = 0
    history: MasterHistory = MasterHistory()
    last_end: str = ""


def begin_life(
    state_path: Path, read_pod: Callable[[], Manifest], runner: ReplicaRunner, spec: JobSpec
) -> Account | None:
    """Wait for this life's turn; None where no life will do any better, and the job has its end.

    Args:
        state_path: Folder that outlives the container.
        read_pod: Reads the master's own.
        runner: Started.
        spec: Of the job.

    Raises:
        PlatformError: The status cannot be read or written.
    """
    lives = LifeLog(state_path).read()
    pod = _pod_that_tells(read_pod, lives)
    status = runner.last_status()
    if status is not None and status.phase.is_final:
        # Whoever made this master had not seen it yet.
        return None
    account = _read(state_path / ACCOUNT_NAME, status)
    account, verdict = take_account(
        account, lives, pod, status, runner.control().cancelled, read_step(state_path / STEP_NAME)
    )
    end = _too_late(pod, status, spec.start_timeout) or verdict
    if isinstance(end, EndJob):
        _publish(end, status, runner, spec)
        return None
    # Not before: an end that could not be published is found again.
    _write(state_path / ACCOUNT_NAME, account)
    if end is not None:
        _wait(end.delay_s, lives, status, runner)
    return account


def take_account(
    account: Account,
    lives: list[Life],
    pod: Manifest,
    status: JobStatus | None,
    cancelled: bool,
    step: str = "",
) -> tuple[Account, RestartMaster | EndJob | None]:
    """Add the ends that are not in it, and choose what follows the newest; None without any.

    Args:
        account: Of earlier lives.
        lives: As their container's first process has written them down, the present one last.
        pod: The master's.
        status: What was published last, by any of them.
        cancelled: The user has ended the job.
        step: Of the preparation in which the newest has ended; empty where in none.
    """
    verdict: RestartMaster | EndJob | None = None
    history, last_end = account.history, ""
    earlier = lives[:-1] if lives and lives[-1].terminated is None else lives
    for life in earlier[account.counted :]:
        ended = pods.ended_as(pod, MASTER_REPLICA, _terminated(life, lives, pod))
        history, verdict = on_exit(history, ended, status, cancelled, step)
        last_end = exit_text(ended)
    counted = max(len(earlier), account.counted)
    return Account(counted=counted, history=history, last_end=last_end), verdict


def _terminated(life: Life, lives: list[Life], pod: Manifest) -> dict[str, Any]:
    if life.terminated is not None:
        return life.terminated
    containers = list(dict.fromkeys(each.container for each in lives))
    if life.container in containers[-2:-1]:
        return last_terminated(pod) or _UNKNOWN_END
    return _UNKNOWN_END


def _pod_that_tells(read_pod: Callable[[], Manifest], lives: list[Life]) -> Manifest:
    """The pod, once its node has told of the containers before the present one."""
    num_restarts = len({life.container for life in lives}) - 1
    deadline_s = time.monotonic() + NODE_TELLS_S
    while True:
        pod = read_pod()
        told = own_status(pod).get("restartCount", 0)
        if told >= num_restarts or time.monotonic() > deadline_s:
            return pod
        time.sleep(POLL_S)


def _too_late(pod: Manifest, status: JobStatus | None, timeout_s: float) -> EndJob | None:
    """The end of a job that everybody else has taken for failed by now."""
    if masters.job_has_begun(status) or not masters.has_missed_its_start(
        pod, timeout_s, time.time()
    ):
        return None
    finding = masters.too_late(pod, timeout_s, "")
    return EndJob(finding.phase, finding.reason, finding.message)


def _publish(end: EndJob, status: JobStatus | None, runner: ReplicaRunner, spec: JobSpec) -> None:
    if end.phase is None:
        return
    base = status or JobStatus(job_name=spec.job_name)
    ended = base.entering(end.phase, end.reason, end.message, ended_s=time.time())
    try:
        runner.publish_status(ended)
    except StatusRefusedError as error:
        # The pod tells it, if this life ends well.
        logger.warning("%s", error)


def _wait(
    delay_s: float, lives: list[Life], status: JobStatus | None, runner: ReplicaRunner
) -> None:
    """Let the time pass that is to lie between two lives, or until the job is cancelled."""
    ended_s = next((life.ended_s for life in reversed(lives) if life.ended_s is not None), None)
    until_s = (time.time() if ended_s is None else ended_s) + delay_s
    if until_s - time.time() > 1.0 and status is not None:
        message = f"the master has ended too often, and goes on in about {delay_s:g} s"
        runner.publish_status(status.entering(JobPhase.RECOVERING, "MasterLost", message))
    while time.time() < until_s and not runner.control().cancelled:
        time.sleep(POLL_S)


def _read(path: Path, status: JobStatus | None) -> Account:
    """The account of earlier lives; of those in another pod only what they published is left."""
    try:
        return Account.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        told = status if masters.job_has_begun(status) else None
        return Account() if told is None else Account(history=told.master_history)
    except (OSError, ValidationError) as error:
        # Only counts are lost with it: the job may restart more often than it would have.
        logger.warning("%s cannot be read: %s", path, error)
        return Account()


def _write(path: Path, account: Account) -> None:
    try:
        path.write_text(account.model_dump_json(), encoding="utf-8")
    except OSError as error:
        raise PlatformError(f"cannot write {path}: {error.strerror}") from error


# What the pod of a master gives it, and what it does when that pod is deleted.
#
# It keeps its last version, and takes its workers along. Kubernetes would remove those as well, but
# only when the master's pod is gone, which a kubelet may take ten seconds to report, and each with
# a grace in which it would look for its master. Where a resource has the pod made again, the
# workers stay, and wait for the next master, which may begin at once.
#
# There such a master has a fence: a Lease, which one of them holds at a time.


T = TypeVar("T")

DURATION_S: Final = 15
"""Of the lease: what a master that is lost for good costs the next one."""

RENEW_S: Final = 3.0
RETRY_S: Final = 1.0
"""Between two tries of who waits for a lease or an API server, and of who could not renew."""

MARGIN_S: Final = 4.0
"""A master acts no more so long before the lease ends: for what it has sent and has not arrived,
and for what it has checked and not done yet."""

TIMEOUT_S: Final = 3.0
"""For an answer about the lease; a connection that died in silence costs one renewal."""

LEAVE_PATIENCE_S: Final = 6.0
"""For the API server to say whether the pod is to go."""

SPARE_S: Final = 4.0
"""Of the pod's grace, for the workers' end; after it, Kubernetes does it its own way."""

START_PATIENCE_S: Final = 600.0
"""How long a master that begins waits for an API server: a restart would only begin again."""

REPLACED_CODE: Final = 3
"""The exit code of a master that another one has replaced."""


class LeaseFence:
    """Lets its master act while that holds the lease, and ends it when another has taken it.

    While the API server is away nobody can renew, and nobody can take the lease either: the master
    pauses, and goes on where it finds the lease its own.
    """

    def __init__(
        self,
        lease: Lease,
        on_lost: Callable[[], None],
        is_current: Callable[[], bool],
        renew_s: float = RENEW_S,
        retry_s: float = RETRY_S,
        margin_s: float = MARGIN_S,
    ) -> None:
        """Keep the parts; nothing is sent before `acquire`.

        Args:
            lease: Not used by anybody else; its identity is that of the master's pod.
            on_lost: Called once, on a thread of the fence, when another master has the lease, or
                is to have it.
            is_current: Asked for each renewal: whether the API server still knows this master's
                pod. One that it has forgotten, of a node that its kubelet has left, may live on for
                ever, and must not keep its successor waiting.
            renew_s: See `RENEW_S`; several times within the lease's duration.
            retry_s: See `RETRY_S`.
            margin_s: See `MARGIN_S`.
        """
        self._lease = lease
        self._on_lost = on_lost
        self._is_current = is_current
        self._renew_s = renew_s
        self._retry_s = retry_s
        self._margin_s = margin_s
        # A lease is no matter of two threads, and who lets it go is another one than who renews.
        self._trying = threading.Lock()
        self._released = threading.Event()
        self._is_in_contact = True

    @property
    def has_predecessor(self) -> bool:
        """Whether a master in another pod has held the lease before."""
        return self._lease.term > 0

    def acquire(self) -> None:
        """Wait until no other master holds the lease, and have it renewed from then on.

        Raises:
            FencedError: This master's pod is gone; its end has been asked for.
            PlatformError: The API server is away or refuses; it may be tried again.
        """
        is_told = False
        while not self._try_first():
            if not is_told:
                logger.info("waits until the master before this one holds the lease no more")
                is_told = True
            self._released.wait(self._retry_s)
        logger.info("holds the lease of the job's master, term %d", self._lease.term)
        threading.Thread(target=self._renew_for_ever, name="renew lease", daemon=True).start()

    def _try_first(self) -> bool:
        # A container of a forgotten pod is started again as any other, and the lease may be its
        # own still.
        if not self._is_current():
            self._on_lost()
            raise FencedError("the pod of this master is gone, and another one is to act")
        return self._lease.try_hold()

    def check(self) -> None:
        """See `Fence`."""
        if self._lease.left_s <= self._margin_s:
            raise FencedError(
                "this master cannot know that no other one acts for the job, so it waits: it holds "
                "the job's lease no more, or could not renew it"
            )

    def release(self) -> None:
        """Act no more, and let the next master begin at once where the API server hears of it."""
        self._released.set()
        with self._trying:
            try:
                self._lease.release()
            except PlatformError as error:
                logger.warning("the lease ends by itself: %s", error)

    def _renew_for_ever(self) -> None:
        pause_s = self._renew_s
        while not self._released.wait(pause_s):
            with self._trying:
                if self._released.is_set():
                    return
                is_ours = self._renew()
            if is_ours is False:
                self._on_lost()
                return
            pause_s = self._renew_s if is_ours else self._retry_s

    def _renew(self) -> bool | None:
        """Renew; whether the lease is still ours, None where nobody can say."""
        try:
            if not self._is_current():
                logger.warning("the pod of this master is gone: it renews the lease no more")
                return False
            # A conflict may be of somebody who has changed something else, so it is asked again.
            is_ours = self._lease.try_hold() or self._lease.try_hold()
        except PlatformError as error:
            if self._is_in_contact:
                logger.warning("the lease cannot be renewed: %s", error)
            self._is_in_contact = False
            return None
        if is_ours and not self._is_in_contact:
            logger.info("the lease is renewed again, and nobody had it meanwhile")
        self._is_in_contact = True
        return is_ours


def leave_on_sigterm(
    cluster: Cluster,
    runner: KubernetesReplicaRunner,
    pod_path: str,
    own: names.Owner,
    departure: Departure,
    fence: LeaseFence | None = None,
) -> None:
    """From now on, end the job's pods on SIGTERM if the master's is being deleted.

    A container that is stopped while its pod stays is restarted, and finds its workers at work.

    Args:
        cluster: Where the pod is.
        runner: Of the workers.
        pod_path: Of the master's pod.
        own: The same, as an owner.
        departure: Asked for before anything is ended.
        fence: Of a master whose pod is made again, and whose workers wait for the next; None for
            one that takes its workers along.
    """

    def leave(number: int, began_s: float, limit: threading.Timer) -> None:
        try:
            metadata = _find_metadata(cluster, pod_path, own)
            if metadata is None or "deletionTimestamp" in metadata:
                left_s = began_s + _grace_s(metadata or {}) - SPARE_S - time.monotonic()
                limit.cancel()
                _end_in(left_s + SPARE_S / 2, number)
                logger.info("the master's pod is being deleted")
                if not departure.ask(left_s):
                    logger.warning("the newest version could not be kept in %.0f s", left_s)
                _tell(runner)
                if fence is None:
                    runner.end_all()
                else:
                    fence.release()
                # All that was to be done is done, and nobody need wait until a kubelet says so.
                cluster.delete(pod_path, grace_s=0.0, uid=own.uid)
        except PlatformError as error:
            logger.warning("%s", error)
        finally:
            os._exit(128 + number)

    def on_signal(number: int, _: object) -> None:
        # Not here: the interrupted code may hold any lock.
        limit = _end_in(LEAVE_PATIENCE_S, number)
        arguments = (number, time.monotonic(), limit)
        threading.Thread(target=leave, args=arguments, daemon=True).start()

    signal.signal(signal.SIGTERM, on_signal)


def _find_metadata(cluster: Cluster, pod_path: str, own: names.Owner) -> Manifest | None:
    """Of the master's pod; None where it was removed by force, before its container has ended."""
    try:
        metadata: Manifest = cluster.get(pod_path)["metadata"]
    except RefusedError as error:
        if error.code != HTTPStatus.NOT_FOUND:
            raise
        return None
    return metadata if metadata.get("uid", own.uid) == own.uid else None


def _tell(runner: KubernetesReplicaRunner) -> None:
    try:
        runner.tell_now()
    except PlatformError as error:
        logger.warning("%s", error)


def _grace_s(metadata: Manifest) -> float:
    return max(float(metadata.get("deletionGracePeriodSeconds") or 0.0), LEAVE_PATIENCE_S + SPARE_S)


def _end_in(delay_s: float, number: int) -> threading.Timer:
    limit = threading.Timer(max(delay_s, 0.0), os._exit, (128 + number,))
    limit.daemon = True
    limit.start()
    return limit


def open_environment() -> MasterEnvironment | None:
    """What a master is given; None where its job has come to its end already.

    Raises:
        PlatformError: This is no master's pod, or the API server stays away.
    """
    surroundings = PodSurroundings()
    job = surroundings.job()
    pod_name = variable(names.POD_NAME_VARIABLE)
    cluster = connect_from_pod(REQUEST_PATIENCE_S)
    own = names.Owner(pod_name, variable(names.POD_UID_VARIABLE))
    fence = None if job.owner is None else open_fence(job, job.owner, own)
    if fence is not None:
        # Before anything is looked at: what the master before this one does must be done by then.
        _until_answered(fence.acquire)
    runner = KubernetesReplicaRunner(
        cluster,
        job,
        own,
        names.STATE_PATH,
        fence=fence or NO_FENCE,
        has_predecessor=lambda: fence is not None and fence.has_predecessor,
    )
    _until_answered(runner.start)
    pod_path = PODS.path(job.namespace, pod_name)
    departure = Departure()
    leave_on_sigterm(cluster, runner, pod_path, own, departure, fence)
    read_pod = partial(cluster.get, pod_path)
    account = _until_answered(lambda: begin_life(names.STATE_PATH, read_pod, runner, job.spec))
    if account is None:
        return None
    recovery_dir = names.STATE_PATH / "cuts"
    recovery_dir.mkdir(exist_ok=True)
    port = job.spec.master_port or names.MASTER_PORT
    return MasterEnvironment(
        spec=job.spec.model_copy(update={"master_port": port}),
        token=surroundings.token(),
        certificate=surroundings.certificate(),
        run_id=job.submission_uid,
        runner=runner,
        recovery_dir=recovery_dir,
        # All of the pod's addresses, of whichever family the cluster is.
        host="[::]",
        beside=_start_tensorboard(job.spec),
        master_history=account.history,
        last_end=account.last_end,
        recovery_stays=state_volume(job.spec.volume) is not None,
        departure=departure if keeps_versions(job.spec) else None,
        fence=fence or NO_FENCE,
        taken_launches=runner.taken_launches,
        calls_port=CallsPort(calls_port(job), names.CALLS_PORT),
    )


def open_fence(job: Job, resource: names.ResourceOwner, own: names.Owner) -> LeaseFence:
    """The fence of a master whose pod is made again when it is gone; nothing is sent.

    Raises:
        PlatformError: This is no pod, or it has no service account.
    """
    # Of its own, for whose answers nobody waits long.
    cluster = Cluster(pod_access(), patience_s=0.0, read_timeout_s=TIMEOUT_S)
    name, owners = names.lease_name(job.name), [resource.reference()]
    lease = Lease(cluster, job.namespace, name, own.uid, DURATION_S, owners)
    return LeaseFence(lease, _end_replaced, partial(_is_known, cluster, job.namespace, own))


def _is_known(cluster: Cluster, namespace: str, own: names.Owner) -> bool:
    try:
        return bool(cluster.get(PODS.path(namespace, own.name))["metadata"]["uid"] == own.uid)
    except RefusedError as error:
        if error.code != HTTPStatus.NOT_FOUND:
            raise
        return False


def _end_replaced() -> None:
    """End this process at once: whatever it still has in work is another one's by now."""
    logger.error("another master takes over: this one ends")
    os._exit(REPLACED_CODE)


def _start_tensorboard(spec: JobSpec) -> "subprocess.Popen[bytes] | None":
    """Serve the curves from here, where no other pod could read them."""
    if not spec.tensorboard_log_dir or manifests.are_events_shared(spec):
        return None
    try:
        return subprocess.Popen([sys.executable, *manifests.board_program(spec)])
    except OSError as error:
        # Nobody can look; the job does not need it.
        logger.warning("TensorBoard cannot be started: %s", error)
        return None


def _until_answered(ask: Callable[[], T]) -> T:
    deadline_s = time.monotonic() + START_PATIENCE_S
    while True:
        try:
            return ask()
        except PlatformError as error:
            if time.monotonic() > deadline_s:
                raise
            logger.warning("%s", error)
        time.sleep(RETRY_S)
