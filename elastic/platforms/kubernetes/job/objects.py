"""The objects of jobs in the API server: one job's, and those of all jobs at once.

A command line reads and changes those of one job. All jobs of one namespace, or of all of them, are
read from a few lists whatever their number.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, Final, TypeAlias

from elastic.errors import JobNotFoundError, PlatformError
from elastic.platforms.base import JobControl
from elastic.platforms.kubernetes.api.cluster import Cluster, RefusedError
from elastic.platforms.kubernetes.api.resources import (
    CONFIGMAPS,
    EVENTS,
    PODS,
    SECRETS,
    SERVICES,
    Manifest,
    Resource,
)
from elastic.platforms.kubernetes.job.status import job_status, published_status
from elastic.platforms.kubernetes.objects import names
from elastic.platforms.kubernetes.objects.manifests import (
    StatusUnreadableError,
    Submission,
    control_of,
    dump_control,
    last_words_of,
    spec_of,
    submission_of,
)
from elastic.platforms.kubernetes.pods.masters import needs_warnings
from elastic.platforms.kubernetes.pods.observation import needs_pods, with_seen_workers
from elastic.spec.roles import MASTER, WORKER
from elastic.spec.settings import WorkerRange
from elastic.spec.status import JobStatus
from elastic.spec.status.objects import ListedJob

_CHANGE_TRIES: Final = 10

_Place: TypeAlias = tuple[str, str]
"""The namespace of a job, and its name."""


class JobObjects:
    """The record, the status, the pods and the rest of the job of this name."""

    def __init__(self, cluster: Cluster, namespace: str, job_name: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.job_name = job_name

    def find(self, resource: Resource, name: str) -> Manifest | None:
        """One object of the job's namespace, or None where there is none."""
        try:
            return self.cluster.get(resource.path(self.namespace, name))
        except RefusedError as error:
            if error.code == HTTPStatus.NOT_FOUND:
                return None
            raise

    def find_record(self) -> Manifest | None:
        """What the job was submitted with."""
        return self.find(CONFIGMAPS, names.record_name(self.job_name))

    def record(self) -> Manifest:
        """What the job was submitted with.

        Raises:
            JobNotFoundError: No such job.
        """
        record = self.find_record()
        if record is None:
            raise JobNotFoundError(
                f"no job {self.job_name!r} in namespace {self.namespace!r} of "
                f"{self.cluster.server}: `elastic status -n {self.namespace}` lists those there"
            )
        return record

    def find_master(self) -> Manifest | None:
        """The master's pod, whatever submission it is of."""
        return self.find(PODS, names.master_name(self.job_name))

    def pods(self) -> list[Manifest]:
        """Every pod of the job, whatever submission it is of."""
        query = {"labelSelector": names.job_selector(self.job_name)}
        found = self.cluster.get(PODS.path(self.namespace), query)
        items: list[Manifest] = found.get("items") or []
        return items

    def status(self, record: Manifest | None = None) -> JobStatus:
        """What the master published last, corrected by what its pod shows.

        Raises:
            JobNotFoundError: No such job.
        """
        record = record or self.record()
        master = self.find_master()
        # Read after the look: a master that has left has published its end by now.
        status_map = self.find(CONFIGMAPS, names.status_name(self.job_name))
        warnings = self.warnings_of(master) if master and needs_warnings(master) else ()
        status = job_status(record, status_map, master, self.cluster.now_s(), warnings)
        return with_seen_workers(status, self.pods()) if needs_pods(status) else status

    def published(self) -> JobStatus | None:
        """What the master of the present submission published last, as far as it can be read."""
        status_map = self.find(CONFIGMAPS, names.status_name(self.job_name))
        try:
            return published_status(status_map, self.submission().uid)
        except StatusUnreadableError:
            return None

    def last_words(self) -> dict[str, str]:
        """By replica, what its launch before the present one wrote last."""
        status_map = self.find(CONFIGMAPS, names.status_name(self.job_name))
        return {} if status_map is None else last_words_of(status_map)

    def warnings_of(self, pod: Manifest) -> Sequence[str]:
        """What the cluster has warned of about a pod, oldest first."""
        uid = pod["metadata"]["uid"]
        query = {"fieldSelector": f"involvedObject.uid={uid},type=Warning"}
        try:
            found = self.cluster.get(EVENTS.path(self.namespace), query)
        except RefusedError as error:
            if error.code == HTTPStatus.FORBIDDEN:
                # They only add the cause to what is known without them.
                return ()
            raise
        events = sorted(found.get("items") or (), key=lambda e: str(e.get("lastTimestamp") or ""))
        return [str(event.get("message", "")) for event in events]

    def ask(self, **changes: Any) -> JobControl:
        """Change what users want of the job: fields of `JobControl`.

        Returns:
            What they wanted before.

        Raises:
            JobNotFoundError: No such job.
        """
        for _ in range(_CHANGE_TRIES):
            record = self.record()
            before = control_of(record)
            control = replace(before, **changes)
            change = {
                # Of two who change at once, one is refused and looks again.
                "metadata": {"resourceVersion": record["metadata"]["resourceVersion"]},
                "data": {names.CONTROL_KEY: dump_control(control)},
            }
            path = CONFIGMAPS.path(self.namespace, names.record_name(self.job_name))
            try:
                self.cluster.patch(path, change)
            except RefusedError as error:
                if error.code != HTTPStatus.CONFLICT:
                    raise
            else:
                return before
        raise PlatformError(f"job {self.job_name!r} is changed by others all the time: try again")

    def write_status(
        self, status: JobStatus, submission_uid: str, owner: names.ResourceOwner | None = None
    ) -> None:
        """Publish in the place of a master that cannot.

        Args:
            status: Of the job.
            submission_uid: Which submission it is of.
            owner: The resource that the job was made from.
        """
        name = names.status_name(self.job_name)
        labels = names.job_labels(self.job_name, submission_uid)
        metadata: Manifest = {"name": name, "namespace": self.namespace, "labels": labels}
        if owner is not None:
            labels[names.TRAIN_JOB_LABEL] = owner.name
            metadata["ownerReferences"] = [owner.reference()]
        content = {
            "metadata": metadata,
            "data": {names.STATUS_KEY: status.model_dump_json()},
        }
        try:
            self.cluster.patch(CONFIGMAPS.path(self.namespace, name), content)
        except RefusedError as error:
            if error.code != HTTPStatus.NOT_FOUND:
                raise
            manifest = {"apiVersion": "v1", "kind": "ConfigMap", **content}
            self.cluster.create(CONFIGMAPS.path(self.namespace), manifest)

    def submission(self) -> Submission:
        """The submission that the record holds.

        Raises:
            JobNotFoundError: No such job.
        """
        return submission_of(self.record())

    def delete(
        self,
        resource: Resource,
        name: str,
        grace_s: float | None = None,
        uid: str | None = None,
    ) -> None:
        """Delete one object, or only the one with this uid; it is fine if there is none."""
        self.cluster.delete(resource.path(self.namespace, name), grace_s, uid)

    def delete_resource(self, owner: names.ResourceOwner) -> None:
        """Delete what the job was made from, so that nobody makes any of it again.

        Raises:
            RefusedError: The API server does not let this user do so.
        """
        self.delete(names.TRAIN_JOBS, owner.name, uid=owner.uid)

    def delete_belongings(self) -> None:
        """Delete what only serves running pods: the Services and the token."""
        self.delete(SERVICES, names.master_name(self.job_name))
        self.delete(SERVICES, names.tensorboard_name(self.job_name))
        self.delete(SECRETS, names.token_name(self.job_name))

    def delete_memory(self, record_version: str | None = None) -> None:
        """Delete what outlives the pods: the status, and last the record, by which a job is found.

        Args:
            record_version: Only if the record is still this one.

        Raises:
            RefusedError: With the code CONFLICT where it is not.
        """
        self.delete(CONFIGMAPS, names.status_name(self.job_name))
        path = CONFIGMAPS.path(self.namespace, names.record_name(self.job_name))
        self.cluster.delete(path, version=record_version)


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
    maps = _list(cluster, CONFIGMAPS, namespace, {names.APP_LABEL: names.APP})
    by_name = {(each["metadata"]["namespace"], each["metadata"]["name"]): each for each in maps}
    records = [
        each
        for each in maps
        if names.SPEC_KEY in (each.get("data") or {})
        and each["metadata"]["name"]
        == names.record_name(each["metadata"]["labels"].get(names.JOB_LABEL, ""))
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
    for pod in _list(
        cluster, PODS, namespace, {names.APP_LABEL: names.APP, names.TYPE_LABEL: role}
    ):
        yield _place(pod), pod


def _place(item: Manifest) -> _Place:
    metadata = item["metadata"]
    return metadata["namespace"], metadata["labels"][names.JOB_LABEL]


def _status_place(record: Manifest) -> _Place:
    namespace, name = _place(record)
    return namespace, names.status_name(name)


def _list(
    cluster: Cluster, resource: Resource, namespace: str | None, labels: Mapping[str, str]
) -> list[Manifest]:
    found = cluster.get(resource.path(namespace), {"labelSelector": names.selector(labels)})
    items: list[Manifest] = found.get("items") or []
    return items
