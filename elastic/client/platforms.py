"""Which platform is meant, and where that is; and its jobs, looked at.

One job is looked at until it ends or has so many workers, or all of them at once.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, TypeVar

from elastic.errors import InfrastructureError, JobSpecError, PlatformError
from elastic.platforms.base import LOST_AFTER_S, LastLook, Platform, unheard
from elastic.platforms.registry import SERVER_PATIENCE_S, ClusterChoice, entry_of
from elastic.policy.replicas import told_id
from elastic.spec.platforms import PLATFORMS, PlatformName
from elastic.spec.roles import WORKER
from elastic.spec.status import JobStatus, ObjectStatus, PodStatus
from elastic.telemetry.summary import first_line, is_running, waits_because

if TYPE_CHECKING:
    from elastic.platforms.images import ImageRequest


__all__ = [
    "PLATFORM_VARIABLE",
    "SERVER_PATIENCE_S",
    "ClusterChoice",
    "default_platform",
    "open_platform",
    "platform_name",
]

PLATFORM_VARIABLE: Final = "ELASTIC_PLATFORM"


def default_platform(choice: ClusterChoice) -> str:
    """The platform that is meant where nobody names one.

    That of the environment, or else a cluster where one is configured.
    """
    name = os.environ.get(PLATFORM_VARIABLE)
    if name:
        return name
    return next(name for name in PLATFORMS if entry_of(name).is_meant(choice))


def open_platform(
    name: str, choice: ClusterChoice, patience_s: float = SERVER_PATIENCE_S
) -> Platform:
    """The platform of that name.

    Args:
        patience_s: How long an API server that does not answer is asked again.

    Raises:
        JobSpecError: There is no such platform.
        PlatformError: It cannot be used from here.
    """
    return entry_of(platform_name(name)).open(choice, patience_s, _build_image)


def platform_name(text: str) -> PlatformName:
    """The platform that a text names, which may be of the environment.

    Raises:
        JobSpecError: There is none.
    """
    try:
        return PlatformName(text)
    except ValueError as error:
        known = " or ".join(PlatformName)
        raise JobSpecError(f"there is no platform {text!r}: name {known}") from error


def _build_image(request: "ImageRequest") -> str:
    """Make the image of a job, and show how far it is."""
    from elastic.platforms.images import build_and_push
    from elastic.telemetry.progress import open_image_display

    # Standard output is for what becomes of the job.
    with open_image_display(sys.stderr) as display:
        return build_and_push(request, display.show)


T = TypeVar("T")

POLL_S: Final = 0.5
NO_MASTER: Final = "NoMaster"
"""A platform's reason for a job whose master is gone and comes back only with the user's help."""
_LIVING: Final = frozenset({"Pending", "Running", "Unknown"})
"""Phases of pods, as Kubernetes has them."""


class NoMasterError(PlatformError):
    """Nobody decides for the job any more, and that stays so until its user acts."""


def statuses(
    platform: Platform,
    job_name: str,
    poll_s: float = POLL_S,
    lost_after_s: float = LOST_AFTER_S,
) -> Iterator[JobStatus]:
    """The job's status now and whenever it changes; ends after the final one.

    Raises what `looks` raises.
    """
    last: JobStatus | None = None
    for status in looks(platform, job_name, poll_s, lost_after_s):
        if status != last:
            yield status
        last = status


def looks(
    platform: Platform,
    job_name: str,
    poll_s: float = POLL_S,
    lost_after_s: float = LOST_AFTER_S,
) -> Iterator[JobStatus]:
    """The job's status every `poll_s`, changed or not; ends after the final one.

    While the platform cannot tell, it is the last known one.

    Raises:
        JobNotFoundError: No such job (any more).
        InfrastructureError: For `lost_after_s` the platform could not tell, or the job had no
            master.
    """
    last: JobStatus | None = None
    lost_since_s: float | None = None
    while True:
        lost: InfrastructureError | None = None
        try:
            status = platform.status(job_name)
        except InfrastructureError as error:
            if last is None:
                raise
            lost = error
            status = last
        yield status
        last = status
        if status.phase.is_final:
            return
        if lost is None and status.reason == NO_MASTER:
            lost = NoMasterError(status.message)
        now_s = time.monotonic()
        lost_since_s = (lost_since_s or now_s) if lost else None
        if lost and lost_since_s is not None and now_s - lost_since_s >= lost_after_s:
            raise lost
        time.sleep(poll_s)


def all_statuses(
    platform: Platform, poll_s: float = POLL_S, lost_after_s: float = LOST_AFTER_S
) -> Iterator[list[JobStatus]]:
    """The statuses of all jobs now and whenever one of them changes; never ends.

    Raises:
        InfrastructureError: The platform could not tell at the first look, or for `lost_after_s`.
    """
    yield from changes(lambda: list(platform.statuses()), poll_s, lost_after_s)


def changes(
    look: Callable[[], T], poll_s: float = POLL_S, lost_after_s: float = LOST_AFTER_S
) -> Iterator[T]:
    """What is seen now, and whenever that is something else; never ends.

    Raises:
        InfrastructureError: The platform could not tell at the first look, or for `lost_after_s`.
    """
    looks = LastLook(look, lost_after_s)
    last: T | None = None
    while True:
        current = looks()
        if current != last:
            yield current
        last = current
        time.sleep(poll_s)


def replica_names(role: str | None, index: int | None) -> list[str]:
    """What `Platform.logs` is asked for; an index without a role is a worker's."""
    if index is not None:
        return [f"{role or WORKER}-{index}"]
    return [role] if role else []


