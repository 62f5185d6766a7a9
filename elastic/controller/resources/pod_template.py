"""What has to be right of a pod's template before pods can be made of it.

Only what the controller itself looks into is looked at; all else is the API server's to judge.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

Path: TypeAlias = tuple[str | int, ...]

Problem: TypeAlias = tuple[Path, object, str]
"""Where it is below the template, what is there, and what should be."""

_CONTAINERS: Final = ("initContainers", "containers")


def template_problem(template: Mapping[str, Any]) -> Problem | None:
    """The first thing in a template of which no pod can be made; None where there is nothing."""
    return next(_problems(template), None)


def _problems(template: Mapping[str, Any]) -> Iterator[Problem]:
    metadata = template.get("metadata")
    yield from _not_a(("metadata",), metadata, dict, "a mapping")
    for key in ("labels", "annotations"):
        if isinstance(metadata, dict):
            yield from _not_texts(("metadata", key), metadata.get(key))
    spec = template.get("spec")
    if not isinstance(spec, dict):
        yield ("spec",), spec, "must be the spec of a pod, with containers"
        return
    if not spec.get("containers"):
        yield ("spec", "containers"), spec.get("containers"), "must list at least one container"
        return
    for kind in _CONTAINERS:
        yield from _not_containers(("spec", kind), spec.get(kind))


def _not_containers(path: Path, containers: object) -> Iterator[Problem]:
    if containers is not None and not isinstance(containers, list):
        yield path, containers, "must be a list of containers"
    for number, container in enumerate(containers if isinstance(containers, list) else ()):
        here = (*path, number)
        if not isinstance(container, dict):
            yield here, container, "must be a container, with a name and an image"
            continue
        name = container.get("name")
        if not isinstance(name, str) or not name:
            yield (*here, "name"), name, "must be the container's name"
        for key in ("env", "ports"):
            yield from _not_mappings((*here, key), container.get(key))
        yield from _not_a((*here, "resources"), container.get("resources"), dict, "a mapping")


def _not_mappings(path: Path, entries: object) -> Iterator[Problem]:
    if entries is not None and not isinstance(entries, list):
        yield path, entries, "must be a list"
    for number, entry in enumerate(entries if isinstance(entries, list) else ()):
        yield from _not_a((*path, number), entry, dict, "a mapping", is_needed=True)


def _not_texts(path: Path, mapping: object) -> Iterator[Problem]:
    yield from _not_a(path, mapping, dict, "a mapping")
    for key, value in mapping.items() if isinstance(mapping, dict) else ():
        yield from _not_a((*path, str(key)), value, str, "a text", is_needed=True)


def _not_a(
    path: Path, value: object, type_: type, words: str, *, is_needed: bool = False
) -> Iterator[Problem]:
    if (is_needed or value is not None) and not isinstance(value, type_):
        yield path, value, f"must be {words}"
