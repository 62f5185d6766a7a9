"""The dialect of schemas in CustomResourceDefinitions: what they may say, and what keeps to them.

Written from Kubernetes' documentation of structural schemas; the API server's own check is asked in
the tests with a cluster.
"""

import re

TYPES = {
    "object": dict, "array": list, "string": str, "integer": int, "number": (int, float),
    "boolean": bool,
}  # fmt: skip
FORBIDDEN = {
    "$ref", "$defs", "definitions", "dependencies", "deprecated", "discriminator", "id", "const",
    "patternProperties", "propertyNames", "prefixItems", "readOnly", "writeOnly", "xml", "examples",
    "anyOf", "allOf", "oneOf", "not", "title", "default",
}  # fmt: skip
"""No schema of ours says these, although Kubernetes has some of the words."""

OF_EVERY_VALUE = {"description", "nullable", "enum", "format"}
OF_TYPE = {
    "object": {"properties", "required", "additionalProperties", "minProperties", "maxProperties"},
    "array": {"items", "minItems", "maxItems", "x-kubernetes-list-type",
              "x-kubernetes-list-map-keys"},
    "string": {"pattern", "minLength", "maxLength"},
    "integer": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
    "number": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
    "boolean": set(),
}  # fmt: skip
KEEP = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING = "x-kubernetes-int-or-string"
FORMATS = {"date-time", "date", "duration", "int32", "int64", "float", "double"}


def breaches(schema, place="$", is_root=True):
    """Where a schema is not structural, as texts."""
    found = [f"{place}: says {word}" for word in sorted(FORBIDDEN & set(schema))]
    kind, is_free = schema.get("type"), KEEP in schema or INT_OR_STRING in schema
    if kind is None and not is_free:
        found.append(f"{place}: has no type")
    if kind is not None and kind not in TYPES:
        return [*found, f"{place}: {kind!r} is no type"]
    if is_root and kind != "object":
        found.append(f"{place}: the root is no object")
    found += _breaches_of_extensions(schema, place)
    known = OF_EVERY_VALUE | OF_TYPE.get(kind, set()) | {"type", KEEP, INT_OR_STRING}
    found += [f"{place}: {word} means nothing to a {kind}" for word in set(schema) - known]
    found += _breaches_of_values(schema, place)
    properties, others = schema.get("properties", {}), schema.get("additionalProperties")
    if properties and others is not None:
        found.append(f"{place}: has properties and additionalProperties")
    if isinstance(others, bool):
        found.append(f"{place}: additionalProperties is {others}")
    if kind == "array" and "items" not in schema:
        found.append(f"{place}: has no items")
    found += [f"{place}: requires {name}" for name in schema.get("required", [])
              if name not in properties]  # fmt: skip
    for part, within in _parts(schema):
        found += breaches(within, f"{place}{part}", is_root=False)
    return found


def _parts(schema):
    for name, within in schema.get("properties", {}).items():
        yield f".{name}", within
    if isinstance(schema.get("additionalProperties"), dict):
        yield ".*", schema["additionalProperties"]
    if "items" in schema:
        yield "[]", schema["items"]


def _breaches_of_extensions(schema, place):
    kind = schema.get("type")
    for word in (KEEP, INT_OR_STRING):
        if schema.get(word, True) is not True:
            yield f"{place}: {word} can only be true"
    if KEEP in schema and kind not in (None, "object"):
        yield f"{place}: a {kind} has no unknown fields"
    if INT_OR_STRING in schema and kind is not None:
        yield f"{place}: an int-or-string is of type {kind}"


def _breaches_of_values(schema, place):
    for word in ("exclusiveMinimum", "exclusiveMaximum"):
        if word in schema and schema[word] is not True:
            yield f"{place}: {word} is a number"
        if word in schema and word.removeprefix("exclusive").lower() not in schema:
            yield f"{place}: {word} of no bound"
    if schema.get("format", "date") not in FORMATS:
        yield f"{place}: {schema['format']} is no format"
    if None in schema.get("enum", []):
        yield f"{place}: kubectl knows no null among values"
    if "enum" in schema and schema.get("nullable"):
        yield f"{place}: null may be given, and is none of the values"


def refusals(value, schema, place=""):
    """What an API server has against a value, as texts that begin with the field's path."""
    if value is None and schema.get("nullable"):
        return []
    if INT_OR_STRING in schema:
        is_fine = isinstance(value, (int, str)) and not isinstance(value, bool)
        return [] if is_fine else [f"{place}={value!r}: is neither a whole number nor text"]
    kind = schema.get("type")
    if kind is not None and (
        not isinstance(value, TYPES[kind]) or (isinstance(value, bool) and kind != "boolean")
    ):
        return [f"{place}={value!r}: is no {kind}"]
    found = [f"{place}={value!r}: {why}" for why in _refusals_of_value(value, schema)]
    if isinstance(value, dict):
        properties, others = schema.get("properties", {}), schema.get("additionalProperties")
        found += [f"{_join(place, name)}: is required" for name in schema.get("required", [])
                  if name not in value]  # fmt: skip
        for name, item in value.items():
            within = properties.get(name, others)
            if within is not None:
                found += refusals(item, within, _join(place, name))
    if isinstance(value, list) and "items" in schema:
        for number, item in enumerate(value):
            found += refusals(item, schema["items"], f"{place}[{number}]")
    return found


def _refusals_of_value(value, schema):
    if "enum" in schema and value not in schema["enum"]:
        yield f"is none of {schema['enum']}"
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and (value < low or (value == low and "exclusiveMinimum" in schema)):
        yield f"is too small for {low}"
    if high is not None and (value > high or (value == high and "exclusiveMaximum" in schema)):
        yield f"is too large for {high}"
    if "pattern" in schema and not re.search(schema["pattern"], value):
        yield f"does not match {schema['pattern']}"
    if isinstance(value, str) and len(value) > schema.get("maxLength", len(value)):
        yield f"is longer than {schema['maxLength']}"


def _join(place, name):
    return f"{place}.{name}" if place else name
