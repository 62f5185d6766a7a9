"""How an ElasticTrainJob stands, and what is told of it: status, conditions, events. Pure.

It stands as `elastic status` finds it, by the same function, from what its masters have published,
corrected by what is seen; but whoever makes masters again knows better what the loss of one means.
An edited spec changes little of a job that is there, and says so; one of which no job can be made
is the end of a job of which nothing is there.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from elastic.controller.kinds.common import (
    finished_s,
    is_queue_missing,
    name_of,
    pause_s,
    queue_notes,
    uid_of,
    with_queue_notes,
)
from elastic.controller.kinds.elastic_train_job.view import (
    LOST,
    Life,
    View,
    failed_s,
    remembered,
    written_phase,
)
from elastic.controller.reconciling import EventType, Note, Observed, Outcome
from elastic.controller.resources.common import (
    Condition,
    ConditionStatus,
    Reading,
    seconds_of,
    with_condition,
    without_blanks,
)
from elastic.controller.resources.elastic_train_job import ElasticTrainJobSpec, Remembered
from elastic.platforms.kubernetes.api.resources import PODS, Manifest
from elastic.platforms.kubernetes.masters import REPORT_S, end_of, job_has_begun, job_status
from elastic.platforms.kubernetes.objects.manifests import spec_for_pods
from elastic.platforms.kubernetes.pods import needs_pods, why_failed, with_seen_workers
from elastic.policy.accounts import as_of
from elastic.policy.fleet import desired_workers
from elastic.spec.job import settings
from elastic.spec.settings import WorkerRange
from elastic.spec.settings.cluster import state_volume
from elastic.spec.status import JobPhase, JobStatus, document, with_present_speed

KIND: Final = "ElasticTrainJob"
CREATED: Final = "Created"

PROGRESS_S: Final = 10.0
"""Between two writes that tell of nothing but progress: masters publish every two seconds."""

_CONDITIONS: Final = frozenset(JobPhase) - {JobPhase.PENDING, JobPhase.STARTING}
"""Phases that are a condition, which holds as long as the job is in it."""

_AT_ONCE: Final = (
    "phase", "reason", "conditions", "master_pod", "observed_generation", "master_failures",
    "failed_master", "started_s", "ended_s", "desired_workers", "master_restarts",
    "worker_failures", "workers_lost", "servers_lost", "redis_lost", "checkpoint_problem", "export",
    "predictions",
)  # fmt: skip
"""Fields whose change is told at once; any other is progress."""

_OF_WORKERS: Final = ("role", "index", "launch", "phase", "last_exit")
"""The same, of each worker."""

_OF_THE_WRITING: Final = ("time_split", "written_s")
"""What differs at every moment, and is no reason to write."""
SUSPENDED: Final = "Suspended"
SUSPENDING: Final = "Suspending"
RESUMING: Final = "Resuming"
SUBMITTING: Final = "Submitting"
MASTER_LOST: Final = "MasterLost"

_BEFORE_A_MASTER: Final = frozenset({JobPhase.PENDING, JobPhase.SUSPENDED})

SETTLE_S: Final = 10.0
"""How long after a master's own end what it has published may still be on its way to us: pods and
what they publish are watched apart."""
NUM_WORKERS_ANNOTATION: Final = "elastic.dev/num-workers"
"""Of the record: the number of workers that the resource had when it was passed on last. What is
asked of the job by `elastic scale` since is not taken back."""

_WORKERS: Final = "num_workers"
_NAMES: Final = {
    "volume": "spec.state or spec.job.volume",
    "image": "spec.image",
    "queue": "spec.queue",
}
INVALID: Final = "InvalidSpec"


@dataclass(frozen=True, slots=True)
class Found:
    """How a job stands.

    Attributes:
        again_in_s: When it may stand otherwise although nothing has changed.
    """

    status: JobStatus
    again_in_s: float | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """What is to be told.

    Attributes:
        status: As it is to be; just as it was written where nothing is new, or it is too soon.
        again_in_s: When there may be more to tell, although nothing has changed.
    """

    status: Manifest
    notes: tuple[Note, ...] = ()
    again_in_s: float | None = None


def judge(view: View, reading: Reading[ElasticTrainJobSpec]) -> Seen:
    """What is to be told of a job.

    Args:
        view: The job.
        reading: Of its spec as it is now.
    """
    if view.phase is not None and view.phase.is_final and not _has_published_end(view):
        # Nothing that is seen later makes another end of it.
        return Seen(view.written)
    found = find(view)
    queue = _queue_notes(view, found.status)
    notes = (*_notes(view, found.status), *queue, *edit_notes(view, reading))
    remembered = _remembered(view, found.status, queue)
    status = status_of(found.status, remembered, view.now_s)
    return _paced(view, status, notes, found)


def _has_published_end(view: View) -> bool:
    return view.published is not None and view.published.phase.is_final


def status_of(told: JobStatus, remembered: Remembered, now_s: float) -> Manifest:
    """A status as it is written: what `elastic status -o json` prints, and what is remembered."""
    own = remembered.model_dump(mode="json", by_alias=True, exclude={"conditions"})
    own["conditions"] = [
        each.model_dump(mode="json", by_alias=True) for each in remembered.conditions
    ]
    whole: Manifest = without_blanks(document(as_of(told, now_s)) | own)
    return whole


def _paced(view: View, status: Manifest, notes: tuple[Note, ...], found: Found) -> Seen:
    """Tell what is new at once, and mere progress now and then."""
    if _counted(status) == _counted(view.written):
        return Seen(view.written, notes, found.again_in_s)
    wait_s = (view.before.written_s or 0.0) + PROGRESS_S - view.now_s
    # A clock that was set back must not hold anything up.
    if notes or _news(status) != _news(view.written) or not 0 < wait_s <= PROGRESS_S:
        return Seen(status | {"written_s": view.now_s}, notes, found.again_in_s)
    return Seen(view.written, (), wait_s)


def _counted(status: Manifest) -> Manifest:
    return {key: value for key, value in status.items() if key not in _OF_THE_WRITING}


def _news(status: Manifest) -> tuple[Any, ...]:
    workers = [{key: row.get(key) for key in _OF_WORKERS} for row in status.get("workers") or ()]
    return (*(status.get(key) for key in _AT_ONCE), workers)


def _remembered(view: View, found: JobStatus, queue: Sequence[Note]) -> Remembered:
    now = conditions(view.before.conditions, found, view.now_s)
    change: dict[str, Any] = {
        "conditions": with_queue_notes(now, queue, view.now_s),
        "master_pod": _master_pod(view),
        "observed_generation": view.generation,
    }
    if view.master is not None and view.is_new_failure:
        change["master_failures"] = view.master_failures
        change["failed_master"] = uid_of(view.master)
    return view.before.model_copy(update=change)


def _master_pod(view: View) -> str:
    return "" if view.master is None or view.life in LOST else name_of(view.master)


def conditions(
    before: tuple[Condition, ...], found: JobStatus, now_s: float
) -> tuple[Condition, ...]:
    """The conditions of a job in a phase: the phase's own holds, those of others no longer.

    A message is that of the moment at which its condition came to hold, or its reason changed.
    """
    if not before:
        message = f"{KIND} {found.job_name} is created"
        before = with_condition(
            (), CREATED, ConditionStatus.TRUE, f"{KIND}{CREATED}", message, now_s
        )
    phase, now = found.phase, before
    for each in before:
        if each.type in _CONDITIONS and each.type != phase and each.status is ConditionStatus.TRUE:
            now = with_condition(
                now, each.type, ConditionStatus.FALSE, each.reason, each.message, now_s
            )
    reason = found.reason or f"{KIND}{phase}"
    last = next((each for each in now if each.type == phase), None)
    holds = last is not None and (last.status, last.reason) == (ConditionStatus.TRUE, reason)
    if phase not in _CONDITIONS or holds:
        return now
    return with_condition(
        now, phase.value, ConditionStatus.TRUE, reason, found.message or _words(found), now_s
    )


def _words(found: JobStatus) -> str:
    return f"{KIND} {found.job_name} is {found.phase.value.lower()}"


def _queue_notes(view: View, found: JobStatus) -> Sequence[Note]:
    """That its queue is not there, or has come."""
    if found.phase.is_final:
        return ()
    is_told = is_queue_missing(view.before.conditions)
    return queue_notes(view.job.spec.queue, view.job.namespace, view.lacks_queue, is_told)


def _notes(view: View, found: JobStatus) -> Iterator[Note]:
    if view.phase is None:
        yield Note(f"{KIND}{CREATED}", f"{KIND} {found.job_name} is created")
    elif found.phase is not view.phase:
        type_ = EventType.WARNING if found.phase is JobPhase.FAILED else EventType.NORMAL
        yield Note(f"{KIND}{found.phase}", found.message or _words(found), type_)
    is_lost = bool(view.before.master_pod) and view.life in LOST
    if found.phase.is_final:
        return
    if view.is_suspended:
        if found.reason == SUSPENDING != view.written.get("reason"):
            yield from _note_without_state(view, "it begins again when it is resumed")
    elif is_lost:
        why = f"{view.before.master_pod} {_why_lost(view)}"
        yield Note("MasterLost", f"{why}: {_what_follows(view)}", EventType.WARNING)
        yield from _note_without_state(view, "it begins again")


def _why_lost(view: View) -> str:
    pod = view.master
    if pod is None:
        return "was deleted"
    if view.life is Life.FAILED:
        return f"was ended by the cluster ({why_failed(pod)})"
    return f"is to go, and its node {pod['spec'].get('nodeName')} does not tell that it has"


def _what_follows(view: View) -> str:
    claim = view.claim
    return (
        f"it is made again, and goes on from its newest cut in {claim}"
        if claim
        else ("it is made again")
    )


def _note_without_state(view: View, what: str) -> Iterator[Note]:
    """That a job has nothing to go on from, where that matters."""
    if state_volume(view.job.spec.volume) is not None or not job_has_begun(view.published):
        return
    message = f"{KIND} {view.job.name} has no volume for its state (spec.state): {what}"
    yield Note("BeginsAgain", message, EventType.WARNING)


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
    if told.phase in _BEFORE_A_MASTER and job_has_begun(view.published):
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
    if not job_has_begun(view.published):
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
    if not job_has_begun(view.published):
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
    if job_has_begun(view.published) or view.master is None:
        return None
    created_s = seconds_of(view.master["metadata"]["creationTimestamp"])
    left_s = created_s + view.job.spec.start_timeout + REPORT_S + _TICK_S - view.now_s
    return left_s if left_s > 0 else None


_TICK_S: Final = 0.1
"""Not before, but just after that moment."""


def edit_notes(view: View, reading: Reading[ElasticTrainJobSpec]) -> Iterator[Note]:
    """Events that are told once of each spec.

    Args:
        view: The job.
        reading: Of its spec.
    """
    if view.before.observed_generation == view.generation:
        return
    if reading.problem:
        message = f"the job goes on as it is, since {reading.problem}"
        yield Note("InvalidSpec", message, EventType.WARNING)
    elif reading.unknown:
        fields = ", ".join(reading.unknown)
        message = f"kept and without effect: {fields}; is one of them misspelt?"
        yield Note("UnknownFields", message, EventType.WARNING)
    is_over = view.phase is not None and view.phase.is_final
    if view.record is None or is_over:
        return
    if ignored := list(ignored_edits(view)):
        message = (
            f"the job keeps what it was submitted with, so this has no effect: "
            f"{', '.join(ignored)}; delete it and apply it again to have it so"
        )
        yield Note("EditIgnored", message, EventType.WARNING)
    if problem := range_problem(view):
        yield Note("EditIgnored", problem, EventType.WARNING)


def ignored_edits(view: View) -> Iterator[str]:
    """Fields in which the resource asks for another job than that which was submitted."""
    if view.asked is None:
        return
    asked, recorded = spec_for_pods(view.asked, None), view.job.spec
    for setting in settings():
        name = setting.name
        if name != _WORKERS and getattr(asked, name) != getattr(recorded, name):
            yield _NAMES.get(name, f"spec.job.{name}")


def wanted_workers(view: View) -> int | None:
    """How many workers an edit asks for that has not been passed on; None where there is none.

    The most that the range in the spec allows: its limits themselves stay those that the job was
    submitted with, by which its updates are made.
    """
    asked = _edited_range(view)
    if asked is None or range_problem(view):
        return None
    return asked.maximum


def range_problem(view: View) -> str:
    """Why an edit of the number of workers has no effect; empty where it has, or there is none."""
    asked, limits = _edited_range(view), view.job.spec.num_workers
    if asked is None or limits.minimum <= asked.maximum <= limits.maximum:
        return ""
    return (
        f"spec.job.{_WORKERS}={asked}: the job was submitted with {limits}, and keeps the workers "
        "that it has: choose a number within that"
    )


def _edited_range(view: View) -> WorkerRange | None:
    if view.asked is None or view.record is None:
        return None
    annotations = view.record["metadata"].get("annotations") or {}
    passed_on = annotations.get(NUM_WORKERS_ANNOTATION, str(view.job.spec.num_workers))
    asked = view.asked.num_workers
    return None if str(asked) == passed_on else asked


def refused(observed: Observed, problem: str) -> Outcome:
    """A job that has not begun is failed, with what is wrong; one that has goes on as it is.

    Args:
        observed: With no record that says what the job is.
        problem: Names the field and its value.
    """
    name = name_of(observed.job)
    written = observed.job.get("status") or {}
    before, phase = remembered(written), written_phase(written)
    generation = int(observed.job["metadata"].get("generation", 1))
    if phase is not None and phase.is_final:
        return Outcome(status=written)
    if any(observed.children.values()):
        if before.observed_generation == generation:
            return Outcome(status=written)
        message = f"{KIND} {name} keeps what it has, since {problem}"
        status = written | {"observed_generation": generation}
        return Outcome(status=status, notes=(Note(INVALID, message, EventType.WARNING),))
    return _failed(observed, problem)


def rejected(observed: Observed, problem: str) -> Outcome | None:
    """A job of which no master can be made is failed, unless one has begun before.

    Args:
        observed: What there is.
        problem: Which object cannot be made, and why.
    """
    phase = written_phase(observed.job.get("status") or {})
    # What comes beside a master, as a TensorBoard, is no reason to end it.
    is_there = bool(observed.children.get(PODS))
    return None if is_there or phase not in (None, JobPhase.PENDING) else _failed(observed, problem)


def _failed(observed: Observed, problem: str) -> Outcome:
    name, now_s = name_of(observed.job), observed.now_s
    before = remembered(observed.job.get("status") or {})
    failed = JobStatus(
        job_name=name, phase=JobPhase.FAILED, reason=INVALID, message=problem, ended_s=now_s
    )
    change = {
        "conditions": conditions(before.conditions, failed, now_s),
        "observed_generation": int(observed.job["metadata"].get("generation", 1)),
        "written_s": now_s,
    }
    note = Note(INVALID, f"{KIND} {name} is failed because {problem}", EventType.WARNING)
    return Outcome(status=status_of(failed, before.model_copy(update=change), now_s), notes=(note,))