def num_running(status: JobStatus) -> int:
    """How many workers run."""
    return sum(map(is_running, status.workers))


def wait_for_workers(
    platform: Platform,
    job_name: str,
    wanted: int,
    timeout_s: float,
    on_wait: Callable[[str], None] = unheard,
) -> JobStatus:
    """The job as it is when it has so many workers, has ended, or the time is over.

    Args:
        on_wait: Told at each look what is waited for.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        status = platform.status(job_name)
        reached = status.desired_workers == num_running(status) == wanted
        if reached or status.phase.is_final or time.monotonic() >= deadline_s:
            return status
        on_wait(_awaited(status, wanted))
        time.sleep(POLL_S)


def wait_for_replicas(
    look: Callable[[], ObjectStatus],
    wanted: int,
    timeout_s: float,
    on_wait: Callable[[str], None] = unheard,
) -> ObjectStatus:
    """An object as it is when it has so many replicas, has ended, or the time is over.

    Args:
        look: Sees it, with its pods where these may be seen.
        on_wait: Told at each look what is waited for.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        status = look()
        if has_size(status, wanted) or status.is_final or time.monotonic() >= deadline_s:
            return status
        on_wait(_awaited_of(status, wanted))
        time.sleep(POLL_S)


def has_size(status: ObjectStatus, wanted: int) -> bool:
    """Whether an object has so many replicas, and nothing more of them runs."""
    is_told = status.replicas_wanted == status.replicas_ready == wanted
    return is_told and not surplus(status, wanted)


def surplus(status: ObjectStatus, wanted: int) -> list[str]:
    """Replicas that have yet to leave where there are to be `wanted`; none where none are seen.

    A status counts the wanted ones alone, and is told before the others are removed: a controller
    that ends between the two leaves them to the next.
    """
    pods = [pod for pod in status.pods or () if pod.role == status.scaled_role and _lives(pod)]
    return [pod.replica for pod in pods[wanted:]]


def _lives(pod: PodStatus) -> bool:
    """Whether it runs or will; one that was asked to end may be over, and only held by a queue."""
    return pod.is_ready or pod.phase in _LIVING


def _awaited_of(status: ObjectStatus, wanted: int) -> str:
    """`4 workers to run, 2 do: no cpu`, or who has to leave first."""
    if status.replicas_ready == wanted and (leaving := surplus(status, wanted)):
        return f"{', '.join(leaving)} to leave"
    why = f": {status.message}" if status.message else ""
    return f"{wanted} {status.scaled_role}s to run, {status.replicas_ready} do{why}"


def why_workers_wait(status: JobStatus) -> str:
    """The first reason there is; the status has the others."""
    waiting = (w for w in status.workers if w.message and not is_running(w))
    of_worker = next((f"{told_id(w).name}: {first_line(w.message)}" for w in waiting), "")
    return first_line(waits_because(status)) or of_worker


def _awaited(status: JobStatus, wanted: int) -> str:
    """`worker-2, worker-3 to run: worker-2: no cpu`, or who has to leave first."""
    running = {worker.index for worker in status.workers if is_running(worker)}
    missing = [f"worker-{index}" for index in range(wanted) if index not in running]
    surplus = [f"worker-{index}" for index in sorted(running) if index >= wanted]
    if missing:
        why = why_workers_wait(status)
        return f"{', '.join(missing)} to run{why and f': {why}'}"
    if surplus:
        return f"{', '.join(surplus)} to leave"
    return "its master to want so many"
