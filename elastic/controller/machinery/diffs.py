"""What changes one status into another, as a merge patch. Pure."""

from collections.abc import Mapping
from typing import Any

from elastic.platforms.kubernetes.api.resources import Manifest


def merge_patch(there: Manifest, wanted: Manifest) -> Manifest:
    """The smallest merge patch (RFC 7386) that makes `wanted` of what is there.

    Both are taken without their empty fields: None in an object says that there is no such field,
    and the API server keeps none. Empty where there is nothing to change.
    """
    return _changes(without_none(there), without_none(wanted))


def without_none(value: Any) -> Any:
    """The same without fields that are None, at any depth."""
    if isinstance(value, Mapping):
        return {key: without_none(each) for key, each in value.items() if each is not None}
    if isinstance(value, list | tuple):
        return [without_none(each) for each in value]
    return value


def _changes(there: Manifest, wanted: Manifest) -> Manifest:
    changes: Manifest = dict.fromkeys(key for key in there if key not in wanted)
    for key, value in wanted.items():
        old = there.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            # An empty patch of a field would be no change, and is not one here either.
            if within := _changes(old, value):
                changes[key] = within
        elif key not in there or old != value or isinstance(old, bool) != isinstance(value, bool):
            changes[key] = value
    return changes
