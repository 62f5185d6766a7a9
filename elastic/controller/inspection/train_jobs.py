"""ElasticTrainJob, as commands see it where it is an object and no job of ours yet. Pure.

As soon as its record is there, `elastic` knows it as any other job of its own, which tells more.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pydantic import ValidationError

from elastic.controller.inspection.seeing import Count, Standing, default_container, replica_of
from elastic.controller.kinds.pods import name_of
from elastic.controller.resources.base import read_spec
from elastic.controller.resources.elastic_train_job import (
    RESOURCE,
    ElasticTrainJobSpec,
    ElasticTrainJobStatus,
)
from elastic.errors import JobSpecError
from elastic.platforms.kubernetes.api.resources import Manifest, Resource
from elastic.platforms.kubernetes.objects.names import INDEX_LABEL, TYPE_LABEL, job_selector
from elastic.policy.replicas import ReplicaPhase
from elastic.spec.job import WorkerRange
from elastic.spec.roles import ROLES, WORKER


@dataclass(frozen=True, slots=True)
class SeenTrainJobs:
    """See `Seen`."""

    resource: Resource = RESOURCE
    roles: Sequence[str] = tuple(ROLES)
    indexed_role: str | None = WORKER

    def standing(self, job: Manifest) -> Standing:
        """By what its controller has copied of the job's status."""
        status = _status_of(job)
        limits = _workers_of(job)
        count = Count(WORKER)
        if limits is not None:
            wanted = limits.maximum if status is None else status.desired_workers
            count = Count(WORKER, 0, wanted, limits.minimum, limits.maximum)
        if status is None:
            return Standing("", count)
        running = sum(each.phase == ReplicaPhase.RUNNING for each in status.workers)
        return Standing(
            status.phase.value,
            replace(count, ready=running),
            status.reason,
            status.message,
            status.conditions,
        )

    def selectors(self, name: str) -> Sequence[str]:
        """By the labels of all jobs of ours."""
        return (job_selector(name),)

    def role_of(self, pod: Manifest) -> tuple[str, int | None]:
        """By its labels."""
        return replica_of(pod, TYPE_LABEL, INDEX_LABEL)

    def container(self, pod: Manifest) -> str:
        """The first, unless the pod says otherwise."""
        return default_container(pod)

    def resized(self, job: Manifest, size: int) -> Manifest:  # noqa: ARG002 - see Raises
        """Its master does so, as for any job of ours.

        Raises:
            JobSpecError: Always: it has no master yet.
        """
        raise JobSpecError(f"elastictrainjob/{name_of(job)} has no master yet that could scale it")


def _workers_of(job: Manifest) -> WorkerRange | None:
    spec = read_spec(ElasticTrainJobSpec, job).spec
    if spec is None:
        return None
    metadata = job["metadata"]
    try:
        return spec.job_spec(metadata["name"], metadata["namespace"]).num_workers
    except JobSpecError:
        return None


def _status_of(job: Manifest) -> ElasticTrainJobStatus | None:
    """What its controller has told; None where it has not, or it cannot be read."""
    try:
        return ElasticTrainJobStatus.model_validate({"job_name": name_of(job)} | job["status"])
    except (KeyError, TypeError, ValidationError):
        return None
