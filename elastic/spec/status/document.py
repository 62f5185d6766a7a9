"""A status for programs: in the values that JSON has."""

import math
from typing import Any, Final

from pydantic import TypeAdapter

from elastic.spec.status import JobStatus

_STATUS: Final[TypeAdapter[JobStatus]] = TypeAdapter(JobStatus)


def document(status: JobStatus) -> dict[str, Any]:
    """The status in JSON's values; `null` where JSON has no number."""
    plain: dict[str, Any] = _finite(_STATUS.dump_python(status, mode="json"))
    return plain


def _finite(value: Any) -> Any:
    match value:
        case dict():
            return {key: _finite(item) for key, item in value.items()}
        case list():
            return [_finite(item) for item in value]
        case float() if not math.isfinite(value):
            return None
    return value
