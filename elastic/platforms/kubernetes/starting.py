"""How long a job waits for its master to start, before it has failed. Pure.

There is no master yet that could decide so. Whoever looks at the job decides by the same rule, and
so does a master that comes too late, about itself: what was Failed for one is Failed for all.
"""

from datetime import datetime
from typing import Final

from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.platforms.kubernetes.master_pod import Finding
from elastic.platforms.kubernetes.own_container import own_state
from elastic.spec.status import JobPhase, JobStatus

REASON: Final = "StartTimeout"
REPORT_S: Final = 10.0
"""A master that starts just in time is told of by its node a little later."""


def has_begun(published: JobStatus | None) -> bool:
    """Whether a master of this submission has ever told of itself."""
    # A resumed job has the status of its earlier submission until then, as Pending.
    return published is not None and published.phase is not JobPhase.PENDING


def is_given_up(pod: Manifest, timeout_s: float, now_s: float) -> bool:
    """Whether a job whose master has told nothing is not waited for any more.

    Args:
        pod: The master's.
        timeout_s: The job's `start_timeout`.
        now_s: By the API server's clock.
    """
    if _running_since_s(pod) is not None:
        return has_missed_its_start(pod, timeout_s, now_s)
    return now_s > _created_s(pod) + timeout_s + REPORT_S


def has_missed_its_start(pod: Manifest, timeout_s: float, now_s: float) -> bool:
    """Whether the present life of a master began too late; `now_s` if its node has yet to say."""
    began_s = _running_since_s(pod)
    return (now_s if began_s is None else began_s) > _created_s(pod) + timeout_s


def too_late(pod: Manifest, timeout_s: float, cause: str) -> Finding:
    """The end of a job whose master did not start in time."""
    message = f"the master did not start within {timeout_s:g} s (start_timeout={timeout_s:g})"
    return Finding(
        JobPhase.FAILED,
        REASON,
        f"{message}: {cause or 'it could start only later'}",
        at_s=_created_s(pod) + timeout_s,
    )


def _running_since_s(pod: Manifest) -> float | None:
    running = own_state(pod).get("running")
    if running is None or not running.get("startedAt"):
        return None
    return datetime.fromisoformat(running["startedAt"]).timestamp()


def _created_s(pod: Manifest) -> float:
    return datetime.fromisoformat(pod["metadata"]["creationTimestamp"]).timestamp()
