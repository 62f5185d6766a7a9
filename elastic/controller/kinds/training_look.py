"""One look at a TrainingJob that has not ended: what there is, and what there is to be. Pure."""

from dataclasses import dataclass

from elastic.controller.kinds.queueing import Queued
from elastic.controller.kinds.training_pods import Groups
from elastic.controller.kinds.training_sizes import Sizes
from elastic.controller.reconciling import Observed
from elastic.controller.resources.base import Reading
from elastic.controller.resources.training_job import Role, TrainingJobSpec, TrainingJobStatus


@dataclass(frozen=True, slots=True)
class Look:
    """See the module.

    Attributes:
        status: As it was written last.
        reading: Of the spec, which could be read.
        queued: How its trainers wait in a queue; None where they wait in none.
        lacks_queue: Whether the queue that they are to wait in is not there.
    """

    observed: Observed
    groups: Groups
    status: TrainingJobStatus
    reading: Reading[TrainingJobSpec]
    spec: TrainingJobSpec
    sizes: Sizes
    queued: Queued | None = None
    lacks_queue: bool = False

    @property
    def name(self) -> str:
        """The job's."""
        return str(self.observed.job["metadata"]["name"])

    @property
    def roles(self) -> list[Role]:
        """Those that the job has, in the order in which they are created."""
        return [role for role in Role if role is not Role.MASTER or self.spec.master is not None]

    def wanted(self, role: Role) -> int:
        """How many of a role there are to be: no other trainers where Kubernetes starts none."""
        group = self.groups[role]
        is_frozen = role is Role.TRAINER and group.starts_none
        return group.size if is_frozen else self.sizes.of(role).wanted

    def is_ready(self, role: Role) -> bool:
        """Whether all of a role that others need are there and answer."""
        group = self.groups[role]
        return not group.is_leaving and group.num_ready >= self.wanted(role)

    @property
    def all_run(self) -> bool:
        """Whether all that the job needs is there, and every trainer runs or has succeeded."""
        trainers = self.groups[Role.TRAINER]
        others_are_ready = all(self.is_ready(role) for role in self.roles[:-1])
        num_trainers = len(trainers.running) + trainers.num_succeeded
        return others_are_ready and num_trainers >= self.wanted(Role.TRAINER)
