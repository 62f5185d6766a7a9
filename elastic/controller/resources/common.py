"""What several kinds have alike: how a job is run and ends, and what its status tells of it."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import Field

from elastic.controller.resources.base import Fields

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
