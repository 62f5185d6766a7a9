"""TrainingJob, as commands see it: sized by its trainers. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from elastic.controller.inspection.seeing import (
    Count,
    Standing,
    check_size,
    default_container,
    labels_of,
    readable,
)
from elastic.controller.kinds.pods import name_of
from elastic.controller.kinds.training_children import LABELS
from elastic.controller.kinds.training_telling import status_of
from elastic.controller.resources.training_job import (
    RESOURCE,
    Phase,
    Role,
    RoleStatus,
    TrainingJobSpec,
    TrainingJobStatus,
    read_job,
)
from elastic.errors import JobSpecError
from elastic.platforms.kubernetes.api.resources import Manifest, Resource


@dataclass(frozen=True, slots=True)
class SeenTrainingJobs:
    """See `Seen`."""

    resource: Resource = RESOURCE
    roles: Sequence[str] = tuple(Role)
    indexed_role: str | None = None

    def standing(self, job: Manifest) -> Standing:
        """By its phase; a job of this kind has no conditions."""
        status, spec = status_of(job), read_job(job).spec
        return Standing(status.phase.value, _count(spec, status), message=status.reason)

    def selectors(self, name: str) -> Sequence[str]:
        """Each role has a label of its own, whose value is the job."""
        return tuple(f"{LABELS[role]}={name}" for role in Role)

    def role_of(self, pod: Manifest) -> tuple[str, int | None]:
        """By its label; pods of ReplicaSets and of such a Job have no index."""
        labels = labels_of(pod)
        return next((role for role, label in LABELS.items() if label in labels), "pod"), None

    def container(self, pod: Manifest) -> str:
        """There is one."""
        return default_container(pod)

    def resized(self, job: Manifest, size: int) -> Manifest:
        """Another least number of trainers, which is what a job runs at.

        Raises:
            JobSpecError: It is above the most, or the trainers of the job cannot change in number.
        """
        reference = f"trainingjob/{name_of(job)}"
        spec, status = readable(reference, read_job(job)), status_of(job)
        if reason := _why_fixed(spec, status):
            now = spec.trainer.min_instance
            raise JobSpecError(f"{reference} stays at its {now} trainers: {reason}")
        fields = "trainer.min-instance and trainer.max-instance"
        check_size(reference, size, 1, spec.trainer.max_instance, fields)
        return {"spec": {"trainer": {"min-instance": size}}}


def _why_fixed(spec: TrainingJobSpec, status: TrainingJobStatus) -> str:
    """Why the trainers cannot become more or fewer; empty where they can."""
    if status.phase is not Phase.NONE and not spec.fault_tolerant:
        return (
            "without fault_tolerant they count on each other, and those that run are not told of "
            "another number; edit spec.trainer.min-instance where that is no matter"
        )
    if any(each.succeeded for each in _trainers(status)):
        return "Kubernetes starts no trainer after the first success"
    return ""


def _trainers(status: TrainingJobStatus) -> list[RoleStatus]:
    roles = status.replica_statuses
    return [each for each in roles if each.training_resource_type is Role.TRAINER]


def _count(spec: TrainingJobSpec | None, status: TrainingJobStatus) -> Count:
    ready = sum(each.active for each in _trainers(status))
    if spec is None:
        return Count(Role.TRAINER, ready)
    # 0 stands for a job that was not looked at yet.
    wanted = status.scale_of(Role.TRAINER).wanted or spec.trainer.min_instance
    return Count(Role.TRAINER, ready, wanted, spec.trainer.min_instance, spec.trainer.most)
