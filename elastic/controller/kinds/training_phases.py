"""In which phase a TrainingJob is, by its trainers. Pure.

Once a trainer has succeeded, Kubernetes starts no other of its Job and lets those that run come to
their end: from then on the job's size is what it is. It takes a trainer that was asked to go, and
ends with 0, for one that has succeeded; we do not, and can only let the others come to their end.
"""

from dataclasses import dataclass
from typing import Final

from elastic.controller.kinds.training_pods import Group, failures
from elastic.controller.resources.training_job import Phase
from elastic.platforms.kubernetes.pods.states import has_failed

TRANSITIONS: Final = {
    Phase.NONE: frozenset({Phase.CREATING, Phase.FAILED}),
    Phase.CREATING: frozenset({Phase.RUNNING, Phase.FAILED}),
    Phase.RUNNING: frozenset({Phase.SUCCEEDED, Phase.FAILED}),
    Phase.SUCCEEDED: frozenset[Phase](),
    Phase.FAILED: frozenset[Phase](),
}


@dataclass(frozen=True, slots=True)
class End:
    """How a job has ended.

    Attributes:
        reason: Why it failed, for people; empty where it succeeded.
    """

    phase: Phase
    reason: str = ""


SUCCESS: Final = End(Phase.SUCCEEDED)


def end_of(trainers: Group, fault_tolerant: bool) -> End | None:
    """How the trainers have ended their job; None while they have not."""
    if trainers.owner is None or trainers.is_leaving:
        return None
    return _end_of_tolerant(trainers) if fault_tolerant else _end_of_strict(trainers)


def _end_of_strict(trainers: Group) -> End | None:
    """Each trainer has a part of every step: it takes one to fail, and all to succeed."""
    if trainers.failed:
        return _failed(f"a trainer failed: {failures(trainers.failed)}")
    if trainers.active:
        return None
    if 0 < trainers.num_succeeded >= trainers.size:
        return SUCCESS
    if trainers.is_complete:
        return _failed(
            f"{trainers.num_succeeded} of {trainers.size} trainers succeeded and the others were "
            "deleted: Kubernetes starts no pod of a Job after its first success"
        )
    return _given_up(trainers)


def _end_of_tolerant(trainers: Group) -> End | None:
    """The trainers take tasks from a queue: whoever is left goes on, and the last one to succeed
    has seen its end.
    """
    if trainers.active:
        return None
    if trainers.num_succeeded:
        return SUCCESS
    # Earlier ones were replaced. What was deleted is no failure, and is about to be replaced.
    num_needed = max(trainers.size, 1)
    newest = trainers.pods[-num_needed:]
    if len(newest) == num_needed and all(has_failed(pod) for pod in newest):
        return _failed(f"all trainers failed: {failures(newest)}")
    if trainers.is_complete:
        told = failures(trainers.failed) or "the others were deleted"
        return _failed(f"no trainer succeeded, and Kubernetes starts none any more: {told}")
    return _given_up(trainers)


def _given_up(trainers: Group) -> End | None:
    if not trainers.job_failure:
        return None
    return _failed(f"Kubernetes gave up the Job of the trainers: {trainers.job_failure}")


def _failed(reason: str) -> End:
    return End(Phase.FAILED, reason)


def next_phase(phase: Phase, end: End | None, all_run: bool) -> Phase:
    """The phase after this one; the same where nothing has changed.

    A job is seen running before it is seen to have succeeded, however short it was.

    Args:
        phase: One that is not final.
        end: How its trainers have ended it.
        all_run: Whether all that it needs is there, and every trainer runs or has succeeded.
    """
    wanted = phase
    if phase is Phase.NONE:
        wanted = Phase.CREATING
    elif end is not None:
        wanted = end.phase
    elif all_run:
        wanted = Phase.RUNNING
    if wanted is phase or wanted in TRANSITIONS[phase]:
        return wanted
    return Phase.RUNNING
