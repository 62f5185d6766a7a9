"""What a master is given by the platform that started it."""

import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from elastic.errors import PlatformError
from elastic.platforms.base import ReplicaRunner
from elastic.platforms.departure import Departure
from elastic.platforms.last_words import STEP_NAME
from elastic.spec.job import JobSpec
from elastic.spec.status import NO_MASTERS, MasterHistory

log = logging.getLogger(__name__)

T = TypeVar("T")

PATIENCE_S: Final = 600.0
"""How long a master that begins waits for an API server: a restart would only begin again."""

RETRY_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class MasterEnvironment:
    """The same job runs anywhere from these values.

    Attributes:
        run_id: The same for all lives of the master of one submission.
        recovery_dir: Where cuts outlive the master.
        host: Address that workers reach this process by.
        master_history: How the masters before this one ended, where the platform leaves it to the
            master to tell.
        beside: A process that serves the job's curves, and ends with this one.
        departure: Asked for before the master is ended from outside; None where nothing outlives
            it that its newest version could be kept in.
        room: Workers that the platform has room for now, as far as it can tell; a job with a
            range begins with so many of it.
    """

    spec: JobSpec
    token: str
    run_id: str
    runner: ReplicaRunner
    recovery_dir: Path
    host: str
    room: int | None = None
    master_history: MasterHistory = NO_MASTERS
    beside: "subprocess.Popen[bytes] | None" = None
    departure: Departure | None = None

    @property
    def checkpoint_dir(self) -> Path:
        """Where checkpoints go whose user has named no folder: beside the cuts."""
        return self.recovery_dir.with_name("checkpoints")

    @property
    def step_path(self) -> Path:
        """Where the master says which step of the preparation it is at, for whoever finds it dead.

        Beside the cuts, as it must outlive the master as well.
        """
        return self.recovery_dir.with_name(STEP_NAME)


def local_environment(job_dir: Path) -> MasterEnvironment:
    """What the local platform gives a master.

    Raises:
        PlatformError: The folder is not that of a job.
    """
    from elastic.platforms.local.directory import JobDirectory
    from elastic.platforms.local.replica import read_spec, read_token
    from elastic.platforms.local.runner import LocalReplicaRunner

    directory = JobDirectory(job_dir)
    submission = directory.submission()
    if submission is None:
        raise PlatformError(f"{job_dir} holds no submission.json: it is not the folder of a job")
    return MasterEnvironment(
        spec=read_spec(job_dir),
        token=read_token(job_dir),
        run_id=submission.uid,
        runner=LocalReplicaRunner(job_dir),
        recovery_dir=directory.cuts_path,
        host="127.0.0.1",
        room=os.cpu_count(),
    )


def kubernetes_environment() -> MasterEnvironment | None:
    """What the pod of a master gives it; None where its job has come to its end already.

    Raises:
        PlatformError: This is no master's pod, or the API server stays away.
    """
    from elastic.platforms.kubernetes.api.cluster import connect_from_pod
    from elastic.platforms.kubernetes.api.resources import PODS
    from elastic.platforms.kubernetes.master.leaving import leave_on_sigterm
    from elastic.platforms.kubernetes.master.restarts import begin_life
    from elastic.platforms.kubernetes.master.runner import PATIENCE_S as REQUEST_PATIENCE_S
    from elastic.platforms.kubernetes.master.runner import KubernetesReplicaRunner
    from elastic.platforms.kubernetes.objects import names
    from elastic.platforms.kubernetes.objects.manifests import Owner
    from elastic.platforms.kubernetes.objects.podspec import keeps_versions
    from elastic.platforms.kubernetes.surroundings import PodSurroundings, variable

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
    from elastic.platforms.kubernetes.objects import tensorboard

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
