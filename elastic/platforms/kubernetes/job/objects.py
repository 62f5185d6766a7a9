"""The objects of jobs in the API server: one job's, those of all jobs at once, and their end.

A command line reads and changes those of one job. All jobs of one namespace, or of all of them, are
read from a few lists whatever their number.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, Final, TypeAlias

from elastic.errors import JobExistsError, JobNotFoundError, PlatformError
from elastic.platforms.base import JobControl, StillAliveError, unheard
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
from elastic.platforms.kubernetes.groups import end_group
from elastic.platforms.kubernetes.masters import (
    STATUS_UNREADABLE,
    job_status,
    needs_warnings,
    published_status,
)
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
from elastic.platforms.kubernetes.objects.names import groups_among
from elastic.platforms.kubernetes.pods import (
    has_run,
    is_deleted,
    is_over,
    may_run,
    needs_pods,
    own_state,
    role_of,
    with_seen_workers,
)
from elastic.policy.replicas import KEEPING
from elastic.spec.roles import MASTER, ROLES, WORKER
from elastic.spec.settings import WorkerRange
from elastic.spec.status import JobPhase, JobStatus, ListedJob

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


# Ends all pods of a job: by asking its master, then by deleting them, then by force.
#
# What is left of a job that has ended can be forgotten, and nothing of one that takes its place
# meanwhile.


logger = logging.getLogger(__name__)

POLL_S: Final = 0.25
MASTER_S: Final = 15.0
"""What a master gets that does not say that it keeps its newest version: one that hears nothing
should not use up a patient caller."""
TERM_GRACE_S: Final = 5.0
"""What a pod gets to end by itself: its work is thrown away, so only last words are waited for."""
HURRY_GRACE_S: Final = 1.0
"""Not 0, with which the API server forgets a pod before anybody knows that it has ended."""
SETTLE_S: Final = 3.0
"""Even a hurried caller waits this long for pods to leave."""


def kill_job(job: JobObjects, timeout_s: float, on_wait: Callable[[str], None] = unheard) -> None:
    """Cancel a job and wait until none of its pods is left.

    At most half of the time is the master's, to keep its newest version and to publish the end, and
    none where the end was asked for before; then all pods are asked to end, and with the last
    quarter they are not asked any more. A node that is busy may need long to
    say that a pod is gone. With no time at all the API server
    forgets them at once, whether or not their nodes answer.

    Raises:
        JobNotFoundError: No such job.
        StillAliveError: A pod was still there after `timeout_s`.
    """
    started_s = time.monotonic()
    submission = job.submission()
    found = job.status()
    if found.phase.is_final:
        # One that cannot be read stays for the version that can.
        if not _has_published_end(job) and found.reason != STATUS_UNREADABLE:
            # An end that only the pod tells of is lost with the pod.
            job.write_status(found, submission.uid, submission.owner)
    else:
        # Also where nobody waits for it: a master that ends later than its pod may publish once
        # more, and only what was asked tells then how the job has ended.
        was_asked = job.ask(cancelled=True).cancelled
        if timeout_s > 0 and not was_asked:
            _await_master(job, started_s, timeout_s / 2, on_wait)
        if submission.owner is not None:
            # Or the pod of the master is made again as soon as it is gone.
            _publish_cancelled(job, found, submission)
    end_pods(job, started_s, timeout_s, on_wait)
    if not found.phase.is_final:
        _publish_cancelled(job, found, submission)
    _keep_ends_of_workers(job, submission)
    job.delete_belongings()


def _has_published_end(job: JobObjects) -> bool:
    published = job.published()
    return published is not None and published.phase.is_final


def _publish_cancelled(job: JobObjects, found: JobStatus, submission: Submission) -> None:
    """Tell the end where the master has not."""
    published = job.published() or found
    if not published.phase.is_final:
        cancelled = _cancelled(published, found, job.cluster.now_s())
        job.write_status(cancelled, submission.uid, submission.owner)


def _keep_ends_of_workers(job: JobObjects, submission: Submission) -> None:
    """Have nobody look for their pods again: a master that is asked to end waits for none."""
    published = job.published()
    if published is not None and needs_pods(published):
        seen = with_seen_workers(published, job.pods())
        job.write_status(seen, submission.uid, submission.owner)


def _cancelled(published: JobStatus, found: JobStatus, now_s: float) -> JobStatus:
    """What the master told last, ended; what it may never have told is known from the job."""
    return published.entering(
        JobPhase.CANCELLED,
        "Cancelled",
        "cancelled by its user",
        workers=(),
        ended_s=now_s,
        submitted_s=found.submitted_s,
        desired_workers=found.desired_workers,
    )


def end_pods(
    job: JobObjects,
    started_s: float,
    timeout_s: float,
    on_wait: Callable[[str], None] = unheard,
) -> None:
    """Delete all pods of a job and wait until they are gone.

    Raises:
        StillAliveError: A pod was still there `timeout_s` after `started_s`.
    """
    grace_s = min(TERM_GRACE_S, timeout_s / 4)
    deadline_s = max(started_s + timeout_s, time.monotonic() + SETTLE_S)
    _delete(job, job.pods(), grace_s)
    if _await(started_s + 0.75 * timeout_s, lambda: _clear(job, on_wait)):
        return
    # Meanwhile the master may have started another worker.
    _delete(job, job.pods(), HURRY_GRACE_S if timeout_s > 0 else 0.0)
    if _await(deadline_s, lambda: _clear(job, on_wait)):
        return
    left = ", ".join(
        f"{pod['metadata']['name']} (node {pod['spec'].get('nodeName', 'none')})"
        for pod in job.pods()
    )
    raise StillAliveError(
        f"pods of job {job.job_name!r} were there after {timeout_s:g} s: {left}: try again with a "
        "longer --timeout, or where a node is lost for good with --timeout 0"
    )


def _delete(job: JobObjects, pods: Sequence[Manifest], grace_s: float) -> None:
    # The master goes first, so that it starts nothing new for what ends.
    for pod in sorted(pods, key=lambda pod: role_of(pod) != MASTER):
        job.delete(PODS, pod["metadata"]["name"], grace_s if has_run(pod) else 0.0)
    _leave_queue(job, pods)


def _leave_queue(job: JobObjects, pods: Sequence[Manifest]) -> None:
    """Have Kueue let go of groups whose pods are deleted, and will not be replaced."""
    for name in groups_among(pods):
        end_group(job.cluster, job.namespace, name)


def _clear(job: JobObjects, on_wait: Callable[[str], None]) -> bool:
    """Forget the deleted pods that have ended; whether the job has no pod any more."""
    pods = job.pods()
    for pod in pods:
        if is_over(pod):
            # Its node drops it with its next clean-up: seen to take 15 s, or a minute if it has
            # ended just when it was deleted.
            # Only this one: another of its name may have been started since.
            job.delete(PODS, pod["metadata"]["name"], 0.0, pod["metadata"]["uid"])
    names = sorted(pod["metadata"]["name"] for pod in pods)
    if names:
        on_wait(f"{', '.join(names)} to be gone")
    return not names


def _has_left(job: JobObjects, on_wait: Callable[[str], None]) -> bool:
    """Whether the master has published the end, or cannot."""
    on_wait("its master to tell its end")
    master = job.find_master()
    if master is None or is_deleted(master):
        return True
    if "running" not in own_state(master):
        return True
    return job.status().phase.is_final


def _await_master(
    job: JobObjects, started_s: float, patience_s: float, on_wait: Callable[[str], None]
) -> None:
    while not _has_left(job, on_wait):
        waited_s = time.monotonic() - started_s
        if waited_s >= patience_s or (waited_s >= MASTER_S and not _keeps_version(job)):
            return
        time.sleep(POLL_S)


def _keeps_version(job: JobObjects) -> bool:
    published = job.published()
    return published is not None and published.reason == KEEPING


def _await(deadline_s: float, is_so: Callable[[], bool]) -> bool:
    while not is_so():
        if time.monotonic() >= deadline_s:
            return False
        time.sleep(POLL_S)
    return True


def forget_job(job: JobObjects) -> None:
    """Delete the pods, the belongings, the status and last the record of a job that has ended.

    What a resource was made into goes with the resource, which is deleted first.

    Raises:
        JobNotFoundError: No such job.
        JobExistsError: It goes on, has a pod that does, or is submitted at this moment.
    """
    record = job.record()
    pods = job.pods()
    if left := sorted(pod["metadata"]["name"] for pod in pods if _is_at_work(pod)):
        raise JobExistsError(
            f"job {job.job_name!r} has running pods ({', '.join(left)}): `elastic kill` it first"
        )
    if not job.status(record).phase.is_final:
        raise JobExistsError(f"job {job.job_name!r} has not ended: `elastic kill` it first")
    owner = submission_of(record).owner
    if owner is not None:
        job.delete_resource(owner)
    for pod in pods:
        grace_s = TERM_GRACE_S if may_run(pod) else 0.0
        job.delete(PODS, pod["metadata"]["name"], grace_s, pod["metadata"]["uid"])
    _leave_queue(job, pods)
    # Whoever submits the job again takes its record first, and with it the names of all the rest.
    version = record["metadata"]["resourceVersion"]
    there = job.find_record()
    if there is not None and there["metadata"]["resourceVersion"] != version:
        raise _is_taken(job)
    job.delete_belongings()
    try:
        job.delete_memory(version)
    except RefusedError as error:
        if error.code != HTTPStatus.CONFLICT:
            raise
        raise _is_taken(job) from error


def _is_at_work(pod: Manifest) -> bool:
    """Whether a replica runs, whatever containers somebody has put beside it."""
    # A TensorBoard only shows what the others did.
    return role_of(pod) in ROLES and may_run(pod) and "terminated" not in own_state(pod)


def _is_taken(job: JobObjects) -> JobExistsError:
    return JobExistsError(
        f"job {job.job_name!r} is being submitted by somebody else at this moment: see "
        f"`elastic status {job.job_name} -n {job.namespace}`"
    )
