"""Brings a cluster to what `access` describes, one object at a time."""

from collections.abc import Iterable, Iterator
from http import HTTPStatus
from typing import Final

from elastic.platforms.kubernetes.connection import Cluster, RefusedError
from elastic.platforms.kubernetes.names import Manifest

_PATHS: Final = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
}


def apply(cluster: Cluster, manifests: Iterable[Manifest]) -> Iterator[str]:
    """Create what is missing and change what differs; says what was done with each.

    Raises:
        RefusedError: The API server does not let this user do so.
        AwayError: It does not answer.
    """
    for manifest in manifests:
        yield f"{manifest['kind']} {manifest['metadata']['name']}: {_apply(cluster, manifest)}"


def _apply(cluster: Cluster, manifest: Manifest) -> str:
    metadata = manifest["metadata"]
    collection = _PATHS[manifest["kind"]].format(namespace=metadata.get("namespace"))
    path = f"{collection}/{metadata['name']}"
    try:
        there = cluster.get(path)
    except RefusedError as error:
        if error.code != HTTPStatus.NOT_FOUND:
            raise
        cluster.create(collection, manifest)
        return "created"
    if _holds(there, manifest):
        return "unchanged"
    if there.get("roleRef") != manifest.get("roleRef"):
        # The API lets nobody point a binding at another role.
        cluster.delete(path)
        cluster.create(collection, manifest)
    else:
        cluster.patch(path, manifest)
    return "changed"


def _holds(there: object, wanted: object) -> bool:
    """Whether an object has all that is wanted; what others have added does not matter."""
    if isinstance(wanted, dict) and isinstance(there, dict):
        return all(_holds(there.get(key), value) for key, value in wanted.items())
    return there == wanted or (not there and not wanted)
