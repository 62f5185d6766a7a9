"""How many trainers and parameter servers a TrainingJob is to have. Pure.

Every job has its minimum: what else there is room for is a matter of all jobs together.
"""

from dataclasses import dataclass

from elastic.controller.resources.training_job import (
    Role,
    RoleScale,
    TrainingJobSpec,
    TrainingJobStatus,
)


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


def wanted_sizes(spec: TrainingJobSpec, _status: TrainingJobStatus) -> Sizes:
    """The sizes of a job that nobody scales: its smallest ones."""
    return Sizes(_minimum(spec.trainer.min_instance), _minimum(spec.pserver.min_instance))


def given_sizes(spec: TrainingJobSpec, status: TrainingJobStatus) -> Sizes:
    """The sizes that an autoscaler has written down, within the range that the job has now."""
    if not spec.fault_tolerant:
        return wanted_sizes(spec, status)
    trainer, pserver, scale = spec.trainer, spec.pserver, status.scale_status
    return Sizes(
        _given(scale.trainer, trainer.min_instance, trainer.most),
        _given(scale.pserver, pserver.min_instance, pserver.most),
    )


def _minimum(instances: int) -> Size:
    return Size(instances, f"min-instance is {instances}")


def _given(scale: RoleScale, least: int, most: int) -> Size:
    if scale.wanted <= least:
        return Size(least, scale.reason) if scale.wanted == least else _minimum(least)
    if scale.wanted > most:
        return Size(most, f"max-instance is {most}")
    return Size(scale.wanted, scale.reason)
