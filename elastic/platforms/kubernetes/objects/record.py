"""What the ConfigMaps of a job hold, as values: submission, control, specification, status."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter, ValidationError

from elastic.errors import PlatformError
from elastic.platforms.base import JobControl
from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.platforms.kubernetes.objects.names import (
    CONTROL_KEY,
    LAST_WORDS_KEY,
    SPEC_KEY,
    STATUS_KEY,
    SUBMISSION_KEY,
    ResourceOwner,
)
from elastic.platforms.kubernetes.objects.queues import QueueSystem
from elastic.spec.job import JobSpec
from elastic.spec.status import JobStatus, StoredStatus

T = TypeVar("T")

_CONTROL: Final = TypeAdapter(JobControl)
_SPEC: Final = TypeAdapter(JobSpec)
_STATUS: Final[TypeAdapter[JobStatus]] = TypeAdapter(StoredStatus)
_LAST_WORDS: Final = TypeAdapter(dict[str, str])


class StatusUnreadableError(PlatformError):
    """What is stored as a job's status is none that this version can read."""


@dataclass(frozen=True, slots=True)
class Submission:
    """One submission of a job.

    Attributes:
        uid: Random; tells the objects of this submission from those of earlier ones.
        image: What the pods run.
        owner: The resource that the job was made from; None for one that a user has submitted.
        queue_system: See `Job`.
    """

    uid: str
    submitted_s: float
    image: str
    owner: ResourceOwner | None = None
    queue_system: QueueSystem | None = None


_SUBMISSION: Final = TypeAdapter(Submission)


def dump_submission(submission: Submission) -> str:
    """The text that `read_submission` reads."""
    return _SUBMISSION.dump_json(submission).decode()


def dump_control(control: JobControl) -> str:
    """The text that `control_of` reads."""
    return _CONTROL.dump_json(control).decode()


def dump_last_words(last_words: Mapping[str, str]) -> str:
    """The text that `last_words_of` reads."""
    return _LAST_WORDS.dump_json(dict(last_words)).decode()


def read_submission(text: str, where: str) -> Submission:
    """Read a submission.

    Raises:
        PlatformError: It is none; `where` is named.
    """
    return _read(text, _SUBMISSION, where)


def read_spec(text: str, where: str) -> JobSpec:
    """Read a specification.

    Raises:
        PlatformError: It is none; `where` is named.
    """
    return _read(text, _SPEC, where)


def submission_of(record: Manifest) -> Submission:
    """The submission in a job's record.

    Raises:
        PlatformError: It is missing or damaged.
    """
    return read_submission(*_text(record, SUBMISSION_KEY))


def spec_of(record: Manifest) -> JobSpec:
    """The specification in a job's record.

    Raises:
        PlatformError: It is missing or damaged.
    """
    return read_spec(*_text(record, SPEC_KEY))


def control_of(record: Manifest) -> JobControl:
    """What users asked of a job.

    Raises:
        PlatformError: It is missing or damaged.
    """
    text, where = _text(record, CONTROL_KEY)
    return _read(text, _CONTROL, where)


def status_of(config_map: Manifest) -> JobStatus | None:
    """The published status; None where the ConfigMap holds none yet.

    Raises:
        StatusUnreadableError: It is damaged.
    """
    if STATUS_KEY not in (config_map.get("data") or {}):
        return None
    text, where = _text(config_map, STATUS_KEY)
    try:
        return _STATUS.validate_json(text)
    except ValidationError as error:
        raise StatusUnreadableError(
            f"{where} is damaged or of a newer version: {_first_problem(error)}: look with that "
            "version, or submit the job again with --overwrite"
        ) from error


def last_words_of(config_map: Manifest) -> dict[str, str]:
    """By replica, such as `worker-0`, what its launch before the present one wrote last.

    Raises:
        PlatformError: They are damaged.
    """
    if LAST_WORDS_KEY not in (config_map.get("data") or {}):
        return {}
    text, where = _text(config_map, LAST_WORDS_KEY)
    return _read(text, _LAST_WORDS, where)


def _text(config_map: Manifest, key: str) -> tuple[str, str]:
    metadata: Mapping[str, Any] = config_map.get("metadata") or {}
    where = f"{key} of ConfigMap {metadata.get('namespace')}/{metadata.get('name')}"
    text = (config_map.get("data") or {}).get(key)
    if text is None:
        raise PlatformError(f"{where} is missing: this is not the record of a job")
    return str(text), where


def _read(text: str, adapter: TypeAdapter[T], where: str) -> T:
    try:
        return adapter.validate_json(text)
    except ValidationError as error:
        raise PlatformError(
            f"{where} is damaged or of another version: {_first_problem(error)}: submit the job "
            "again"
        ) from error


def _first_problem(error: ValidationError) -> str:
    return str(error.errors()[0]["msg"])
