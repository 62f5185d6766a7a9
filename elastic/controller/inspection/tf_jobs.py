"""TFJob, as commands see it: sized by its workers. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from elastic.controller.inspection.seeing import (
    Count,
    Standing,
    check_size,
    default_container,
    newest,
    readable,
    replica_of,
    selector_of,
)
from elastic.controller.kinds.pods import name_of
from elastic.controller.kinds.tf_objects import GROUP
from elastic.controller.kinds.tf_plan import size_of
from elastic.controller.kinds.tf_status import SCHEDULED
from elastic.controller.resources.common import Condition, ConditionStatus, ReplicaStatus
from elastic.controller.resources.tf_job import (
    CONTAINER,
    RESOURCE,
    Role,
    TFJobSpec,
    TFJobStatus,
    read_status,
    read_tf_job,
)
from elastic.errors import JobSpecError
from elastic.platforms.kubernetes.api.resources import Manifest, Resource

_PHASES: Final = ("Failed", "Succeeded", "Suspended", "Restarting", "Running", "Created")
"""Conditions by what they say of a job, the strongest first; `Suspended` is of Kubeflow's own."""


@dataclass(frozen=True, slots=True)
class SeenTFJobs:
    """See `Seen`."""

    resource: Resource = RESOURCE
    roles: Sequence[str] = tuple(role.task_type for role in Role)
    indexed_role: str | None = Role.WORKER.task_type

    def standing(self, job: Manifest) -> Standing:
        """By its conditions: the order in which they came to hold says less than what they say."""
        status, spec = read_status(job), read_tf_job(job).spec
        holding = {
            each.type: each for each in status.conditions if each.status is ConditionStatus.TRUE
        }
        last = newest(status.conditions)
        phase = next((each for each in _PHASES if each in holding), last.type if last else "")
        why = _waits(status) if phase == "Created" else None
        why = why or holding.get(phase)
        return Standing(
            phase,
            _count(spec, status),
            why.reason if why else "",
            why.message if why else "",
            status.conditions,
        )

    def selectors(self, name: str) -> Sequence[str]:
        """By the labels of the job."""
        return (selector_of(name, GROUP),)

    def role_of(self, pod: Manifest) -> tuple[str, int | None]:
        """By its labels."""
        return replica_of(pod)

    def container(self, pod: Manifest) -> str:
        """The one that decides how a replica has ended."""
        names = [each["name"] for each in pod["spec"].get("containers") or ()]
        return CONTAINER if CONTAINER in names else default_container(pod)

    def resized(self, job: Manifest, size: int) -> Manifest:
        """Another number of workers.

        Raises:
            JobSpecError: There are none, or the number is outside of what its pods know of.
        """
        reference = f"tfjob/{name_of(job)}"
        spec = readable(reference, read_tf_job(job))
        if Role.WORKER not in spec.roles:
            raise JobSpecError(f"{reference} has no workers, and other roles keep their size")
        # Without a maximum the pods that run were told of no more workers than there were to be.
        has_begun = read_status(job).start_time is not None
        high = spec.max_instances or (spec.worker_range[1] if has_begun else None)
        check_size(reference, size, spec.min_instances or 1, high, "min-instances, max-instances")
        return {"spec": {"tfReplicaSpecs": {"Worker": {"replicas": size}}}}


def _waits(status: TFJobStatus) -> Condition | None:
    """Why a job has no place yet."""
    return next(
        (
            each
            for each in status.conditions
            if each.type == SCHEDULED and each.status is ConditionStatus.FALSE
        ),
        None,
    )


def _count(spec: TFJobSpec | None, status: TFJobStatus) -> Count:
    """Of the workers; of the one that trains alone where there are none."""
    role = Role.WORKER
    if spec is not None and Role.WORKER not in spec.roles:
        role = next((each for each in (Role.CHIEF, Role.MASTER) if each in spec.roles), role)
    told = status.replica_statuses.get(role.value) or ReplicaStatus.model_validate({})
    ready = told.active
    if spec is None:
        return Count(role.task_type, ready)
    if role is not Role.WORKER:
        return Count(role.task_type, ready, 1, 1, 1)
    low, _, high = spec.worker_range
    return Count(role.task_type, ready, size_of(spec, status), low, high)
