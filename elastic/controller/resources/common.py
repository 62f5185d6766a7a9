"""What the typed resources have alike: how they are read, how a job is run and ends, its status.

What is wrong in a field is said here as well.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Final, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from elastic.platforms.kubernetes.api.resources import Manifest

S = TypeVar("S", bound="Fields")
MAX_INT32: Final = 2**31 - 1
"""The most that Kubernetes' own fields of such meaning hold; 68 years, where it is of seconds."""

Count = Annotated[int, Field(ge=0, le=MAX_INT32)]
"""How many of something, or whole seconds; none is allowed."""

PositiveCount = Annotated[int, Field(ge=1, le=MAX_INT32)]
"""The same, at least one."""

MAX_REPLICAS: Final = 1000
"""Of one role whose pods we make ourselves. All of them are decided on in one pass: without bounds
one digit too many would take the time and the memory of a controller from all other jobs."""

Replicas = Annotated[int, Field(ge=1, le=MAX_REPLICAS)]
"""How many pods of a role."""

Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
"""A moment as Kubernetes writes it, in whole seconds of UTC; see `time_text` and `seconds_of`."""


class Fields(BaseModel):
    """Fields of a resource, named in camelCase in YAML; unknown ones are kept, and can be told."""

    model_config = ConfigDict(
        extra="allow", frozen=True, populate_by_name=True, alias_generator=to_camel
    )

    def unknown(self, path: str = "") -> Iterator[str]:
        """Paths of fields that this resource does not have, also of those within."""
        for name in self.model_extra or {}:
            yield f"{path}{name}"
        for name, info in type(self).model_fields.items():
            value, label = getattr(self, name), info.alias or name
            if isinstance(value, Fields):
                yield from value.unknown(f"{path}{label}.")
            elif isinstance(value, Mapping):
                for key, each in value.items():
                    if isinstance(each, Fields):
                        yield from each.unknown(f"{path}{label}.{key}.")


PodTemplate = Annotated[
    dict[str, Any],
    Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True}),
]
"""A PodTemplateSpec as it was written; what is in it is the API server's to judge."""


@dataclass(frozen=True, slots=True)
class Reading(Generic[S]):
    """A spec, or why it is none.

    Attributes:
        problem: Names the field and its value, and what it should be; empty where `spec` is there.
        unknown: Fields that were not understood, by their paths below `spec`.
    """

    spec: S | None
    problem: str = ""
    unknown: tuple[str, ...] = ()


def read_spec(model: type[S], job: Manifest) -> Reading[S]:
    """The spec of an object as its model has it; never raises for what a user wrote."""
    written = job.get("spec")
    try:
        spec = model.model_validate({} if written is None else written)
    except ValidationError as error:
        return Reading(None, problem_of(error))
    return Reading(spec, unknown=tuple(f"spec.{path}" for path in spec.unknown()))


def problem_of(error: ValidationError) -> str:
    """The first thing that is wrong, with the field, its value, and what is expected there."""
    first = error.errors(include_url=False)[0]
    path = ".".join(("spec", *(str(part) for part in first["loc"])))
    message = str(first["msg"]).removeprefix("Value error, ")
    if first["type"] == "missing":
        return f"{path} is missing"
    if first["type"] == "value_error" and isinstance(first["input"], Mapping):
        # The fields of an object do not go together; its own words name those that are meant.
        return f"{path}: {message}"
    given = repr(first["input"])
    shown = given if len(given) <= _MAX_SHOWN else f"{given[:_MAX_SHOWN]}…"
    return f"{path}={shown}: {message}"


_MAX_SHOWN = 100


class RestartPolicy(StrEnum):
    """What follows the end of a replica's container.

    `ExitCode` is not of Kubernetes: it tells the cluster's doing (128 and above) from the job's.
    """

    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"
    EXIT_CODE = "ExitCode"


class CleanPodPolicy(StrEnum):
    """Which pods are removed when the job has ended."""

    NONE = "None"
    RUNNING = "Running"
    ALL = "All"


class RunPolicy(Fields):
    """How long a job may run, how often it may fail, and what stays of it; base of a spec."""

    clean_pod_policy: CleanPodPolicy = Field(
        CleanPodPolicy.NONE,
        description="Which pods are removed when the job has ended: none, those that still run, "
        "or all.",
    )
    ttl_seconds_after_finished: Count | None = Field(
        None,
        description="Seconds after its end at which the job is deleted, with all that belongs to "
        "it; never where left out.",
    )
    active_deadline_seconds: PositiveCount | None = Field(
        None,
        description="Seconds after its start at which a job that has not ended fails; never where "
        "left out.",
    )
    backoff_limit: Count | None = Field(
        None,
        description="How many replacements of failed pods the job may spend before it fails; "
        "without bounds where left out.",
    )


class ReplicaStatus(Fields):
    """The pods of one role, counted."""

    active: Count = Field(0, description="Pods that run.")
    succeeded: Count = Field(0, description="Pods that ended well.")
    failed: Count = Field(0, description="Pods that ended otherwise, also those since replaced.")


class ConditionStatus(StrEnum):
    """Whether a condition holds."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(Fields):
    """One thing that is, or was, the case with a job."""

    type: str = Field(description="What is the case, such as `Running`.")
    status: ConditionStatus = Field(description="Whether it is.")
    reason: str = Field("", description="Why, in one word.")
    message: str = Field("", description="Why, for people.")
    last_update_time: Time | None = Field(None, description="When anything of this last changed.")
    last_transition_time: Time | None = Field(None, description="When `status` last changed.")


def with_condition(
    conditions: Sequence[Condition],
    type_: str,
    status: ConditionStatus,
    reason: str,
    message: str,
    now_s: float,
) -> tuple[Condition, ...]:
    """The conditions with one of them set; the very same ones where that changes nothing.

    One that comes to hold goes to the end, so that the last one that holds is the newest; any other
    keeps its place.

    Args:
        conditions: As they are, at most one of each type.
        type_: The type of the one to set.
        status: Whether it holds.
        reason: Why, in one word.
        message: Why, for people.
        now_s: Seconds since the epoch.
    """
    found = next((each for each in conditions if each.type == type_), None)
    if found is not None and (found.status, found.reason, found.message) == (
        status,
        reason,
        message,
    ):
        return tuple(conditions)
    has_changed = found is None or found.status is not status
    now = time_text(now_s)
    new = Condition(
        type=type_,
        status=status,
        reason=reason,
        message=message,
        last_update_time=now,
        last_transition_time=now if found is None or has_changed else found.last_transition_time,
    )
    if found is None or (has_changed and status is ConditionStatus.TRUE):
        return (*(each for each in conditions if each.type != type_), new)
    return tuple(new if each.type == type_ else each for each in conditions)


def time_text(moment_s: float) -> str:
    """A moment as Kubernetes writes it.

    Args:
        moment_s: Seconds since the epoch.
    """
    return datetime.fromtimestamp(moment_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_of(text: str) -> float:
    """Seconds since the epoch of a moment that an API server wrote.

    Raises:
        ValueError: The text is no moment.
    """
    return datetime.fromisoformat(text).timestamp()


def without_blanks(value: Any) -> Any:
    """The same without fields that are None or an empty text, at any depth, as a status is written.

    An API server keeps no None. Kubernetes' own objects have no empty texts either: some of its
    versions, built with a newer Go than they know, take one in a custom resource for null.
    """
    if isinstance(value, Mapping):
        kept = {key: each for key, each in value.items() if each is not None and each != ""}
        return {key: without_blanks(each) for key, each in kept.items()}
    if isinstance(value, list):
        return [without_blanks(each) for each in value]
    return value
