"""The replicas of a job as users mean them: by role and index, and how many run."""

import time
from collections.abc import Callable
from typing import Final

from elastic.platforms.base import Platform, unheard
from elastic.spec.roles import WORKER
from elastic.spec.status import JobStatus
from elastic.telemetry.progress_view import waits_because
from elastic.telemetry.summary import first_line, is_running

POLL_S: Final = 0.5


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


def why_workers_wait(status: JobStatus) -> str:
    """The first reason there is; the status has the others."""
    waiting = (w for w in status.workers if w.message and not is_running(w))
    of_worker = next((f"worker-{w.index}: {first_line(w.message)}" for w in waiting), "")
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
