"""Looks at a cluster once, and says what it looks like to a policy."""

from collections.abc import Mapping, Sequence

from elastic.controller.resources.tf_job import SHARE_PODS
from elastic.controller.snapshots.objects import RESOURCES, node_of
from elastic.controller.snapshots.reading import KINDS, TRAIN_JOBS, Objects, history_of, snapshot_of
from elastic.errors import JobSpecError
from elastic.platforms.kubernetes.api.cluster import Cluster, is_served
from elastic.platforms.kubernetes.api.resources import CONFIGMAPS, NODES, PODS, Manifest, Resource
from elastic.platforms.kubernetes.objects.names import APP, APP_LABEL
from elastic.policy.cluster import Node, Snapshot
from elastic.simulation.workload import Workload
from elastic.spec.values import nearest


def check_kinds(kinds: Sequence[str]) -> None:
    """Refuse kinds that cannot be read.

    Args:
        kinds: Lower-case names of kinds.

    Raises:
        JobSpecError: There is no such kind.
    """
    for kind in kinds:
        if kind not in KINDS:
            near = nearest(kind, KINDS)
            hint = f": did you mean {near}?" if near else f": there are {', '.join(KINDS)}"
            raise JobSpecError(f"--kinds {kind} is no kind of jobs that can be planned{hint}")


def look(cluster: Cluster, namespace: str | None, kinds: Sequence[str] = ()) -> Snapshot:
    """A cluster at this moment.

    Args:
        cluster: Which one; its nodes and all of its pods are read.
        namespace: Whose jobs; None for those of all.
        kinds: Which of them, by the lower-case names of their kinds; all where there are none.

    Raises:
        PlatformError: The cluster cannot be asked, or refuses.
    """
    return snapshot_of(_objects(cluster, namespace, kinds or KINDS))


def look_back(
    cluster: Cluster, namespace: str | None, serial: float
) -> tuple[Workload, tuple[Node, ...]]:
    """What the jobs of a cluster did, and its nodes.

    Args:
        cluster: Which one; its nodes are read, and no pods.
        namespace: Whose jobs; None for those of all.
        serial: The part of one worker's time that others do not shorten.

    Raises:
        DescriptionError: No job has succeeded.
        PlatformError: The cluster cannot be asked, or refuses.
    """
    nodes = tuple(node_of(each) for each in _items(cluster, NODES))
    jobs = {kind: _listed(cluster, RESOURCES[kind], namespace) for kind in RESOURCES}
    return history_of(jobs, nodes, serial, _own_maps(cluster, namespace)), nodes


def _objects(cluster: Cluster, namespace: str | None, kinds: Sequence[str]) -> Objects:
    jobs = {
        kind: _listed(cluster, RESOURCES[kind], namespace) for kind in kinds if kind in RESOURCES
    }
    maps = _own_maps(cluster, namespace) if TRAIN_JOBS in kinds else []
    pods = _items(cluster, PODS)
    names = {_name(pod) for pod in pods}
    waiting = [each for each in _listed(cluster, SHARE_PODS, None) if _name(each) not in names]
    return Objects(cluster.now_s(), _items(cluster, NODES), pods, jobs, waiting, maps)


def _name(item: Manifest) -> tuple[str, str]:
    return str(item["metadata"].get("namespace")), str(item["metadata"]["name"])


def _listed(cluster: Cluster, resource: Resource, namespace: str | None) -> list[Manifest]:
    """All objects of a type; none where the cluster does not know it."""
    return _items(cluster, resource, namespace) if is_served(cluster, resource) else []


def _own_maps(cluster: Cluster, namespace: str | None) -> list[Manifest]:
    """What our own jobs were submitted with, and what they tell."""
    query = {"labelSelector": f"{APP_LABEL}={APP}"}
    return _items(cluster, CONFIGMAPS, namespace, query)


def _items(
    cluster: Cluster,
    resource: Resource,
    namespace: str | None = None,
    query: Mapping[str, str] | None = None,
) -> list[Manifest]:
    found = cluster.get(resource.path(namespace), dict(query or {}))
    items: list[Manifest] = found.get("items") or []
    # A list leaves out what all of its items have in common.
    return [{"kind": resource.kind, **each} for each in items]
