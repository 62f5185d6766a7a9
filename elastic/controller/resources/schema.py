"""From a pydantic model to the structural schema that a CustomResourceDefinition takes. Pure.

Kubernetes has its own dialect: no references, exactly one type a value, `nullable` instead of a
type null, and fields that no schema names are cut off unless it says otherwise. Ours always says
otherwise: what a user wrote is kept, for the controller to name what it does not know.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from pydantic import BaseModel

from elastic.errors import ElasticError
from elastic.platforms.kubernetes.api.resources import Manifest

Schema: TypeAlias = Mapping[str, Any]
"""JSON Schema, as pydantic writes it."""

KEEP_UNKNOWN: Final = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING: Final = "x-kubernetes-int-or-string"

_EXTENSIONS: Final = frozenset(
    {KEEP_UNKNOWN, INT_OR_STRING, "x-kubernetes-list-type", "x-kubernetes-list-map-keys"}
)
_AS_THEY_ARE: Final = _EXTENSIONS | {
    "nullable", "enum", "minimum", "maximum", "minLength", "maxLength",
    "minItems", "maxItems", "minProperties", "maxProperties", "multipleOf",
}  # fmt: skip
# Names of keys are for who reads the object to judge: Kubernetes has no word for them.
_LEFT_OUT: Final = frozenset({"title", "$defs", "examples", "propertyNames"})
_FORMATS: Final = frozenset({"date-time", "date", "duration", "int32", "int64", "float", "double"})
_BOUNDS: Final = {
    # Where a validator stands between, pydantic leaves its own words.
    "ge": ("minimum", False), "exclusiveMinimum": ("minimum", True), "gt": ("minimum", True),
    "le": ("maximum", False), "exclusiveMaximum": ("maximum", True), "lt": ("maximum", True),
}  # fmt: skip
"""JSON Schema's word → Kubernetes' word, and whether the bound itself is left out."""

_OF_ALL_OPTIONS: Final = ("description", "nullable")
_TYPES: Final = ("object", "array", "string", "integer", "number", "boolean")
_NO_LOOKING_AROUND: Final = ("(?=", "(?!", "(?<")


class SchemaError(ElasticError):
    """A model that no structural schema can say; its author has to say it otherwise."""


@dataclass(frozen=True, slots=True)
class _Way:
    """Where in a model we are.

    Attributes:
        path: Of the value, for people.
        within: Names of the models around it.
    """

    path: str
    within: tuple[str, ...] = ()

    def to(self, part: str) -> "_Way":
        return replace(self, path=f"{self.path}{part}")


def spec_schema(model: type[BaseModel]) -> Manifest:
    """The schema of what users write. Defaults are told in descriptions, and not written into
    their objects, where they would outlive a version that had them.

    Raises:
        SchemaError: The model contains itself, or has a form that Kubernetes has no word for.
    """
    schema = model.model_json_schema(by_alias=True, mode="validation")
    return structural(_edited(schema, _with_default_told), model.__name__)


def status_schema(model: type[BaseModel]) -> Manifest:
    """The schema of what the controller writes. No field is required, so that a controller of
    another version than the definition can still write its status.

    Raises:
        SchemaError: See `spec_schema`.
    """
    schema = model.model_json_schema(by_alias=True, mode="serialization")
    loose = _edited(schema, lambda node: _without(node, "required", "default"))
    return structural(loose, model.__name__)


def structural(schema: Schema, name: str) -> Manifest:
    """Say a JSON Schema in Kubernetes' dialect; what is said in it already stays.

    Args:
        schema: With its references in its own `$defs`.
        name: What it is of, for errors.

    Raises:
        SchemaError: See `spec_schema`.
    """
    return _Translation(schema.get("$defs", {})).of(schema, _Way(name))


class _Translation:
    """One JSON Schema on its way into the other dialect."""

    def __init__(self, definitions: Mapping[str, Schema]) -> None:
        self._definitions = definitions

    def of(self, node: Schema, way: _Way) -> Manifest:
        """The node in Kubernetes' dialect."""
        if "$ref" in node:
            return self._of_reference(node, way)
        if "allOf" in node:
            return self.of(_merged(node, "allOf", node["allOf"], way), way)
        for word in ("anyOf", "oneOf"):
            if word in node:
                return self._of_choice(node, word, way)
        return self._of_plain(node, way)

    def _of_reference(self, node: Schema, way: _Way) -> Manifest:
        name = str(node["$ref"]).removeprefix("#/$defs/")
        if name in way.within:
            raise SchemaError(
                f"{way.path} is a {name} within a {name}, and a structural schema is finite: keep "
                f"it as it is written (dict[str, Any]) instead"
            )
        # What stands beside a reference is said of this use of it.
        whole = {**self._definitions[name], **_without(node, "$ref")}
        return self.of(whole, replace(way, within=(*way.within, name)))

    def _of_choice(self, node: Schema, word: str, way: _Way) -> Manifest:
        options = [each for each in node[word] if each.get("type") != "null"]
        if len(options) < len(node[word]):
            node = {**node, "nullable": True}
        if len(options) == 1:
            return self.of(_merged(node, word, options, way), way)
        found = [self.of(each, way) for each in options]
        # Bounds of one option say nothing of a value that is another's.
        about = dict(_words({key: node[key] for key in _OF_ALL_OPTIONS if key in node}, way))
        if {each.get("type") for each in found} == {"integer", "string"}:
            return {INT_OR_STRING: True, **about}
        return {KEEP_UNKNOWN: True, **about}

    def _of_plain(self, node: Schema, way: _Way) -> Manifest:
        said = dict(_words(node, way))
        if "type" not in node:
            # Any value: nothing but what is kept as it is may be without a type.
            return said if INT_OR_STRING in said else {KEEP_UNKNOWN: True, **said}
        kind = node["type"]
        if kind not in _TYPES:
            raise SchemaError(f"{way.path} is of type {kind!r}: a value has exactly one type")
        parts = {"object": self._of_object, "array": self._of_array}.get(kind)
        return {"type": kind, **said, **(parts(node, way) if parts is not None else {})}

    def _of_object(self, node: Schema, way: _Way) -> Manifest:
        properties, others = node.get("properties", {}), node.get("additionalProperties")
        if properties:
            fields = {key: self.of(each, way.to(f".{key}")) for key, each in properties.items()}
            needed = {"required": list(node["required"])} if node.get("required") else {}
            return {"properties": fields, **needed, KEEP_UNKNOWN: True}
        if isinstance(others, Mapping) and others:
            return {"additionalProperties": self.of(others, way.to(".*"))}
        return {KEEP_UNKNOWN: True}

    def _of_array(self, node: Schema, way: _Way) -> Manifest:
        return {"items": self.of(node.get("items", {}), way.to("[]"))}


