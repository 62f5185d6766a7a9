"""What follows a spec of which no job can be made: the end of a job of which nothing is there."""

from typing import Final

from elastic.controller.kinds.elastic_train_job.judgement import KIND, conditions, status_of
from elastic.controller.kinds.elastic_train_job.view import remembered, written_phase
from elastic.controller.kinds.pods import name_of
from elastic.controller.reconciling import EventType, Note, Observed, Outcome
from elastic.platforms.kubernetes.api.resources import PODS
from elastic.spec.status import JobPhase, JobStatus

INVALID: Final = "InvalidSpec"


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
