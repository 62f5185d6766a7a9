"""What is read of pod templates, and what has to be right of one before pods can be made of it.

Whoever places pods reads typed parts, checked before a pod is made. Only what the controller itself
looks into is looked at; all else in a template is the API server's to judge.
"""

from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import Annotated, Any, Final, TypeAlias

from pydantic import BeforeValidator, Field, model_validator

from elastic.controller.resources.common import Fields
from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.spec.values.quantities import NANO, nanos_of

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
