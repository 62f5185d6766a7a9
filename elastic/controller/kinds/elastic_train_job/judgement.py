"""What is told of an ElasticTrainJob: its status, its conditions, and events. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from elastic.controller.kinds.elastic_train_job.edits import edit_notes
from elastic.controller.kinds.elastic_train_job.found import SUSPENDING, Found, find
from elastic.controller.kinds.elastic_train_job.view import LOST, Life, View
from elastic.controller.kinds.pods import (
    name_of,
    uid_of,
)
from elastic.controller.kinds.queueing import is_queue_missing, queue_notes, with_queue_notes
from elastic.controller.reconciling import EventType, Note
from elastic.controller.resources.base import Reading
from elastic.controller.resources.common import (
    Condition,
    ConditionStatus,
    with_condition,
    without_blanks,
)
from elastic.controller.resources.elastic_train_job import ElasticTrainJobSpec, Remembered
from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.platforms.kubernetes.pods.masters import has_begun
from elastic.platforms.kubernetes.pods.states import (
    why_failed,
)
from elastic.policy.time_account import as_of
from elastic.spec.settings.cluster_forms import state_volume
from elastic.spec.status import JobPhase, JobStatus
from elastic.spec.status.document import document

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
    if state_volume(view.job.spec.volume) is not None or not has_begun(view.published):
        return
    message = f"{KIND} {view.job.name} has no volume for its state (spec.state): {what}"
    yield Note("BeginsAgain", message, EventType.WARNING)
