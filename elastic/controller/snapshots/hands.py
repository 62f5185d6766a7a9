"""Whose a size is, an autoscaler's or a user's: one that a user has set is left alone for a while.

An object remembers it by two annotations: the size that an autoscaler gave it last, and a size that
a user has set since, with the time until which that holds. A size that nobody has changed yet is
free, as the number of workers of a new job.
"""

from collections.abc import Mapping
from typing import Final

from elastic.controller.resources.common import seconds_of, time_text
from elastic.platforms.base import JobControl
from elastic.platforms.kubernetes.api.resources import Manifest

AUTOSCALED: Final = "elastic.dev/autoscaled"
"""Annotation: the size that an autoscaler wrote last."""

HELD: Final = "elastic.dev/held"
"""Annotation: a size that a user has set, and until when it holds: `3 2026-01-31T12:00:00Z`."""


def given(size: int) -> dict[str, str | None]:
    """The annotations of an object that an autoscaler gives a size."""
    return {AUTOSCALED: str(size), HELD: None}


def holding(size: int, until_s: float) -> dict[str, str | None]:
    """The annotations of an object whose size is a user's."""
    return {HELD: f"{size} {time_text(until_s)}"}


def is_held(manifest: Manifest, size: int, now_s: float) -> bool:
    """Whether an object has to keep its size, since a user has set it."""
    if not is_by_hand(manifest, size):
        return False
    until_s = _held_until_s(_annotations(manifest), size)
    return until_s is None or now_s < until_s


def is_news(manifest: Manifest, size: int) -> bool:
    """Whether a user has set a size of which no autoscaler has taken note yet."""
    is_noted = _held_until_s(_annotations(manifest), size) is not None
    return is_by_hand(manifest, size) and not is_noted


def is_by_hand(manifest: Manifest, size: int) -> bool:
    """Whether the size is another one than an autoscaler has given last."""
    return _annotations(manifest).get(AUTOSCALED, str(size)) != str(size)


def is_control_held(control: JobControl, now_s: float) -> bool:
    """The same as `is_held`, of a job of our own."""
    until_s = control.held_until_s
    return is_control_by_hand(control) and (until_s is None or now_s < until_s)


def is_control_news(control: JobControl) -> bool:
    """The same as `is_news`, of a job of our own."""
    return is_control_by_hand(control) and control.held_until_s is None


def is_control_by_hand(control: JobControl) -> bool:
    """The same as `is_by_hand`, of a job of our own."""
    return control.num_workers is not None and not control.autoscaled_for


def _annotations(manifest: Manifest) -> Mapping[str, str]:
    found: Mapping[str, str] = manifest["metadata"].get("annotations") or {}
    return found


def _held_until_s(annotations: Mapping[str, str], size: int) -> float | None:
    """Until when a size is left alone; None where it is none that was taken note of."""
    noted, _, until = annotations.get(HELD, "").partition(" ")
    if noted != str(size):
        return None
    try:
        return seconds_of(until)
    except ValueError:
        return None