def _words(node: Schema, way: _Way) -> Iterable[tuple[str, Any]]:
    """What is said of a value besides its type and its parts."""
    for word, value in node.items():
        if word in _BOUNDS:
            bound, is_open = _BOUNDS[word]
            # In Kubernetes' dialect these two are no bounds: they say that one is open.
            if isinstance(value, bool):
                yield word, value
                continue
            yield bound, value
            if is_open:
                yield f"exclusive{bound.capitalize()}", True
        elif word == "const":
            yield "enum", [value]
        elif word == "format":
            if value in _FORMATS:
                yield word, value
        elif word == "pattern":
            yield word, _checked_pattern(value, way)
        elif word == "description":
            yield word, _first_paragraph(value)
        elif word == "nullable" and "enum" in node:
            # A null would have to be one of the values, and kubectl takes no such definition.
            continue
        elif word in _AS_THEY_ARE:
            yield word, value
        elif word not in _LEFT_OUT | _OF_PARTS:
            raise SchemaError(
                f"{way.path} says {word}: {value!r}, which Kubernetes has no word for"
            )


_OF_PARTS: Final = frozenset({"type", "properties", "required", "additionalProperties", "items"})


def _first_paragraph(text: str) -> str:
    """On one line; what follows in a docstring speaks of Python."""
    return " ".join(text.split("\n\n")[0].split())


def _checked_pattern(pattern: str, way: _Way) -> str:
    for sign in _NO_LOOKING_AROUND:
        if sign in pattern:
            raise SchemaError(
                f"{way.path} has the pattern {pattern!r}, and API servers know no {sign}…): write "
                "it without"
            )
    return pattern


def _merged(node: Schema, word: str, options: list[Schema], way: _Way) -> Manifest:
    """The only option, with what is said around it, which goes first."""
    if len(options) != 1:
        raise SchemaError(
            f"{way.path} is {word} of {len(options)} schemas, and Kubernetes wants one: join them"
        )
    return {**options[0], **_without(node, word)}


def _with_default_told(node: Schema) -> Manifest:
    """The node with its default as the last sentence of its description, and not as such."""
    if "default" not in node:
        return dict(node)
    default, plain = node["default"], _without(node, "default")
    if default in (None, "", [], {}):
        return plain
    shown = default if isinstance(default, str) else json.dumps(default)
    told = f"{node.get('description', '')} Default: {shown}."
    return {**plain, "description": told.strip()}


def _edited(schema: Schema, edit: Callable[[Schema], Manifest]) -> Manifest:
    """A schema with an edit made of it and of every schema within."""
    new = edit(schema)
    for word in ("$defs", "properties"):
        if word in new:
            new[word] = {key: _edited(each, edit) for key, each in new[word].items()}
    for word in ("items", "additionalProperties"):
        if isinstance(new.get(word), Mapping):
            new[word] = _edited(new[word], edit)
    for word in ("anyOf", "oneOf", "allOf"):
        if word in new:
            new[word] = [_edited(each, edit) for each in new[word]]
    return new


def _without(node: Schema, *words: str) -> Manifest:
    return {key: value for key, value in node.items() if key not in words}
