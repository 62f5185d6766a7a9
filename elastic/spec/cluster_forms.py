"""The form of the settings that only Kubernetes reads, checked before anything is started.

They stay text in the `JobSpec`; the values are checked wherever a job runs, so that a job tried
on one machine does not fail on the cluster for a typing error.
"""

import re
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator

_CPU: Final = re.compile(r"\d+(\.\d+)?m?")
_BYTES: Final = re.compile(r"\d+(\.\d+)?([kMGTPE]|[KMGTPE]i)?")
_WHOLE: Final = re.compile(r"\d+")
_BYTE_RESOURCES: Final = frozenset({"memory", "disk", "ephemeral-storage"})
_DEVICE: Final = re.compile(r"gpu|[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[a-zA-Z0-9]([-\w.]*\w)?")
_DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_CLASS_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_VOLUME_KEYS: Final = ("claim_name", "host_path", "mount_path", "sub_path", "type", "read_only")
_MAX_LABEL_LENGTH: Final = 63


def _pairs(text: str, whole: str) -> dict[str, str]:
    """Read `a=x,b=y`."""
    pairs: dict[str, str] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        key, _, value = (part.strip() for part in item.partition("="))
        if not key or not value:
            raise ValueError(f"{item!r} in {whole!r} is not of the form name=value")
        if key in pairs:
            raise ValueError(f"{key!r} comes twice in {whole!r}: leave one out")
        pairs[key] = value
    return pairs


def check_resources(text: str) -> str:
    """Check `cpu=1,memory=4096Mi,nvidia.com/gpu=1`.

    Raises:
        ValueError: A resource is unknown, or its amount is none.
    """
    for resource, amount in _pairs(text, text).items():
        if resource == "cpu":
            pattern, example = _CPU, "0.5 or 500m"
        elif resource in _BYTE_RESOURCES:
            pattern, example = _BYTES, "512Mi or 4Gi"
        elif _DEVICE.fullmatch(resource):
            pattern, example = _WHOLE, "1"
        else:
            raise ValueError(
                f"{resource!r} in {text!r} is no resource: use cpu, memory, disk, "
                "ephemeral-storage, gpu or a name like nvidia.com/gpu"
            )
        if not pattern.fullmatch(amount):
            raise ValueError(f"{resource}={amount} is no amount of {resource}: write {example}")
    return text


def check_volumes(text: str) -> str:
    """Check `claim_name=c,mount_path=/data;host_path=/d,mount_path=/e`.

    Raises:
        ValueError: A key is unknown, or a volume lacks its source or its mount path.
    """
    for volume in filter(None, (part.strip() for part in text.split(";"))):
        pairs = _pairs(volume, volume)
        for key in pairs:
            if key not in _VOLUME_KEYS:
                raise ValueError(f"{key!r} in {volume!r} is unknown: use {', '.join(_VOLUME_KEYS)}")
        if ("claim_name" in pairs) == ("host_path" in pairs):
            raise ValueError(f"{volume!r} needs one of claim_name and host_path")
        if not pairs.get("mount_path", "").startswith("/"):
            raise ValueError(f"{volume!r} needs a mount_path that begins with '/'")
    return text


def check_priority_class(text: str) -> str:
    """Check the name of a priority class.

    Raises:
        ValueError: No priority class can have that name.
    """
    if text and not _CLASS_NAME.fullmatch(text):
        raise ValueError(
            f"{text!r} is no name of a priority class: use lower-case letters, digits, '-' and '.'"
        )
    return text


def number_to_text(value: object) -> object:
    """Let a job file hold the fraction 0.5 as a number."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    return value


def check_worker_priority(text: str) -> str:
    """Check the name of a priority class, or a fraction of high-priority workers.

    Raises:
        ValueError: The text is neither.
    """
    if not re.fullmatch(r"[-+]?\d*\.?\d+", text):
        return check_priority_class(text)
    if not 0 <= float(text) <= 1:
        raise ValueError(f"{text} is no fraction of the workers: write a number from 0 to 1")
    return text


def check_namespace(text: str) -> str:
    """Check the name of a namespace.

    Raises:
        ValueError: No namespace can have that name.
    """
    if len(text) > _MAX_LABEL_LENGTH or not _DNS_LABEL.fullmatch(text):
        raise ValueError(
            f"{text!r} is no name of a namespace: use at most {_MAX_LABEL_LENGTH} lower-case "
            "letters, digits and '-'"
        )
    return text


Resources = Annotated[str, AfterValidator(check_resources)]
Volumes = Annotated[str, AfterValidator(check_volumes)]
PriorityClass = Annotated[str, AfterValidator(check_priority_class)]
WorkerPriority = Annotated[
    str, BeforeValidator(number_to_text), AfterValidator(check_worker_priority)
]
Namespace = Annotated[str, AfterValidator(check_namespace)]
