"""The end of a job where its ConfigMap does not take it: in the words its master's pod keeps. Pure.

The kubelet carries them, so they need no right of the master's and no room beside other statuses.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.platforms.kubernetes.pods.containers import own_state
from elastic.spec.status import JobStatus, StoredStatus

MAX_BYTES: Final = 4096
"""Kubernetes cuts off the rest."""

MAX_MESSAGE: Final = 1000
_KEY: Final = "job_end"
_STATUS: Final[TypeAdapter[JobStatus]] = TypeAdapter(StoredStatus)
_LISTS: Final = frozenset({"events", "audits", "workers", "epochs", "evaluations"})


def reduced(status: JobStatus) -> JobStatus:
    """The same status without whatever may be long."""
    num_audited = status.audits_left_out + sum(audit.num_epochs for audit in status.audits)
    change = {
        "events": (),
        "audits": (),
        "audits_left_out": num_audited,
        "workers": (),
        "epochs": (),
        "evaluations": (),
        "message": status.message[:MAX_MESSAGE],
    }
    return status.model_copy(update=change)


def dump_end(end: JobStatus) -> str:
    """The text that `end_of` finds in the pod: as much of the end as fits."""
    short = reduced(end).model_dump(mode="json", exclude=set(_LISTS))
    least = {name: short[name] for name in ("job_name", "phase", "reason", "ended_s", "progress")}
    brief = {**least, "message": short["message"][: MAX_MESSAGE // 4]}
    # Letters beyond ASCII take more bytes than one, and a path may be long.
    for told in (short, brief, least):
        text = json.dumps({_KEY: told}, ensure_ascii=False)
        if len(text.encode()) <= MAX_BYTES:
            break
    return text


def end_of(master: Manifest, published: JobStatus) -> JobStatus | None:
    """The end that a master left in its pod, beside what it had published before; None for none."""
    terminated: Mapping[str, Any] = own_state(master).get("terminated") or {}
    with suppress(ValueError, TypeError, KeyError, ValidationError):
        end = _STATUS.validate_python(json.loads(terminated.get("message") or "")[_KEY])
        told = {name: getattr(end, name) for name in end.model_fields_set}
        # When the job was submitted is the record's to tell, and the master may not know.
        told = {name: value for name, value in told.items() if value is not None}
        return published.model_copy(update={"message": "", **told}) if end.phase.is_final else None
    return None
