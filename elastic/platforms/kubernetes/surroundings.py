"""What the programs of replicas (master, worker) are given inside their pods."""

import json
import os
import signal
import socket
import tempfile
from pathlib import Path
from types import FrameType
from typing import Final

from elastic.errors import PlatformError, legible
from elastic.platforms.base import ExitReason
from elastic.platforms.kubernetes.objects import names
from elastic.platforms.kubernetes.objects.manifests import Submission, read_spec, read_submission
from elastic.platforms.kubernetes.objects.podspec import Job, read_hook
from elastic.platforms.registry import MASTER_PATIENCE_S, THREAD_VARIABLES, share_gpus
from elastic.spec.job import JobSpec
from elastic.spec.values import Certificate

REMADE_PATIENCE_S: Final = 1800.0
"""The worst that a new master takes: a minute until its node is found lost, a minute of grace, six
until Kubernetes takes the volume away from that node, and as long again to pull the image."""

MAX_MESSAGE: Final = 1500
MAX_TRACEBACK: Final = 1500
"""Kubernetes keeps 4096 bytes of a record, and cuts off the rest of longer ones, JSON or not."""

MAX_RECORD_BYTES: Final = 4096


class PodSurroundings:
    """See `Surroundings`; everything comes from mounted files and the environment."""

    def __init__(
        self,
        job_path: Path = names.JOB_PATH,
        token_path: Path = names.TOKEN_PATH,
        termination_path: Path = names.TERMINATION_PATH,
    ) -> None:
        self._job_path = job_path
        self._token_path = token_path
        self._termination_path = termination_path

    def prepare(self, num_processes: int) -> None:  # noqa: ARG002 - a container has its own cores
        """Use as many cores as the container may, and end when asked to."""
        cores = os.environ.get(names.CORES_VARIABLE, "1")
        for variable in THREAD_VARIABLES:
            # Frameworks count the node's cores, and spend their time waiting for the ones they
            # may not use.
            os.environ.setdefault(variable, cores)
        share_gpus()
        signal.signal(signal.SIGTERM, _end_at_once)

    def spec(self) -> JobSpec:
        """The specification of the job."""
        path = self._job_path / names.SPEC_KEY
        return read_spec(_read(path), str(path))

    def submission(self) -> Submission:
        """Which submission this pod belongs to."""
        path = self._job_path / names.SUBMISSION_KEY
        return read_submission(_read(path), str(path))

    def job(self) -> Job:
        """What the pods of this job are made from."""
        spec, submission = self.spec(), self.submission()
        return Job(
            spec,
            variable(names.NAMESPACE_VARIABLE),
            submission.uid,
            submission.image,
            read_hook(spec.cluster_spec),
            queue_system=submission.queue_system,
            owner=submission.owner,
        )

    def token(self) -> str:
        """The secret that authenticates every call within the job."""
        return _read(self._token_path / names.TOKEN_KEY).strip()

    def certificate(self) -> Certificate | None:
        """What encrypts every call within the job, out of its Secret."""
        spec = self.spec()
        # Who submitted it told, unless by a version that had no certificates.
        if not spec.tls:
            return None
        chain, key = (self._token_path / each for each in (names.CHAIN_KEY, names.KEY_KEY))
        if not chain.is_file() or not key.is_file():
            raise PlatformError(
                f"the calls of this job are to be encrypted, and its Secret "
                f"{names.token_name(spec.job_name)} has no certificate ({chain.name}, {key.name}): "
                "submit the job again, or with --no_tls where the network encrypts by itself"
            )
        return Certificate(_read(chain), _read(key))

    def address(self) -> str | None:
        """The master's Service, which every life of the master answers at."""
        return variable(names.ADDRESS_VARIABLE)

    def own_host(self) -> str:
        """The pod's own address, which its name stands for within it."""
        return str(socket.getaddrinfo(socket.gethostname(), None)[0][4][0])

    def kept_dir(self) -> Path:
        """In the container: the next launch is another pod, maybe on another node."""
        return Path(tempfile.mkdtemp(prefix="elastic-"))

    def patience_s(self) -> float:
        """Longer where the master is made again, which may have to be on another node."""
        return MASTER_PATIENCE_S if self.submission().owner is None else REMADE_PATIENCE_S

    def say_end(self, reason: ExitReason, message: str, traceback: str = "") -> None:
        """Say why this process is about to end; Kubernetes shows it in the pod's status."""
        record = {
            "reason": reason.value,
            "message": legible(message)[:MAX_MESSAGE],
            "traceback": legible(traceback)[-MAX_TRACEBACK:],
        }
        text = json.dumps(record, ensure_ascii=False)
        if len(text.encode()) > MAX_RECORD_BYTES:
            # Quotes, line ends and letters beyond ASCII take more bytes than one.
            room = MAX_MESSAGE // 4
            record |= {"message": legible(message)[:room], "traceback": ""}
            text = json.dumps(record, ensure_ascii=False)
        try:
            self._termination_path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise PlatformError(f"cannot write {self._termination_path}: {error}") from error

    def code_of_leaving(self, spec: JobSpec) -> int:
        """By 0 a queue would count it as one that is done, whose place nobody may take."""
        return 128 + signal.SIGTERM if spec.queue else 0


def variable(name: str) -> str:
    """A variable that every pod of a job has.

    Raises:
        PlatformError: It is not set: this is no pod of a job.
    """
    value = os.environ.get(name)
    if not value:
        raise PlatformError(f"{name} is not set: start jobs with `elastic train`")
    return value


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise PlatformError(
            f"cannot read {path}: {error.strerror}: this is no pod of a job"
        ) from error


def _end_at_once(number: int, _: FrameType | None) -> None:
    """What any other process does by itself: the first one of a container ignores signals."""
    os._exit(128 + number)
