"""What the typed resources share: how they are read, and what is said of fields that are wrong."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from elastic.platforms.kubernetes.api.resources import Manifest

S = TypeVar("S", bound="Fields")


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
