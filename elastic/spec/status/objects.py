"""What is told of objects of other kinds, such as a TFJob, and of all jobs in one list.

`ObjectStatus` is what `elastic status KIND/NAME -o json` prints; `docs/status.md` says what
programs may rely on.
"""

from dataclasses import dataclass
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from elastic.spec.settings import WorkerRange
from elastic.spec.status import SCHEMA_VERSION, JobStatus

_FINAL: Final = frozenset({"succeeded", "failed", "cancelled"})


class _Told(BaseModel):
    """Fields are only added within a schema version, and each is always there."""

    model_config = ConfigDict(frozen=True, json_schema_serialization_defaults_required=True)


class ConditionStatus(_Told):
    """One thing that is, or was, the case with an object."""

    type: str = Field(description="What is the case, such as `Running`.")
    status: str = Field(description="Whether it is: `True`, `False` or `Unknown`.")
    reason: str = Field(default="", description="Why, in one word; may be empty.")
    message: str = Field(default="", description="Why, for people.")
    changed_s: float | None = Field(
        default=None, description="When `status` last changed; `null` where nobody noted it."
    )


class PodStatus(_Told):
    """One pod of an object."""

    replica: str = Field(
        description="What `elastic logs` calls it, such as `worker-0`; where pods have no index, "
        "the role and the end of the pod's name."
    )
    role: str = Field(description="What it is to the job, such as `worker`, `ps` or `trainer`.")
    index: int | None = Field(
        default=None, description="Its number within its role; `null` where the kind has none."
    )
    pod: str = Field(description="The name of the pod.")
    phase: str = Field(
        description="As Kubernetes has it: `Pending`, `Running`, `Succeeded`, `Failed` or "
        "`Unknown`; `Terminating` for one that was asked to end."
    )
    is_ready: bool = Field(description="Whether it runs and answers.")
    restarts: int = Field(description="How often containers were started again in it.")
    node: str = Field(default="", description="Where it is; empty before it has a node.")
    message: str = Field(
        default="", description="Why it does not run, for people; empty where it does."
    )
    created_s: float | None = Field(default=None, description="When it was made.")


class EventStatus(_Told):
    """One event of an object, as `kubectl describe` shows it."""

    time_s: float | None = Field(description="When it happened last.")
    type: str = Field(description="`Normal` or `Warning`.")
    reason: str = Field(description="What happened, in one word.")
    message: str = Field(description="What happened, for people.")
    count: int = Field(default=1, description="How often.")


class ObjectStatus(_Told):
    """One object of a kind that `elastic controller` looks after. Moments (`_s`) are seconds since
    the Unix epoch.
    """

    schema_version: int = Field(
        default=SCHEMA_VERSION, description="Raised when a field is removed or means another thing."
    )
    kind: str = Field(
        description="`TrainingJob`, `ElasticJob`, `TFJob` or `ElasticTrainJob`, which no job of "
        "elastic's own has."
    )
    api_version: str = Field(description="Group and version of its API.")
    namespace: str = Field(description="Where it is.")
    job_name: str = Field(description="Its name.")
    phase: str = Field(
        default="",
        description="Where it is in its life, in the words of its kind; empty before a controller "
        "has seen it. `succeeded`, `failed` and `cancelled`, in any case of letters, are final.",
    )
    reason: str = Field(default="", description="Why, in one word; may be empty.")
    message: str = Field(default="", description="Why, for people.")
    submitted_s: float | None = Field(default=None, description="When it was made.")
    scaled_role: str = Field(
        description="The role whose replicas are counted here: `worker`, `trainer` or `chief`."
    )
    replicas_ready: int = Field(default=0, description="How many of them run.")
    replicas_wanted: int | None = Field(
        default=None, description="How many there are to be; `null` where the spec cannot be read."
    )
    replicas_min: int | None = Field(default=None, description="The fewest; likewise.")
    replicas_max: int | None = Field(default=None, description="The most; likewise.")
    conditions: tuple[ConditionStatus, ...] = Field(
        default=(), description="As its controller has written them; some kinds have none."
    )
    pods: tuple[PodStatus, ...] | None = Field(
        default=None, description="Its pods; `null` in lists, and where they may not be listed."
    )
    events: tuple[EventStatus, ...] | None = Field(
        default=None, description="Its newest events, oldest first; `null` likewise."
    )

    @property
    def is_final(self) -> bool:
        """Whether it has ended."""
        return self.phase.lower() in _FINAL

    @property
    def reference(self) -> str:
        """What other commands take for it, such as `tfjob/mnist`."""
        return f"{self.kind.lower()}/{self.job_name}"


class ListedJobStatus(JobStatus):
    """A job of elastic's own, as a list of jobs has it."""

    namespace: str = Field(
        default="", description="Where it is; empty where its platform has no namespaces."
    )


@dataclass(frozen=True, slots=True)
class ListedJob:
    """One of elastic's own jobs, in a list.

    Attributes:
        namespace: Where it is.
        workers: How many it may have; None where its record cannot be read.
        kind: That of the object which it belongs to; empty where it was submitted without one.
    """

    namespace: str
    status: JobStatus
    workers: WorkerRange | None
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Listing:
    """All jobs of a namespace, or of all of them.

    Attributes:
        jobs: Elastic's own, oldest first.
        objects: Of other kinds, kind by kind, oldest first.
    """

    jobs: tuple[ListedJob, ...]
    objects: tuple[ObjectStatus, ...]
