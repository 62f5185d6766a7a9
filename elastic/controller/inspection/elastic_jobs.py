"""ElasticJob, as commands see it: sized by its workers. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from elastic.controller.inspection.seeing import (
    Count,
    Standing,
    check_size,
    default_container,
    lenient,
    newest,
    readable,
    replica_of,
    selector_of,
)
from elastic.controller.kinds.elastic_job.objects import STORE, WORKER
from elastic.controller.kinds.pods import name_of
from elastic.controller.resources.base import read_spec
from elastic.controller.resources.elastic_job import (
    GROUP,
    RESOURCE,
    ElasticJobSpec,
    ElasticJobStatus,
)
from elastic.platforms.kubernetes.api.resources import Manifest, Resource


@dataclass(frozen=True, slots=True)
class SeenElasticJobs:
    """See `Seen`."""

    resource: Resource = RESOURCE
    roles: Sequence[str] = (WORKER, STORE)
    indexed_role: str | None = WORKER

    def standing(self, job: Manifest) -> Standing:
        """By its phase, and the condition that came to hold last."""
        status = lenient(ElasticJobStatus, job)
        spec = read_spec(ElasticJobSpec, job).spec
        why = newest(status.conditions)
        count = Count(WORKER, status.replica_statuses.worker.active)
        if spec is not None:
            limits = (spec.min_size, spec.max_size)
            count = Count(WORKER, count.ready, spec.replicas, *limits)
        return Standing(
            status.phase or "",
            count,
            why.reason if why else "",
            why.message if why else "",
            status.conditions,
        )

    def selectors(self, name: str) -> Sequence[str]:
        """By the labels of the job."""
        return (selector_of(name, GROUP),)

    def role_of(self, pod: Manifest) -> tuple[str, int | None]:
        """By its labels; the store where workers meet has no index."""
        return replica_of(pod)

    def container(self, pod: Manifest) -> str:
        """The first, unless the pod says otherwise."""
        return default_container(pod)

    def resized(self, job: Manifest, size: int) -> Manifest:
        """Another number of workers, within what the spec gives as limits.

        A limit that is left out follows the number.

        Raises:
            JobSpecError: It is outside of the limits, or they cannot be read.
        """
        reference = f"elasticjob/{name_of(job)}"
        spec = readable(reference, read_spec(ElasticJobSpec, job))
        low, high = spec.min_replicas or 1, spec.max_replicas
        check_size(reference, size, low, high, "minReplicas and maxReplicas")
        return {"spec": {"replicaSpecs": {"Worker": {"replicas": size}}}}
