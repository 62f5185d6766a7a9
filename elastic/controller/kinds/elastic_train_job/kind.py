"""What is told, and what is done, of one ElasticTrainJob at one moment."""

from elastic.controller.kinds.clocks import soonest
from elastic.controller.kinds.elastic_train_job.actions import end_actions, live_actions
from elastic.controller.kinds.elastic_train_job.judgement import judge
from elastic.controller.kinds.elastic_train_job.refusing import refused
from elastic.controller.kinds.elastic_train_job.view import (
    CHILDREN,
    read_resource,
    view_of,
)
from elastic.controller.reconciling import Observed, Outcome
from elastic.controller.resources.elastic_train_job import RESOURCE
from elastic.errors import PlatformError
from elastic.platforms.kubernetes.api.resources import SECRETS, Manifest, Resource
from elastic.platforms.kubernetes.objects.names import TRAIN_JOB_LABEL
from elastic.platforms.kubernetes.pods.containers import is_deleted


class ElasticTrainJobs:
    """The kind ElasticTrainJob; see `Kind`."""

    resource = RESOURCE
    children = CHILDREN
    unwatched = (SECRETS,)
    component = "elastic-train-job-controller"
    sees_cluster = False

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
            view = view_of(observed, reading.spec, asked)
        except PlatformError as error:
            return refused(observed, str(error))
        if view is None:
            return refused(observed, reading.problem)
        seen = judge(view, reading)
        if seen.status != written:
            return Outcome(status=seen.status, notes=seen.notes, again_in_s=0.0)
        is_over = view.phase is not None and view.phase.is_final
        actions, again_in_s = (end_actions if is_over else live_actions)(view)
        return Outcome(actions, written, again_in_s=soonest(again_in_s, seen.again_in_s))
