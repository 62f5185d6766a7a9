"""What is told, and what is done, of one ElasticJob at one moment."""

import re
from collections.abc import Sequence
from typing import Any, Final

from pydantic import ValidationError

from elastic.controller.kinds.conditions import JobCondition, holds, told
from elastic.controller.kinds.elastic_job.actions import end_actions, live_actions
from elastic.controller.kinds.elastic_job.judgement import has_ended, judge
from elastic.controller.kinds.elastic_job.objects import WORKER
from elastic.controller.kinds.elastic_job.view import view_of
from elastic.controller.kinds.pods import (
    GROUP_LABEL,
    JOB_LABEL,
    TYPE_LABEL,
    name_of,
    replica_name,
)
from elastic.controller.kinds.queueing import Queues, queue_of
from elastic.controller.kinds.rejecting import words_of
from elastic.controller.reconciling import EventType, Note, Observed, Outcome, Rejection
from elastic.controller.resources.base import Reading, read_spec
from elastic.controller.resources.common import time_text
from elastic.controller.resources.elastic_job import (
    GROUP,
    RESOURCE,
    ElasticJobSpec,
    ElasticJobStatus,
    JobPhase,
)
from elastic.platforms.kubernetes.api.resources import PODS, SERVICES, Manifest, Resource
from elastic.platforms.kubernetes.pods.states import is_deleted

INVALID: Final = "ElasticJobInvalid"
"""The reason of a job that never began, since nobody can tell what it is to be."""

_MAX_NAME: Final = 63
_NAME: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
"""Of a service, and so of a job."""


class ElasticJobs:
    """The kind ElasticJob; see `Kind`."""

    resource = RESOURCE
    unwatched = ()
    component = "elastic-job-controller"
    sees_cluster = False

    def __init__(self, queues: Queues | None = None) -> None:
        """Args: the queues of the cluster, in which the pods of a job may wait."""
        self._queues = queues or Queues()
        self.children: Sequence[Resource] = (PODS, SERVICES, *self._queues.groups)
        self.looks_at = self._queues.looks_at

    def job_of(self, resource: Resource, child: Manifest) -> str | None:
        """By the labels that all objects of a job have."""
        labels = child["metadata"].get("labels") or {}
        if resource not in self.children or labels.get(GROUP_LABEL) != GROUP:
            return None
        return labels.get(JOB_LABEL)

    def reconcile(self, observed: Observed) -> Outcome:
        """Tell what is new, or else do what is to be done."""
        written = observed.job.get("status") or {}
        if is_deleted(observed.job):
            return Outcome(status=written)
        before = _read_status(written)
        reading = _read(observed.job)
        if reading.spec is None:
            return _refused(observed, before, reading.problem)
        # One that has begun is not ended by what becomes of a queue's system.
        if before.start_time is None and (problem := self._queues.problem(observed.job)):
            return _refused(observed, before, problem)
        queued = self._queues.queued(observed.job, reading.spec.min_size)
        view = view_of(observed, reading.spec, before, queued)
        lacks_queue = self._queues.lacks(queue_of(observed.job), observed)
        seen = judge(view, reading.unknown, lacks_queue)
        status = _written(seen.status)
        if status != written:
            return Outcome(status=status, notes=seen.notes, again_in_s=0.0)
        actions, again_in_s = (end_actions if has_ended(before) else live_actions)(view)
        return Outcome(actions, status, again_in_s=again_in_s)

    def rejected(self, observed: Observed, rejection: Rejection) -> Outcome | None:
        """A job whose workers cannot be made is failed, unless enough of them run."""
        before = _read_status(observed.job.get("status") or {})
        if has_ended(before) or holds(before.conditions, JobCondition.RUNNING):
            return None
        labels = rejection.create.manifest["metadata"].get("labels") or {}
        is_worker = rejection.create.resource == PODS and labels.get(TYPE_LABEL) == WORKER
        template = "spec.replicaSpecs.Worker.template" if is_worker else ""
        name = name_of(observed.job)
        message = f"ElasticJob {name} is failed because {words_of(rejection, template)}"
        return _failed(before, {}, message, observed.now_s)


def _read(job: Manifest) -> Reading[ElasticJobSpec]:
    reading = read_spec(ElasticJobSpec, job)
    problem = "" if reading.spec is None else _name_problem(name_of(job), reading.spec)
    return Reading(None, problem, reading.unknown) if problem else reading


def _name_problem(name: str, spec: ElasticJobSpec) -> str:
    longest = replica_name(name, WORKER, spec.max_size - 1)
    if len(longest) <= _MAX_NAME and _NAME.fullmatch(name):
        return ""
    most = _MAX_NAME - (len(longest) - len(name))
    return (
        f"metadata.name={name!r}: must be at most {most} characters, small letters, digits and "
        f"'-', beginning with a letter, since services are called after it, such as {longest}"
    )


def _refused(observed: Observed, before: ElasticJobStatus, problem: str) -> Outcome:
    """A spec that cannot be read fails a job that has not begun; one that runs keeps what it has.

    A slip of an editor shall not end days of training.
    """
    name, now_s = name_of(observed.job), observed.now_s
    generation = observed.job["metadata"].get("generation", 1)
    if before.observed_generation == generation or has_ended(before):
        return Outcome(status=_written(before))
    changes: dict[str, Any] = {"observed_generation": generation}
    if before.start_time is None:
        message = f"ElasticJob {name} is failed because {problem}"
        return _failed(before, changes, message, now_s)
    message = f"ElasticJob {name} keeps its workers as they are, since {problem}"
    notes = (Note(INVALID, message, EventType.WARNING),)
    return Outcome(status=_written(before.model_copy(update=changes)), notes=notes)


def _failed(
    before: ElasticJobStatus, changes: dict[str, Any], message: str, now_s: float
) -> Outcome:
    """The end of a job that cannot be."""
    conditions = told(before.conditions, JobCondition.FAILED, INVALID, message, now_s)
    end = {
        "conditions": conditions, "completion_time": time_text(now_s), "phase": JobPhase.FAILED,
    }  # fmt: skip
    notes = (Note(INVALID, message, EventType.WARNING),)
    return Outcome(status=_written(before.model_copy(update=changes | end)), notes=notes)


def _read_status(written: Manifest) -> ElasticJobStatus:
    """What was written last; a status that is none of ours tells nothing."""
    try:
        return ElasticJobStatus.model_validate(written)
    except ValidationError:
        return ElasticJobStatus.model_validate({})


def _written(status: ElasticJobStatus) -> Manifest:
    return status.model_dump(mode="json", by_alias=True, exclude_none=True)
