"""How the earlier lives of the master's container ended, and whether another one is to follow.

Kubernetes restarts the container in place, whatever it died of and for ever. So each life looks,
before it does anything else, how the one before has ended, and gives up where its end will repeat.
"""

import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from elastic.errors import PlatformError
from elastic.platforms.base import Replica, ReplicaRunner, StatusRefusedError
from elastic.platforms.kubernetes import observation, starting
from elastic.platforms.kubernetes.manifests import MASTER_REPLICA
from elastic.platforms.kubernetes.names import Manifest
from elastic.platforms.last_words import STEP_NAME, read_step
from elastic.policy.masters import EndJob, MasterHistory
from elastic.spec.job import JobSpec
from elastic.spec.status import JobPhase, JobStatus, Progress

logger = logging.getLogger(__name__)

LIVES_NAME: Final = "lives.json"
MAX_LIVES: Final = 100


@dataclass(frozen=True, slots=True)
class PastLife:
    """One life of the master's container.

    Attributes:
        number: Counted by Kubernetes, from 0.
        ended: How it ended.
        phase: What the job had come to by then; None where nothing had been published.
        model_version: How far training had come by then.
        step: Which step of the preparation it ended in; empty where in none.
    """

    number: int
    ended: Replica
    phase: JobPhase | None
    model_version: int
    step: str = ""


_LIVES: Final = TypeAdapter(list[PastLife])


def end_if_hopeless(state_path: Path, pod: Manifest, runner: ReplicaRunner, spec: JobSpec) -> bool:
    """Publish the job's end if no life of its master will do any better; True if it has one.

    Args:
        state_path: Folder that outlives the container.
        pod: The master's own.
        runner: Started.
        spec: Of the job.

    Raises:
        PlatformError: The status cannot be read or written.
    """
    status = runner.last_status()
    end = _too_late(pod, status, spec.start_timeout) or verdict(
        state_path, pod, status, runner.control().cancelled
    )
    if end is None:
        return False
    if end.phase is not None:
        base = status or JobStatus(job_name=spec.job_name)
        ended = base.model_copy(
            update={
                "phase": end.phase,
                "reason": end.reason,
                "message": end.message,
                "ended_s": time.time(),
            }
        )
        try:
            runner.publish_status(ended)
        except StatusRefusedError as error:
            # The pod tells it, if this life ends well.
            logger.warning("%s", error)
    return True


def _too_late(pod: Manifest, status: JobStatus | None, timeout_s: float) -> EndJob | None:
    """The end of a job that everybody else has taken for failed by now."""
    if starting.has_begun(status) or not starting.has_missed_its_start(pod, timeout_s, time.time()):
        return None
    finding = starting.too_late(pod, timeout_s, "")
    return EndJob(finding.phase, finding.reason, finding.message)


def verdict(
    state_path: Path, pod: Manifest, status: JobStatus | None, cancelled: bool
) -> EndJob | None:
    """Whether the job is to end now, before this life of its master begins; None to go on."""
    path = state_path / LIVES_NAME
    lives = _read(path)
    found = observation.observe_last_life(pod, MASTER_REPLICA)
    if found is not None and found[0] not in {life.number for life in lives}:
        phase = None if status is None else status.phase
        version = 0 if status is None else status.progress.model_version
        step = read_step(state_path / STEP_NAME)
        lives = [*lives, PastLife(*found, phase, version, step)][-MAX_LIVES:]
        _write(path, lives)
    if not lives:
        return None
    history = MasterHistory()
    for life in lives[:-1]:
        history.on_exit(life.ended, _status_then(life), cancelled=False)
    last = lives[-1]
    decision = history.on_exit(last.ended, _status_then(last), cancelled, last.step)
    return decision if isinstance(decision, EndJob) else None


def _status_then(life: PastLife) -> JobStatus | None:
    if life.phase is None:
        return None
    progress = Progress(model_version=life.model_version)
    return JobStatus(job_name="", phase=life.phase, progress=progress)


def _read(path: Path) -> list[PastLife]:
    try:
        return _LIVES.validate_json(path.read_bytes())
    except FileNotFoundError:
        return []
    except (OSError, ValidationError) as error:
        # Only counts are lost with it: the job may restart more often than it would have.
        logger.warning("%s cannot be read: %s", path, error)
        return []


def _write(path: Path, lives: list[PastLife]) -> None:
    try:
        path.write_bytes(_LIVES.dump_json(lives))
    except OSError as error:
        raise PlatformError(f"cannot write {path}: {error.strerror}") from error
