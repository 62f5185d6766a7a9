"""How many trainers and parameter servers a TrainingJob is to have. Pure.

Every job has its minimum: what else there is room for is a matter of all jobs together.
"""

from dataclasses import dataclass

from elastic.controller.resources.training_job import Role, TrainingJobSpec


@dataclass(frozen=True, slots=True)
class Size:
    """How many instances of a role.

    Attributes:
        reason: Why so many, for people.
    """

    wanted: int
    reason: str


@dataclass(frozen=True, slots=True)
class Sizes:
    """Those of the roles that have a range."""

    trainers: Size
    pservers: Size

    def of(self, role: Role) -> Size:
        """The size of a role; a job has one master at most."""
        match role:
            case Role.TRAINER:
                return self.trainers
            case Role.PSERVER:
                return self.pservers
        return Size(1, "a job has one master")


def wanted_sizes(spec: TrainingJobSpec) -> Sizes:
    """The sizes that a job is to have now."""
    return Sizes(_minimum(spec.trainer.min_instance), _minimum(spec.pserver.min_instance))


def _minimum(instances: int) -> Size:
    return Size(instances, f"min-instance is {instances}")
