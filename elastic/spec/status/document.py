"""A status as programs read it: JSON values, and the schema that they keep to."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import TypeAdapter

from elastic.spec.status import JobStatus

_SCHEMA_URI: Final = "https://json-schema.org/draft/2020-12/schema"
_STATUS: Final[TypeAdapter[JobStatus]] = TypeAdapter(JobStatus)
_OUTPUT: Final[TypeAdapter[JobStatus | list[JobStatus]]] = TypeAdapter(JobStatus | list[JobStatus])


def document(status: JobStatus) -> dict[str, Any]:
    """The status in JSON's values; `null` where JSON has no number."""
    plain: dict[str, Any] = _finite(_STATUS.dump_python(status, mode="json"))
    return plain


def status_schema() -> dict[str, Any]:
    """The JSON Schema of `elastic status -o json`, with and without the name of a job.

    Fields may be added without another version, so none that is unknown is forbidden.
    """
    schema: dict[str, Any] = _open(_OUTPUT.json_schema(mode="serialization"))
    head = {
        "$schema": _SCHEMA_URI,
        "title": "elastic status",
        "description": "What `elastic status JOB -o json` prints, or without JOB a list of it.",
    }
    return head | schema


def _finite(value: Any) -> Any:
    match value:
        case dict():
            return {key: _finite(item) for key, item in value.items()}
        case list():
            return [_finite(item) for item in value]
        case float() if not math.isfinite(value):
            return None
    return value


def _open(schema: Any) -> Any:
    """The same schema without what forbids unknown fields, and without titles that only repeat."""
    match schema:
        case Mapping():
            return {
                key: _open(item)
                for key, item in schema.items()
                if not (key == "additionalProperties" and item is False)
                and not (key == "title" and isinstance(item, str))
            }
        case Sequence() if not isinstance(schema, str):
            return [_open(item) for item in schema]
    return schema
