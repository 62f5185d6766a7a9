"""Models in Kubernetes' dialect: what becomes of each form, and which are refused."""

from enum import StrEnum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, BeforeValidator, Field
from support.structural import breaches, refusals

from elastic.controller.resources.common import Fields, PodTemplate
from elastic.controller.resources.schema import (
    SchemaError,
    spec_schema,
    status_schema,
    structural,
)


class Colour(StrEnum):
    RED = "Red"
    BLUE = "Blue"


class Part(Fields):
    """One part of it.

    Attributes:
        min_size: Speaks of Python.
    """

    min_size: Annotated[int, Field(ge=1)] = Field(description="How small.")


class Leaf(Fields):
    branch: "Branch | None" = None


class Branch(Fields):
    leaves: tuple[Leaf, ...] = ()


KEEP = "x-kubernetes-preserve-unknown-fields"
PART = {
    "type": "object",
    "properties": {"minSize": {"type": "integer", "minimum": 1, "description": "How small."}},
    "required": ["minSize"],
    KEEP: True,
}
Quantity = Annotated[str, BeforeValidator(str, json_schema_input_type=int | str)]


def _field(annotation: Any, default: Any = ..., **said: Any) -> dict:
    model = type(
        "Model",
        (Fields,),
        {"__annotations__": {"value": annotation}, "value": Field(default, **said)},
    )
    schema = spec_schema(model)
    assert breaches(schema) == []
    return schema["properties"]["value"]


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (str, {"type": "string"}),
        (bool, {"type": "boolean"}),
        (int | float, {KEEP: True}),
        (Annotated[int, Field(ge=1, le=9)], {"type": "integer", "minimum": 1, "maximum": 9}),
        (
            Annotated[float, Field(gt=0, lt=1)],
            {"type": "number", "minimum": 0, "exclusiveMinimum": True, "maximum": 1,
             "exclusiveMaximum": True},
        ),
        (Annotated[int | None, Field(ge=1)], {"type": "integer", "minimum": 1, "nullable": True}),
        (Annotated[str, Field(pattern="^a+$", max_length=3)],
         {"type": "string", "pattern": "^a+$", "maxLength": 3}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Literal["a"], {"type": "string", "enum": ["a"]}),
        (Colour, {"type": "string", "enum": ["Red", "Blue"]}),
        (Colour | None, {"type": "string", "enum": ["Red", "Blue"]}),
        (Quantity, {"x-kubernetes-int-or-string": True}),
        (dict[str, Any] | str, {KEEP: True}),
        (Any, {KEEP: True}),
        (PodTemplate, {"type": "object", KEEP: True}),
        (dict[str, Any], {"type": "object", KEEP: True}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (dict[Colour, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (list[str], {"type": "array", "items": {"type": "string"}}),
        (tuple[Part, ...],
         {"type": "array", "items": {**PART, "description": "One part of it."}}),
        (dict[str, Part],
         {"type": "object", "additionalProperties": {**PART, "description": "One part of it."}}),
    ],
)  # fmt: skip
def test_form_in_the_other_dialect(annotation, expected):
    assert _field(annotation) == expected


def test_what_is_said_of_a_use_goes_before_what_is_said_of_the_model():
    assert _field(Part | None, None, description="The first part.") == {
        **PART,
        "nullable": True,
        "description": "The first part.",
    }


def test_defaults_are_told_and_not_written_into_objects():
    assert _field(int, 7164, description="Base port.") == {
        "type": "integer",
        "description": "Base port. Default: 7164.",
    }
    assert _field(Colour, Colour.RED)["description"] == "Default: Red."
    assert _field(str, "", description="Any text.")["description"] == "Any text."


def test_a_model_within_two_others_is_no_recursion():
    class Both(Fields):
        left: Part
        right: Part

    assert set(spec_schema(Both)["properties"]) == {"left", "right"}


def test_a_model_within_itself_is_refused_by_name():
    with pytest.raises(SchemaError, match=r"Branch\.leaves\[\]\.branch is a Branch within"):
        spec_schema(Branch)


@pytest.mark.parametrize(
    ("schema", "cause"),
    [
        ({"type": "string", "contentEncoding": "base64"}, "of says contentEncoding"),
        ({"type": ["string", "null"]}, "exactly one type"),
        ({"allOf": [{"type": "string"}, {"type": "string"}]}, "allOf of 2 schemas"),
        ({"type": "string", "pattern": "^(?=a)"}, r"know no \(\?="),
        ({"type": "array", "prefixItems": [{"type": "string"}]}, "says prefixItems"),
        ({"type": "object", "properties": {"a": {"type": "null"}}}, r"of\.a is of type 'null'"),
    ],
)
def test_what_kubernetes_cannot_say_is_refused(schema, cause):
    with pytest.raises(SchemaError, match=cause):
        structural(schema, "of")


def test_fields_that_a_status_may_lack_are_not_required_of_it():
    class Status(BaseModel):
        part: Part
        count: int = 3

    schema = status_schema(Status)
    assert breaches(schema) == []
    assert "required" not in schema
    assert "required" not in schema["properties"]["part"]
    assert schema["properties"]["count"] == {"type": "integer"}


def test_what_is_in_the_dialect_already_stays():
    class Everything(Fields):
        part: Part | None = None
        size: Annotated[float, Field(gt=0)] = 1.0
        colour: Colour | None = None
        amount: Quantity = "1"
        parts: dict[str, Part]

    schema = spec_schema(Everything)
    assert structural(schema, "Everything") == schema


@pytest.mark.parametrize(
    ("schema", "breach"),
    [
        ({"type": "object", "properties": {"a": {}}}, "$.a: has no type"),
        ({"type": "array"}, "$: has no items"),
        ({"type": "object", "additionalProperties": False}, "additionalProperties is False"),
        ({"type": "object", "properties": {"a": {"type": "string", KEEP: True}}}, "no unknown"),
        ({"type": "object", "required": ["a"]}, "$: requires a"),
        ({"type": "object", "properties": {"a": {"type": "string", "minimum": 1}}}, "nothing to a"),
        ({"type": "object", "properties": {"a": {"type": "number", "minimum": 0,
          "exclusiveMinimum": 0}}}, "exclusiveMinimum is a number"),
        ({"type": "object", "properties": {"a": {"anyOf": [], KEEP: True}}}, "$.a: says anyOf"),
    ],
)  # fmt: skip
def test_the_check_of_the_rules_finds_each_breach(schema, breach):
    assert any(breach in each for each in breaches(schema))


def test_the_check_of_values_minds_what_the_schema_says():
    schema = spec_schema(Part)
    assert refusals({"minSize": 1, "unknown": [1]}, schema, "spec") == []
    assert refusals({"minSize": 0}, schema, "spec") == ["spec.minSize=0: is too small for 1"]
    assert refusals({"minSize": True}, schema, "spec") == ["spec.minSize=True: is no integer"]
    assert refusals({}, schema, "spec") == ["spec.minSize: is required"]
