"""What is told, and what is done, of one ElasticTrainJob at one moment."""

from collections.abc import Sequence
from typing import Final

from elastic.controller.kinds.clocks import soonest
from elastic.controller.kinds.elastic_train_job.actions import end_actions, live_actions
from elastic.controller.kinds.elastic_train_job.judgement import judge
from elastic.controller.kinds.elastic_train_job.refusing import refused, rejected
from elastic.controller.kinds.elastic_train_job.view import (
    CHILDREN,
    View,
    read_resource,
    view_of,
)
from elastic.controller.kinds.queueing import Queues, queue_of
from elastic.controller.kinds.rejecting import words_of
from elastic.controller.reconciling import Observed, Outcome, Rejection
from elastic.controller.resources.elastic_train_job import RESOURCE
from elastic.errors import PlatformError
from elastic.platforms.kubernetes.api.resources import (
    PERSISTENT_VOLUME_CLAIMS,
    SECRETS,
    Manifest,
    Resource,
)
from elastic.platforms.kubernetes.objects.names import TRAIN_JOB_LABEL
from elastic.platforms.kubernetes.objects.queues import QUEUE_LABEL
from elastic.platforms.kubernetes.pods.states import is_deleted

_CLAIM: Final = "spec.state.volumeClaimTemplate"
"""What the claim of a job's state is made from."""


class ElasticTrainJobs:
    """The kind ElasticTrainJob; see `Kind`."""

    resource = RESOURCE
    unwatched = (SECRETS,)
    component = "elastic-train-job-controller"
    sees_cluster = False

    def __init__(self, queues: Queues | None = None) -> None:
        """Args: the queues of the cluster, in which the pods of a job may wait."""
        self._queues = queues or Queues()
        self.children: Sequence[Resource] = (*CHILDREN, *self._queues.groups)
        self.looks_at = self._queues.looks_at

    def job_of(self, resource: Resource, child: Manifest) -> str | None:
        """By the label of what was made from a resource; no other job's objects have it."""
        if resource not in self.children:
            return None
        labels = child["metadata"].get("labels") or {}
        return labels.get(TRAIN_JOB_LABEL)

    def reconcile(self, observed: Observed) -> Outcome:
        """Tell what is new, or else do what is to be done."""
        written = observed.job.get("status") or {}
        if is_deleted(observed.job):
            # What belongs to it goes with it; anything made now would too.
            return Outcome(status=written)
        reading, asked = read_resource(observed.job)
        try:
            view = view_of(observed, reading.spec, asked, self._queues)
        except PlatformError as error:
            return refused(observed, str(error))
        if view is None:
            return refused(observed, reading.problem)
        is_over = view.phase is not None and view.phase.is_final
        # One that has begun is not ended by what becomes of a queue's system.
        if view.record is None and not is_over and (problem := self._problem(view)):
            return refused(observed, problem)
        seen = judge(view, reading)
        if seen.status != written:
            return Outcome(status=seen.status, notes=seen.notes, again_in_s=0.0)
        actions, again_in_s = (end_actions if is_over else live_actions)(view)
        return Outcome(actions, written, again_in_s=soonest(again_in_s, seen.again_in_s))

    def rejected(self, observed: Observed, rejection: Rejection) -> Outcome | None:
        """A job that has not begun is failed; see `refusing.rejected`."""
        is_claim = rejection.create.resource == PERSISTENT_VOLUME_CLAIMS
        return rejected(observed, words_of(rejection, _CLAIM if is_claim else ""))

    def _problem(self, view: View) -> str:
        """Why a job cannot wait where it asks to; empty where it can."""
        if view.spec is None or view.asked is None:
            return ""
        queue, label = view.asked.queue, queue_of(view.resource)
        field = f"metadata.labels.{QUEUE_LABEL}" if label else view.spec.queue_field
        return self._queues.problem_with(queue, field)
