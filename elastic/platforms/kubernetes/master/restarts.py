"""How the earlier lives of a master ended, and whether another one is to follow.

Whatever a master died of, it is started again, by the first process of its container or by the
kubelet, and for ever. So each life looks, before it does anything else, how those before have
ended: it gives up where their end will repeat, and waits where they came too fast.
"""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, ValidationError

from elastic.errors import PlatformError
from elastic.platforms.base import ReplicaRunner, StatusRefusedError
from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.platforms.kubernetes.objects.manifests import MASTER_REPLICA
from elastic.platforms.kubernetes.pods import masters, observation
from elastic.platforms.kubernetes.pods.states import last_terminated, own_status
from elastic.platforms.kubernetes.supervisor import ACCOUNT_NAME, ERROR, Life, LifeLog
from elastic.platforms.traces import STEP_NAME, read_step
from elastic.policy.masters import EndJob, RestartMaster, on_exit
from elastic.policy.replicas import exit_text
from elastic.spec.job import JobSpec
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
        ended = observation.ended_as(pod, MASTER_REPLICA, _terminated(life, lives, pod))
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
    if masters.has_begun(status) or not masters.has_missed_its_start(pod, timeout_s, time.time()):
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
        told = status if masters.has_begun(status) else None
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
