"""An ElasticJob: workers that are alike and find each other, between a minimum and a maximum."""

from enum import StrEnum
from typing import Annotated, Final, Self

from pydantic import Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from elastic.controller.resources.common import (
    Condition,
    Count,
    Fields,
    PodTemplate,
    Replicas,
    ReplicaStatus,
    RestartPolicy,
    RunPolicy,
    Time,
    template_problem,
)
from elastic.platforms.kubernetes.api.resources import Resource

GROUP: Final = "elastic.pytorch.org"

RESOURCE: Final = Resource(GROUP, "v1alpha1", "elasticjobs", "ElasticJob")

Text = Annotated[str, Field(min_length=1)]


class WorkerSpec(Fields):
    """The workers."""

    replicas: Replicas = Field(
        1, description="Workers wanted, within minReplicas and maxReplicas; may be edited."
    )
    restart_policy: RestartPolicy = Field(
        RestartPolicy.ON_FAILURE,
        description="Of the pods' containers; ExitCode: never restarted in place, and a pod that "
        "a signal or the cluster has ended (codes of 128 and above) is replaced at no cost.",
    )
    template: PodTemplate = Field(description="The pod of one worker.")


class ReplicaSpecs(Fields):
    """By role; there is one."""

    worker: WorkerSpec = Field(alias="Worker", description="The workers, which are all alike.")


class ElasticJobSpec(RunPolicy):
    """What a user writes."""

    rdzv_endpoint: Text | None = Field(
        None,
        description="HOST:PORT at which workers meet, such as that of etcd; a small store is run "
        "for the job where it is left out.",
    )
    min_replicas: Replicas | None = Field(
        None, description="Workers that training needs at least; replicas where left out."
    )
    max_replicas: Replicas | None = Field(
        None, description="Workers that training may have at most; replicas where left out."
    )
    replica_specs: ReplicaSpecs = Field(description="The workers.")

    @property
    def worker(self) -> WorkerSpec:
        return self.replica_specs.worker

    @property
    def replicas(self) -> int:
        """Workers wanted."""
        return self.worker.replicas

    @property
    def min_size(self) -> int:
        """Workers that training needs at least."""
        return self.replicas if self.min_replicas is None else self.min_replicas

    @property
    def max_size(self) -> int:
        """Workers that training may have at most."""
        return self.replicas if self.max_replicas is None else self.max_replicas

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Name the field itself: the whole of the spec would say nothing."""
        here = ("replicaSpecs", "Worker")
        if self.max_size < self.min_size:
            raise _wrong(
                ("maxReplicas",), self.max_size, f"must be at least minReplicas={self.min_size}"
            )
        if not self.min_size <= self.replicas <= self.max_size:
            limits = f"minReplicas={self.min_size} to maxReplicas={self.max_size}"
            raise _wrong((*here, "replicas"), self.replicas, f"must be within {limits}")
        problem = template_problem(self.worker.template)
        if problem is not None:
            path, value, message = problem
            raise _wrong((*here, "template", *path), value, message)
        return self


def _wrong(path: tuple[str | int, ...], value: object, message: str) -> ValidationError:
    # Messages are templates there.
    kind = PydanticCustomError("elastic_job", "{text}", {"text": message})
    details = InitErrorDetails(type=kind, loc=path, input=value)
    return ValidationError.from_exception_data("ElasticJobSpec", [details])


class JobPhase(StrEnum):
    """In one word, for lists."""

    CREATED = "Created"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class FailedPod(StrEnum):
    """What is to become of a pod that has failed; decided once, when it is first seen."""

    FREE = "Free"
    """It is replaced, at no cost."""
    SPENT = "Spent"
    """It is replaced, which has been counted against `backoffLimit`."""
    KEPT = "Kept"
    """Nothing is left to spend."""


class WorkerStatus(ReplicaStatus):
    """The workers, counted."""

    failed: Count = Field(0, description="Pods that ended otherwise, until they are replaced.")


class WorkerStatuses(Fields):
    """By role; there is one."""

    worker: WorkerStatus = Field(
        default_factory=lambda: WorkerStatus.model_validate({}),
        alias="Worker",
        description="The workers, counted.",
    )


class ElasticJobStatus(Fields):
    """What the controller tells, and all that it has to remember."""

    phase: JobPhase | None = Field(None, description="In one word.")
    conditions: tuple[Condition, ...] = Field((), description="What is, and was, the case.")
    replica_statuses: WorkerStatuses = Field(WorkerStatuses(), description="The pods, counted.")
    replicas: Count = Field(0, description="Pods of wanted workers that are there and not over.")
    wanted_replicas: Count | None = Field(None, description="`replicas` as last seen.")
    # None and never empty: the API server refuses an empty one, as scale's `labelSelectorPath`.
    selector: str | None = Field(None, description="The labels of the workers' pods.")
    rdzv_endpoint: str | None = Field(None, description="Where the workers meet.")
    start_time: Time | None = Field(None, description="When the job was first seen.")
    completion_time: Time | None = Field(None, description="When it succeeded or failed.")
    observed_generation: Count = Field(0, description="The newest spec that was seen.")
    restart_count: Count = Field(0, description="Replacements counted against backoffLimit.")
    free_restart_count: Count = Field(
        0, description="Replacements of pods whose end was the cluster's doing, which are free."
    )
    failed_pods: dict[str, FailedPod] = Field(
        default_factory=dict,
        description="By uid: pods that have failed and are still there, each counted already.",
    )
    quick_failures: dict[str, Count] = Field(
        default_factory=dict,
        description="By index: failures in a row, which make the pause before the next replacement "
        "longer.",
    )
    succeeded_workers: tuple[Count, ...] = Field(
        (), description="Indexes of workers that have ended well, also once their pods are gone."
    )
