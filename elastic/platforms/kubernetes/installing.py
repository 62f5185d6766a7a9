"""Brings a cluster to what `access` describes, one object at a time."""

from collections.abc import Iterable, Iterator
from http import HTTPStatus
from typing import Any, Final

from elastic.errors import PlatformError
from elastic.platforms.kubernetes.api.cluster import Cluster, RefusedError
from elastic.platforms.kubernetes.api.resources import (
    NAMESPACES,
    PRIORITY_CLASSES,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
    Manifest,
)

_RESOURCES: Final = {
    each.kind: each
    for each in (NAMESPACES, SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS, PRIORITY_CLASSES)
}
_MAX_TRIES: Final = 5


def apply(cluster: Cluster, manifests: Iterable[Manifest]) -> Iterator[str]:
    """Create what is missing and change what differs; says what was done with each.

    Whoever has a right already keeps it: subjects of bindings and rules of roles are only added.

    Raises:
        PlatformError: The namespace is not there.
        RefusedError: The API server does not let this user do so.
        AwayError: It does not answer.
    """
    for manifest in manifests:
        yield f"{manifest['kind']} {manifest['metadata']['name']}: {_apply(cluster, manifest)}"


def _apply(cluster: Cluster, manifest: Manifest) -> str:
    num_tries = 0
    while True:
        num_tries += 1
        try:
            return _apply_once(cluster, manifest)
        except RefusedError as error:
            if error.code == HTTPStatus.NOT_FOUND and error.kind == "namespaces":
                namespace = manifest["metadata"]["namespace"]
                raise PlatformError(
                    f"there is no namespace {namespace!r} in {cluster.server}: choose another "
                    f"--namespace, or make it: elastic install -n {namespace} --create_namespace "
                    "--apply"
                ) from error
            # Somebody else has changed it since it was read: another install, or a controller.
            if error.code != HTTPStatus.CONFLICT or num_tries == _MAX_TRIES:
                raise


def _apply_once(cluster: Cluster, manifest: Manifest) -> str:
    metadata = manifest["metadata"]
    collection = _RESOURCES[manifest["kind"]].path(metadata.get("namespace"))
    path = f"{collection}/{metadata['name']}"
    is_new = False
    try:
        there = cluster.get(path)
    except RefusedError as error:
        if error.code != HTTPStatus.NOT_FOUND:
            raise
        # What another install has made in the meantime is given for ours, and may lack a subject.
        there, is_new = cluster.create(collection, manifest), True
    if there.get("roleRef") != manifest.get("roleRef"):
        # The API lets nobody point a binding at another role, whose subjects it was not made for.
        cluster.delete(path)
        cluster.create(collection, manifest)
        return "changed"
    wanted, added = _with_subjects_of(there, _with_rules_of(there, manifest))
    if _holds(there, wanted):
        return "created" if is_new else "unchanged"
    version = {"resourceVersion": there["metadata"].get("resourceVersion")}
    cluster.patch(path, {**wanted, "metadata": {**metadata, **version}})
    return f"changed: added {', '.join(added)}" if added else "changed"


def _with_rules_of(there: Manifest, wanted: Manifest) -> Manifest:
    """What is wanted, with the rules that a role has already: some clusters need more than ours."""
    if "rules" not in wanted:
        return wanted
    rules = there.get("rules") or []
    return {**wanted, "rules": [*rules, *(rule for rule in wanted["rules"] if rule not in rules)]}


def _with_subjects_of(there: Manifest, wanted: Manifest) -> tuple[Manifest, list[str]]:
    """What is wanted, with the subjects that a binding has already; and those it has not, by name.

    The API replaces lists whole, so a binding of one submitter would end the rights of all others.
    """
    if "subjects" not in wanted:
        return wanted, []
    subjects = list(there.get("subjects") or [])
    known = {_identity(subject) for subject in subjects}
    added = []
    for subject in wanted["subjects"]:
        if _identity(subject) not in known:
            known.add(_identity(subject))
            subjects.append(subject)
            added.append(f"{subject['kind']} {subject['name']}")
    return {**wanted, "subjects": subjects}, added


def _identity(subject: Manifest) -> tuple[Any, ...]:
    return subject.get("kind"), subject.get("name"), subject.get("namespace")


def _holds(there: object, wanted: object) -> bool:
    """Whether an object has all that is wanted; what others have added does not matter."""
    if isinstance(wanted, dict) and isinstance(there, dict):
        return all(_holds(there.get(key), value) for key, value in wanted.items())
    return there == wanted or (not there and not wanted)
