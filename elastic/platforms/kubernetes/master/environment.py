"""What the pod of a master gives it, and what it does when that pod is deleted.

It keeps its last version, and takes its workers along. Kubernetes would remove those as well, but
only when the master's pod is gone, which a kubelet may take ten seconds to report, and each with a
grace in which it would look for its master. Where a resource has the pod made again, the workers
stay, and wait for the next master, which may begin at once.
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
from typing import Final, TypeVar

from elastic.errors import PlatformError
from elastic.platforms.base import NO_FENCE
from elastic.platforms.kubernetes.api.cluster import Cluster, RefusedError, connect_from_pod
from elastic.platforms.kubernetes.api.kubeconfig import pod_access
from elastic.platforms.kubernetes.api.leases import Lease
from elastic.platforms.kubernetes.api.resources import PODS, Manifest
from elastic.platforms.kubernetes.master.fencing import DURATION_S, TIMEOUT_S, LeaseFence
from elastic.platforms.kubernetes.master.restarts import begin_life
from elastic.platforms.kubernetes.master.runner import PATIENCE_S as REQUEST_PATIENCE_S
from elastic.platforms.kubernetes.master.runner import KubernetesReplicaRunner
from elastic.platforms.kubernetes.objects import names, tensorboard
from elastic.platforms.kubernetes.objects.names import Owner, ResourceOwner
from elastic.platforms.kubernetes.objects.podspec import Job, keeps_versions
from elastic.platforms.kubernetes.surroundings import PodSurroundings, variable
from elastic.platforms.surroundings import Departure, MasterEnvironment
from elastic.spec.job import JobSpec
from elastic.spec.settings.cluster_forms import state_volume

logger = logging.getLogger(__name__)

T = TypeVar("T")

LEAVE_PATIENCE_S: Final = 6.0
"""For the API server to say whether the pod is to go."""

SPARE_S: Final = 4.0
"""Of the pod's grace, for the workers' end; after it, Kubernetes does it its own way."""

START_PATIENCE_S: Final = 600.0
"""How long a master that begins waits for an API server: a restart would only begin again."""

RETRY_S: Final = 1.0

REPLACED_CODE: Final = 3
"""The exit code of a master that another one has replaced."""


def leave_on_sigterm(
    cluster: Cluster,
    runner: KubernetesReplicaRunner,
    pod_path: str,
    own: Owner,
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


def _find_metadata(cluster: Cluster, pod_path: str, own: Owner) -> Manifest | None:
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
    own = Owner(pod_name, variable(names.POD_UID_VARIABLE))
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
    )


def open_fence(job: Job, resource: ResourceOwner, own: Owner) -> LeaseFence:
    """The fence of a master whose pod is made again when it is gone; nothing is sent.

    Raises:
        PlatformError: This is no pod, or it has no service account.
    """
    # Of its own, for whose answers nobody waits long.
    cluster = Cluster(pod_access(), patience_s=0.0, read_timeout_s=TIMEOUT_S)
    name, owners = names.lease_name(job.name), [resource.reference()]
    lease = Lease(cluster, job.namespace, name, own.uid, DURATION_S, owners)
    return LeaseFence(lease, _end_replaced, partial(_is_known, cluster, job.namespace, own))


def _is_known(cluster: Cluster, namespace: str, own: Owner) -> bool:
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
    if not spec.tensorboard_log_dir or tensorboard.is_shared(spec):
        return None
    try:
        return subprocess.Popen([sys.executable, *tensorboard.program(spec)])
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
