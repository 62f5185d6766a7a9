"""What the pod of a master gives it."""

import logging
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from elastic.errors import PlatformError
from elastic.platforms.kubernetes.api.cluster import connect_from_pod
from elastic.platforms.kubernetes.api.resources import PODS
from elastic.platforms.kubernetes.master.leaving import leave_on_sigterm
from elastic.platforms.kubernetes.master.restarts import begin_life
from elastic.platforms.kubernetes.master.runner import PATIENCE_S as REQUEST_PATIENCE_S
from elastic.platforms.kubernetes.master.runner import KubernetesReplicaRunner
from elastic.platforms.kubernetes.objects import names, tensorboard
from elastic.platforms.kubernetes.objects.manifests import Owner
from elastic.platforms.kubernetes.objects.podspec import keeps_versions
from elastic.platforms.kubernetes.surroundings import PodSurroundings, variable
from elastic.platforms.surroundings import Departure, MasterEnvironment
from elastic.spec.job import JobSpec

log = logging.getLogger(__name__)

T = TypeVar("T")

PATIENCE_S: Final = 600.0
"""How long a master that begins waits for an API server: a restart would only begin again."""

RETRY_S: Final = 1.0


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
    runner = KubernetesReplicaRunner(cluster, job, own, names.STATE_PATH)
    _until_answered(runner.start)
    pod_path = PODS.path(job.namespace, pod_name)
    departure = Departure()
    leave_on_sigterm(cluster, runner, pod_path, own, departure)
    read_pod = partial(cluster.get, pod_path)
    history = _until_answered(lambda: begin_life(names.STATE_PATH, read_pod, runner, job.spec))
    if history is None:
        return None
    recovery_dir = names.STATE_PATH / "cuts"
    recovery_dir.mkdir(exist_ok=True)
    port = job.spec.master_port or names.MASTER_PORT
    return MasterEnvironment(
        spec=job.spec.model_copy(update={"master_port": port}),
        token=surroundings.token(),
        run_id=job.submission_uid,
        runner=runner,
        recovery_dir=recovery_dir,
        # All of the pod's addresses, of whichever family the cluster is.
        host="[::]",
        beside=_start_tensorboard(job.spec),
        master_history=history,
        departure=departure if keeps_versions(job.spec) else None,
    )


def _start_tensorboard(spec: JobSpec) -> "subprocess.Popen[bytes] | None":
    """Serve the curves from here, where no other pod could read them."""
    if not spec.tensorboard_log_dir or tensorboard.is_shared(spec):
        return None
    try:
        return subprocess.Popen([sys.executable, *tensorboard.program(spec)])
    except OSError as error:
        # Nobody can look; the job does not need it.
        log.warning("TensorBoard cannot be started: %s", error)
        return None


def _until_answered(ask: Callable[[], T]) -> T:
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return ask()
        except PlatformError as error:
            if time.monotonic() > deadline_s:
                raise
            log.warning("%s", error)
        time.sleep(RETRY_S)
