"""What the typed resources have alike: how they are read, how a job is run and ends, its status.

What is wrong in a field is said here as well, and what is read of templates of pods.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import Annotated, Any, Final, Generic, TypeAlias, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.spec.values import NANO, nanos_of

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


# What is read of pod templates, and what has to be right of one before pods can be made of it.
#
# Whoever places pods reads typed parts, checked before a pod is made. Only what the controller
# itself looks into is looked at; all else in a template is the API server's to judge.


CARD_ID: Final = "kubeshare/GPUID"
"""The annotation of a SharePod, and the label of the pod that holds a card, which name the card."""

Quantity = Annotated[int, BeforeValidator(nanos_of)]
"""Written as Kubernetes does, and read as nano-units."""

Amounts = dict[str, Quantity]
"""Quantities by resource, such as `cpu`."""
Path: TypeAlias = tuple[str | int, ...]

Problem: TypeAlias = tuple[Path, object, str]
"""Where it is below the template, what is there, and what should be."""

_CONTAINERS: Final = ("initContainers", "containers")


class Parts(Fields):
    """Fields of which only some are known here; one that is null is not there."""

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, written: Any) -> Any:
        if not isinstance(written, Mapping):
            return written
        return {name: value for name, value in written.items() if value is not None}


class Port(Parts):
    """A port of a container."""

    name: str = ""
    container_port: int = Field(ge=1, le=65535)


class EnvVar(Parts):
    """An environment variable; its value is not read."""

    name: str


class ResourceNeeds(Parts):
    """What a container, or a whole pod, asks for."""

    requests: Amounts = Field(default_factory=dict)
    limits: Amounts = Field(default_factory=dict)


class Container(Parts):
    """A container, of those that run or of those before."""

    name: str
    ports: tuple[Port, ...] = ()
    env: tuple[EnvVar, ...] = ()
    resources: ResourceNeeds = ResourceNeeds()
    restart_policy: str = ""


class Toleration(Parts):
    """Which taints a pod bears; an empty key or effect stands for all."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class Operator(StrEnum):
    """How a label is compared with the values of a requirement."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GREATER = "Gt"
    LESS = "Lt"


class Requirement(Parts):
    """What one label, or one field, of a node has to be."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()


class NodeTerm(Parts):
    """Requirements that hold together; a term without any matches no node."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


class NodeTerms(Parts):
    """Terms of which one has to hold."""

    node_selector_terms: tuple[NodeTerm, ...]


class NodeAffinity(Parts):
    """Which nodes a pod needs; those that it would like are not read."""

    required_during_scheduling_ignored_during_execution: NodeTerms | None = None


class Affinity(Parts):
    """What of a pod's affinity is read."""

    node_affinity: NodeAffinity = NodeAffinity()


class PodSpec(Parts):
    """What is read of a pod's spec."""

    containers: tuple[Container, ...] = Field(min_length=1)
    init_containers: tuple[Container, ...] = ()
    resources: ResourceNeeds = ResourceNeeds()
    overhead: Amounts = Field(default_factory=dict)
    node_selector: dict[str, str] = Field(default_factory=dict)
    affinity: Affinity = Affinity()
    tolerations: tuple[Toleration, ...] = ()
    node_name: str = ""


def _card_part(written: object) -> int:
    """Nano-cards.

    Raises:
        ValueError: Not between 0 and 1.
    """
    try:
        part = Decimal(written) if isinstance(written, str) else Decimal(-1)
    except InvalidOperation:
        part = Decimal(-1)
    if not part.is_finite() or not 0 <= part <= 1:
        raise ValueError('expected a part of a card, from "0.0" to "1.0"')
    return int((part * NANO).to_integral_value())


def _bytes(written: object) -> int:
    """Whole bytes.

    Raises:
        ValueError: No whole number, or a negative one.
    """
    if not (isinstance(written, str) and written.isascii() and written.isdecimal()):
        raise ValueError('expected a number of bytes, such as "3189243904"')
    return int(written[:_MAX_DIGITS])


_MAX_DIGITS: Final = 20

_CardPart = Annotated[int, BeforeValidator(_card_part)]
_Bytes = Annotated[int, BeforeValidator(_bytes)]


class Annotations(Parts):
    """The annotations by which KubeShare gives out parts of a GPU; the others are not read.

    Attributes:
        request: Nano-cards that are set aside.
        limit: Nano-cards that may be used.
        memory_bytes: Memory of the card.
    """

    request: _CardPart | None = Field(None, alias="kubeshare/gpu_request")
    limit: _CardPart | None = Field(None, alias="kubeshare/gpu_limit")
    memory_bytes: _Bytes | None = Field(None, alias="kubeshare/gpu_mem")


class Metadata(Parts):
    """What is read of a template's metadata."""

    labels: dict[str, str] = Field(default_factory=dict)
    annotations: Annotations = Annotations.model_validate({})


class PodParts(Parts):
    """What is read of a pod template, and of a pod."""

    metadata: Metadata = Metadata()
    spec: PodSpec


def parts_of(template: Manifest) -> PodParts:
    """What is read of a template.

    Raises:
        pydantic.ValidationError: Something of it cannot be read.
    """
    return PodParts.model_validate(template)


def template_problem(template: Mapping[str, Any]) -> Problem | None:
    """The first thing in a template of which no pod can be made; None where there is nothing."""
    return next(_problems(template), None)


def _problems(template: Mapping[str, Any]) -> Iterator[Problem]:
    metadata = template.get("metadata")
    yield from _not_a(("metadata",), metadata, dict, "a mapping")
    for key in ("labels", "annotations"):
        if isinstance(metadata, dict):
            yield from _not_texts(("metadata", key), metadata.get(key))
    spec = template.get("spec")
    if not isinstance(spec, dict):
        yield ("spec",), spec, "must be the spec of a pod, with containers"
        return
    if not spec.get("containers"):
        yield ("spec", "containers"), spec.get("containers"), "must list at least one container"
        return
    for kind in _CONTAINERS:
        yield from _not_containers(("spec", kind), spec.get(kind))


def _not_containers(path: Path, containers: object) -> Iterator[Problem]:
    if containers is not None and not isinstance(containers, list):
        yield path, containers, "must be a list of containers"
    for number, container in enumerate(containers if isinstance(containers, list) else ()):
        here = (*path, number)
        if not isinstance(container, dict):
            yield here, container, "must be a container, with a name and an image"
            continue
        name = container.get("name")
        if not isinstance(name, str) or not name:
            yield (*here, "name"), name, "must be the container's name"
        for key in ("env", "ports"):
            yield from _not_mappings((*here, key), container.get(key))
        yield from _not_a((*here, "resources"), container.get("resources"), dict, "a mapping")


def _not_mappings(path: Path, entries: object) -> Iterator[Problem]:
    if entries is not None and not isinstance(entries, list):
        yield path, entries, "must be a list"
    for number, entry in enumerate(entries if isinstance(entries, list) else ()):
        yield from _not_a((*path, number), entry, dict, "a mapping", is_needed=True)


def _not_texts(path: Path, mapping: object) -> Iterator[Problem]:
    yield from _not_a(path, mapping, dict, "a mapping")
    for key, value in mapping.items() if isinstance(mapping, dict) else ():
        yield from _not_a((*path, str(key)), value, str, "a text", is_needed=True)


def _not_a(
    path: Path, value: object, type_: type, words: str, *, is_needed: bool = False
) -> Iterator[Problem]:
    if (is_needed or value is not None) and not isinstance(value, type_):
        yield path, value, f"must be {words}"
