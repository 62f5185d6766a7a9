"""Checks values against the part of JSON Schema that our own schema uses."""

TYPES = {
    "null": type(None), "boolean": bool, "integer": int, "number": (int, float), "string": str,
    "array": list, "object": dict,
}  # fmt: skip
KNOWN = {
    "$ref", "anyOf", "enum", "type", "properties", "required", "items", "additionalProperties",
    "default", "description", "title", "$schema", "$defs",
}  # fmt: skip


def problems(value, schema, root=None, place="$"):
    """What is wrong with a value, as texts; the schema may use no word that is not known here."""
    root = schema if root is None else root
    assert set(schema) <= KNOWN, f"{place}: {set(schema) - KNOWN}"
    found = []
    if "$ref" in schema:
        target = root
        for part in schema["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        found += problems(value, target, root, place)
    if "anyOf" in schema:
        tries = [problems(value, one, root, place) for one in schema["anyOf"]]
        found += [] if not all(tries) else min(tries, key=len)
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{place}: {value!r} is none of {schema['enum']}")
    kind = schema.get("type")
    if kind and (
        not isinstance(value, TYPES[kind]) or (isinstance(value, bool) and kind != "boolean")
    ):
        return [*found, f"{place}: {value!r} is no {kind}"]
    if isinstance(value, dict):
        found += [f"{place}: no {name}" for name in schema.get("required", []) if name not in value]
        properties = schema.get("properties", {})
        for name, item in value.items():
            of_item = properties.get(name, schema.get("additionalProperties", {}))
            found += problems(item, of_item, root, f"{place}.{name}")
    if isinstance(value, list) and "items" in schema:
        for number, item in enumerate(value):
            found += problems(item, schema["items"], root, f"{place}[{number}]")
    return found
