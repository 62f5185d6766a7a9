"""All jobs of one namespace, or of all of them, from a few lists whatever their number."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from elastic.errors import PlatformError
from elastic.platforms.kubernetes.api.cluster import Cluster
from elastic.platforms.kubernetes.api.resources import CONFIGMAPS, PODS, Manifest, Resource
from elastic.platforms.kubernetes.job.objects import JobObjects
from elastic.platforms.kubernetes.job.status import job_status
from elastic.platforms.kubernetes.objects.names import (
    APP,
    APP_LABEL,
    JOB_LABEL,
    SPEC_KEY,
    TYPE_LABEL,
    record_name,
    selector,
    status_name,
)
from elastic.platforms.kubernetes.objects.record import spec_of, submission_of
from elastic.platforms.kubernetes.pods.masters import needs_warnings
from elastic.platforms.kubernetes.pods.observation import needs_pods, with_seen_workers
from elastic.spec.roles import MASTER, WORKER
from elastic.spec.settings import WorkerRange
from elastic.spec.status.objects import ListedJob

_Place: TypeAlias = tuple[str, str]
"""The namespace of a job, and its name."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """One job as its ConfigMaps have it.

    Attributes:
        record: What it was submitted with.
        status_map: What its master publishes in, if that is there.
    """

    record: Manifest
    status_map: Manifest | None

    @property
    def place(self) -> _Place:
        """Where it is, and its name."""
        return _place(self.record)


def recorded(cluster: Cluster, namespace: str | None) -> list[Recorded]:
    """Every job, oldest first.

    Args:
        cluster: Where they are.
        namespace: Theirs; None for those of all namespaces.
    """
    maps = _list(cluster, CONFIGMAPS, namespace, {APP_LABEL: APP})
    by_name = {(each["metadata"]["namespace"], each["metadata"]["name"]): each for each in maps}
    records = [
        each
        for each in maps
        if SPEC_KEY in (each.get("data") or {})
        and each["metadata"]["name"] == record_name(each["metadata"]["labels"].get(JOB_LABEL, ""))
    ]
    records.sort(key=lambda record: submission_of(record).submitted_s)
    return [Recorded(each, by_name.get(_status_place(each))) for each in records]


def listed_jobs(cluster: Cluster, namespace: str | None) -> list[ListedJob]:
    """Every job with its status, oldest first.

    It takes two lists, and a third where workers were left behind by a job that has ended.

    Args:
        cluster: Where they are.
        namespace: Theirs; None for those of all namespaces.
    """
    masters = dict(_pods(cluster, namespace, MASTER))
    # Read after the look: a master that has left has published its end by now.
    found = [
        _listed(cluster, each, masters.get(each.place)) for each in recorded(cluster, namespace)
    ]
    if not any(needs_pods(each.status) for each in found):
        return found
    workers: dict[_Place, list[Manifest]] = {}
    for place, pod in _pods(cluster, namespace, WORKER):
        workers.setdefault(place, []).append(pod)
    return [_with_workers(each, workers) if needs_pods(each.status) else each for each in found]


def _listed(cluster: Cluster, job: Recorded, master: Manifest | None) -> ListedJob:
    namespace, name = job.place
    is_stuck = master is not None and needs_warnings(master)
    objects = JobObjects(cluster, namespace, name)
    warnings = objects.warnings_of(master) if master and is_stuck else ()
    status = job_status(job.record, job.status_map, master, cluster.now_s(), warnings)
    return ListedJob(namespace, status, _workers_of(job.record))


def _workers_of(record: Manifest) -> WorkerRange | None:
    try:
        return spec_of(record).num_workers
    except PlatformError:
        # Its status tells that its record is of another version; only the range is not known.
        return None


def _with_workers(job: ListedJob, workers: Mapping[_Place, list[Manifest]]) -> ListedJob:
    pods = workers.get((job.namespace, job.status.job_name), ())
    return replace(job, status=with_seen_workers(job.status, pods))


def _pods(cluster: Cluster, namespace: str | None, role: str) -> Iterator[tuple[_Place, Manifest]]:
    for pod in _list(cluster, PODS, namespace, {APP_LABEL: APP, TYPE_LABEL: role}):
        yield _place(pod), pod


def _place(item: Manifest) -> _Place:
    metadata = item["metadata"]
    return metadata["namespace"], metadata["labels"][JOB_LABEL]


def _status_place(record: Manifest) -> _Place:
    namespace, name = _place(record)
    return namespace, status_name(name)


def _list(
    cluster: Cluster, resource: Resource, namespace: str | None, labels: Mapping[str, str]
) -> list[Manifest]:
    found = cluster.get(resource.path(namespace), {"labelSelector": selector(labels)})
    items: list[Manifest] = found.get("items") or []
    return items
