"""The end of a group of pods in Kueue, which holds what has ended of it until it is told."""

from typing import Final

from elastic.platforms.kubernetes.api.cluster import Cluster
from elastic.platforms.kubernetes.api.resources import Resource

_KUEUE: Final = "kueue.x-k8s.io"


def end_group(cluster: Cluster, namespace: str, name: str) -> None:
    """Have Kueue forget a group: it deletes the pods that are left, and gives back their room.

    It is fine if Kueue knows of none, or is gone itself.

    Raises:
        RefusedError: This account may not.
        AwayError: The API server does not answer.
    """
    groups = cluster.get("/apis")["groups"]
    versions = next((each["versions"] for each in groups if each["name"] == _KUEUE), ())
    if not versions:
        return
    version = versions[0]["version"]
    # It has the name of its group.
    cluster.delete(Resource(_KUEUE, version, "workloads", "Workload").path(namespace, name))
