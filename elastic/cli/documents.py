"""`elastic status -o json` and `-o yaml`: jobs and objects as documents, and their JSON Schema."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import TypeAdapter

from elastic.policy.time_account import as_of
from elastic.spec.status import JobStatus
from elastic.spec.status.document import document
from elastic.spec.status.objects import ListedJobStatus, Listing, ObjectStatus
from elastic.spec.yaml_text import dump_value

View = JobStatus | list[JobStatus] | ObjectStatus | Listing
"""What one look at a platform has seen: a job, all of them, or the same in a cluster."""

_SCHEMA_URI: Final = "https://json-schema.org/draft/2020-12/schema"
_OBJECT: Final[TypeAdapter[ObjectStatus]] = TypeAdapter(ObjectStatus)
_OUTPUT: Final[TypeAdapter[Any]] = TypeAdapter(
    JobStatus | ObjectStatus | list[ListedJobStatus | ObjectStatus]
)


def listed_document(status: JobStatus, namespace: str = "") -> dict[str, Any]:
    """The document of a job in a list.

    Args:
        status: Of a job.
        namespace: Where it is; empty where its platform has none.
    """
    return document(status) | {"namespace": namespace}


def object_document(status: ObjectStatus) -> dict[str, Any]:
    """An object in JSON's values."""
    plain: dict[str, Any] = _OBJECT.dump_python(status, mode="json")
    return plain


def view_text(view: View, output: str, watch: bool, now_s: float) -> str:
    """JSON or YAML; while watching, one JSON line or YAML document per change."""
    content = _content(view, now_s)
    if output == "yaml":
        return ("---\n" if watch else "") + dump_value(content)
    return json.dumps(content, indent=None if watch else 2) + "\n"


def _content(view: View, now_s: float) -> Any:
    match view:
        case JobStatus():
            return document(as_of(view, now_s))
        case ObjectStatus():
            return object_document(view)
        case Listing():
            jobs = [
                listed_document(as_of(each.status, now_s), each.namespace) for each in view.jobs
            ]
            return [*jobs, *map(object_document, view.objects)]
    return [listed_document(as_of(status, now_s)) for status in view]


def status_schema() -> dict[str, Any]:
    """The JSON Schema of `elastic status -o json`, with and without the name of a job.

    Fields may be added without another version, so none that is unknown is forbidden.
    """
    schema: dict[str, Any] = _open(_OUTPUT.json_schema(mode="serialization"))
    head = {
        "$schema": _SCHEMA_URI,
        "title": "elastic status",
        "description": "What `elastic status JOB -o json` prints: a JobStatus, or an ObjectStatus "
        "where JOB is KIND/NAME. Without JOB it is a list of all, with the namespace of each.",
    }
    return head | schema


def schema_text() -> str:
    """The JSON Schema as it stands in `docs/status.schema.json`."""
    return json.dumps(status_schema(), indent=2) + "\n"


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
