"""Which types an API server knows, and what an account may do with them; everybody may ask that."""

from http import HTTPStatus
from typing import Any

from elastic.platforms.kubernetes.api.cluster import Cluster
from elastic.platforms.kubernetes.api.errors import RefusedError
from elastic.platforms.kubernetes.api.resources import SELF_ACCESS_REVIEWS, Resource


def is_served(cluster: Cluster, resource: Resource) -> bool:
    """Whether the API server knows a type in its version.

    Raises:
        RefusedError: The API server says no.
        AwayError: It does not answer.
    """
    groups = cluster.get("/apis")["groups"]
    served = {version["groupVersion"] for group in groups for version in group["versions"]}
    if resource.api_version not in served:
        return False
    try:
        found = cluster.get(f"/apis/{resource.api_version}")
    except RefusedError as error:
        # The last type of its group has just been removed.
        if error.code == HTTPStatus.NOT_FOUND:
            return False
        raise
    return any(each["name"] == resource.plural for each in found["resources"])


def may(cluster: Cluster, verb: str, resource: Resource, namespace: str | None) -> bool:
    """Whether this account has a right.

    Args:
        cluster: Whose API server is asked.
        verb: Such as `list`.
        resource: Objects of this type.
        namespace: Where they are; None for those of all namespaces.

    Raises:
        RefusedError: The API server says no.
        AwayError: It does not answer.
    """
    attributes: dict[str, Any] = {
        "verb": verb,
        "group": resource.group,
        "resource": resource.plural,
        **({} if namespace is None else {"namespace": namespace}),
    }
    review = {
        "apiVersion": SELF_ACCESS_REVIEWS.api_version,
        "kind": SELF_ACCESS_REVIEWS.kind,
        "metadata": {},
        "spec": {"resourceAttributes": attributes},
    }
    answer = cluster.create(SELF_ACCESS_REVIEWS.path(), review)
    return bool((answer.get("status") or {}).get("allowed"))
