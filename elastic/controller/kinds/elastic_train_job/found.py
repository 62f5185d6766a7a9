"""How an ElasticTrainJob stands: what its masters have published, corrected by what is seen. Pure.

It is what `elastic status` finds, by the same function; but whoever makes masters again knows
better what the loss of one means.
"""

from dataclasses import dataclass
from typing import Final

from elastic.controller.kinds.clocks import pause_s
from elastic.controller.kinds.elastic_train_job.view import LOST, Life, View, failed_s
from elastic.controller.kinds.pods import finished_s
from elastic.controller.resources.common import seconds_of
from elastic.platforms.kubernetes.job.status import job_status
from elastic.platforms.kubernetes.pods.masters import REPORT_S, end_of, has_begun
from elastic.platforms.kubernetes.pods.observation import needs_pods, with_seen_workers
from elastic.policy.fleet import desired_workers
from elastic.spec.status import JobPhase, JobStatus, with_present_speed

SUSPENDED: Final = "Suspended"
SUSPENDING: Final = "Suspending"
RESUMING: Final = "Resuming"
SUBMITTING: Final = "Submitting"
MASTER_LOST: Final = "MasterLost"

_BEFORE_A_MASTER: Final = frozenset({JobPhase.PENDING, JobPhase.SUSPENDED})

SETTLE_S: Final = 10.0
"""How long after a master's own end what it has published may still be on its way to us: pods and
what they publish are watched apart."""


@dataclass(frozen=True, slots=True)
class Found:
    """How a job stands.

    Attributes:
        again_in_s: When it may stand otherwise although nothing has changed.
    """

    status: JobStatus
    again_in_s: float | None = None


def find(view: View) -> Found:
    """How a job stands at this moment."""
    if view.record is None:
        return Found(_unsubmitted(view))
    if view.life in LOST:
        return Found(_without_master(view))
    told = job_status(view.record, view.status_map, view.master, view.now_s)
    is_told_by_pod = told.phase.is_final and not _is_published(view)
    if is_told_by_pod and (wait_s := _settles_in_s(view)) > 0:
        return Found(_in_between(view), wait_s)
    if needs_pods(told):
        told = with_seen_workers(told, view.pods)
    if told.phase.is_final:
        return Found(told)
    if view.is_suspended:
        message = "its master keeps its newest version and ends"
        return Found(told.model_copy(update={"reason": SUSPENDING, "message": message}))
    if told.phase in _BEFORE_A_MASTER and has_begun(view.published):
        # The next master of a job waits, or has told nothing yet.
        told = told.entering(JobPhase.RECOVERING, told.reason, told.message)
    return Found(told, _start_in_s(view))


def _is_published(view: View) -> bool:
    return view.published is not None and view.published.phase.is_final


def _unsubmitted(view: View) -> JobStatus:
    """A job of which nothing is there yet."""
    message = "its objects are about to be made: where that lasts, its events say why"
    found = _pending(view, message)
    return _suspended(found) if view.is_suspended else found


def _pending(view: View, message: str = "") -> JobStatus:
    """A job of which no master has told anything."""
    spec = view.job.spec
    return JobStatus(
        job_name=view.job.name,
        kind=spec.kind,
        phase=JobPhase.PENDING,
        reason=SUBMITTING,
        message=message,
        submitted_s=seconds_of(view.resource["metadata"]["creationTimestamp"]),
        desired_workers=desired_workers(spec.num_workers, None, spec.workers_at_first),
    )


def _base(view: View) -> JobStatus:
    """What was published last, or what is known before that."""
    base = view.published or _pending(view)
    if base.submitted_s is None:
        base = base.model_copy(
            update={"submitted_s": seconds_of(view.resource["metadata"]["creationTimestamp"])}
        )
    return with_present_speed(base)


def _without_master(view: View) -> JobStatus:
    """A job whose master's pod is gone for good."""
    base = _base(view)
    if base.phase.is_final:
        return with_seen_workers(base, view.pods) if needs_pods(base) else base
    end = None if view.master is None else end_of(view.master, base)
    if end is not None:
        return end
    if view.control.cancelled:
        assert view.record is not None, "nobody cancels what is not there"
        return job_status(view.record, view.status_map, None, view.now_s)
    if view.is_suspended:
        return _base_or_suspended(view, base)
    if not has_begun(view.published):
        message = f"its master's pod is about to be made{_after_pause(view)}"
        return base.entering(JobPhase.PENDING, SUBMITTING, message)
    if base.phase is JobPhase.SUSPENDED:
        return _recovering(base, "its master's pod is about to be made", RESUMING)
    return _recovering(base, f"its master's pod is gone, and is made again{_after_pause(view)}")


def _base_or_suspended(view: View, base: JobStatus) -> JobStatus:
    if not view.pods:
        return _suspended(base)
    return _recovering(base, "its pods are about to end", SUSPENDING)


def _recovering(base: JobStatus, message: str, reason: str = MASTER_LOST) -> JobStatus:
    return with_present_speed(base.entering(JobPhase.RECOVERING, reason, message))


def _suspended(base: JobStatus) -> JobStatus:
    message = "suspended by its user (spec.suspend)"
    return with_present_speed(base.entering(JobPhase.SUSPENDED, SUSPENDED, message, workers=()))


def _in_between(view: View) -> JobStatus:
    """A job whose master has just ended, and may have published how the job has."""
    base = _base(view)
    if not has_begun(view.published):
        return base
    return _recovering(base, "its master has ended, and what it has published is on its way")


def _settles_in_s(view: View) -> float:
    """Seconds until what the master has published is here for certain."""
    assert view.master is not None, "the end of a pod that is there"
    ended_s = finished_s(view.master)
    return 0.0 if ended_s is None else ended_s + SETTLE_S - view.now_s


def _after_pause(view: View) -> str:
    if view.life is not Life.FAILED:
        return ""
    pause = pause_s(max(1, view.master_failures))
    return f", {pause:g} s after its end" if pause else ""


def pause_left_s(view: View) -> float:
    """Seconds until a master's pod that has failed is made again; 0 once it is."""
    pause = pause_s(max(1, view.master_failures))
    return max(0.0, failed_s(view) + pause - view.now_s)


def _start_in_s(view: View) -> float | None:
    """Seconds until a master that has not begun is waited for no more; None where it has."""
    if has_begun(view.published) or view.master is None:
        return None
    created_s = seconds_of(view.master["metadata"]["creationTimestamp"])
    left_s = created_s + view.job.spec.start_timeout + REPORT_S + _TICK_S - view.now_s
    return left_s if left_s > 0 else None


_TICK_S: Final = 0.1
"""Not before, but just after that moment."""
