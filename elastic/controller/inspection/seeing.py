"""What commands ask a kind for, and how its objects stand. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from elastic.controller.kinds.pods import GROUP_LABEL, INDEX_LABEL, JOB_LABEL, TYPE_LABEL
from elastic.controller.resources.base import Fields, Reading
from elastic.controller.resources.common import Condition, ConditionStatus
from elastic.errors import JobSpecError
from elastic.platforms.kubernetes.api.resources import Manifest, Resource

M = TypeVar("M", bound=BaseModel)
S = TypeVar("S", bound=Fields)

_DEFAULT_CONTAINER: Final = "kubectl.kubernetes.io/default-container"
"""Annotation: which container is meant where nobody names one."""


@dataclass(frozen=True, slots=True)
class Count:
    """The replicas that a job is sized by.

    Attributes:
        role: What they are.
        ready: How many run.
        wanted: How many there are to be; None where the spec cannot be read, as the others.
        minimum: The fewest.
        maximum: The most.
    """

    role: str
    ready: int = 0
    wanted: int | None = None
    minimum: int | None = None
    maximum: int | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """How an object stands, by its spec and its status alone.

    Attributes:
        phase: In the words of its kind; empty before a controller has seen it.
        reason: Why, in one word.
        message: Why, for people.
        conditions: Those of its status.
    """

    phase: str
    count: Count
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] = ()


class Seen(Protocol):
    """One kind, as commands see it.

    Attributes:
        resource: Of its objects.
        roles: Of its pods, in the order in which they are shown.
        indexed_role: The one that an index without a role is of; None where pods have no index.
    """

    @property
    def resource(self) -> Resource: ...
    @property
    def roles(self) -> Sequence[str]: ...
    @property
    def indexed_role(self) -> str | None: ...

    def standing(self, job: Manifest) -> Standing:
        """How an object stands; never fails for what somebody wrote in it."""

    def selectors(self, name: str) -> Sequence[str]:
        """By which labels the pods of an object are listed; each is one list."""

    def role_of(self, pod: Manifest) -> tuple[str, int | None]:
        """What one of these pods is, and its index, where the kind counts them."""

    def container(self, pod: Manifest) -> str:
        """The container whose log is meant."""

    def resized(self, job: Manifest, size: int) -> Manifest:
        """The merge patch that has an object be of another size.

        Raises:
            JobSpecError: It cannot be; its range is named.
        """


def lenient(model: type[M], job: Manifest) -> M:
    """The status of an object, or an empty one where somebody else's controller writes another."""
    try:
        return model.model_validate(job.get("status") or {})
    except ValidationError:
        return model.model_validate({})


def newest(conditions: Sequence[Condition]) -> Condition | None:
    """The condition that came to hold last; None where none holds."""
    holding = [each for each in conditions if each.status is ConditionStatus.TRUE]
    return holding[-1] if holding else None


def labels_of(item: Manifest) -> Mapping[str, str]:
    """Its labels; empty where it has none."""
    labels: Mapping[str, str] = item["metadata"].get("labels") or {}
    return labels


def replica_of(
    pod: Manifest, type_label: str = TYPE_LABEL, index_label: str = INDEX_LABEL
) -> tuple[str, int | None]:
    """What a pod is whose labels say its role and its index, as far as they do."""
    labels = labels_of(pod)
    index = str(labels.get(index_label, ""))
    return labels.get(type_label, "pod"), int(index) if index.isdecimal() else None


def selector_of(name: str, group: str) -> str:
    """Selects the pods of an object whose replicas its controller makes itself."""
    return f"{JOB_LABEL}={name},{GROUP_LABEL}={group}"


def readable(reference: str, reading: Reading[S]) -> S:
    """The spec that was read.

    Raises:
        JobSpecError: It is wrong.
    """
    if reading.spec is None:
        raise JobSpecError(f"{reference} has a spec that is wrong: {reading.problem}")
    return reading.spec


def default_container(pod: Manifest) -> str:
    """The one that its annotation names, or else the first, as kubectl has it."""
    containers: Sequence[Mapping[str, Any]] = pod["spec"].get("containers") or ()
    names = [str(each["name"]) for each in containers]
    named = str((pod["metadata"].get("annotations") or {}).get(_DEFAULT_CONTAINER))
    return named if named in names else next(iter(names), "")


def told_range(low: int, high: int | None) -> str:
    """`2:8`, `3`, or `2 and more`, as messages have a range."""
    if high is None:
        return f"{low} and more"
    return str(low) if low == high else f"{low}:{high}"


def check_size(reference: str, size: int, low: int, high: int | None, fields: str) -> None:
    """Check a size that somebody asks for.

    Args:
        reference: The object, for people.
        size: Replicas wanted.
        low: The fewest.
        high: The most; None without a limit.
        fields: Of the spec, which set the range.

    Raises:
        JobSpecError: It is outside of the range.
    """
    if size < low or (high is not None and size > high):
        raise JobSpecError(
            f"{size} is outside the range {told_range(low, high)} of {reference}: choose a number "
            f"within it, or edit {fields}"
        )
