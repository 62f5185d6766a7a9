"""Objects of all kinds in a cluster: read as far as it has their types and shows them, and changed.

They are told with their pods, events and logs. `scale` and `kill` are what `elastic scale` and
`elastic kill` do with one.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from http import HTTPStatus
from typing import Any, Final

from elastic.controller.inspection.kinds import KINDS, TRAIN_JOBS, Reference, Seen, is_name
from elastic.controller.kinds.common import name_of
from elastic.controller.machinery.informers import controller_uid
from elastic.controller.machinery.registration import full_name
from elastic.controller.resources.common import Condition, seconds_of
from elastic.errors import JobNotFoundError, JobSpecError, PlatformError
from elastic.platforms.base import LogLine, Platform, StillAliveError, unheard
from elastic.platforms.kubernetes.api.cluster import Cluster, RefusedError
from elastic.platforms.kubernetes.api.resources import EVENTS, PODS, Manifest
from elastic.platforms.kubernetes.groups import end_group
from elastic.platforms.kubernetes.job.logs import Manner, follow_logs, read_logs, read_previous_logs
from elastic.platforms.kubernetes.job.objects import listed_jobs
from elastic.platforms.kubernetes.job.platform import KubernetesPlatform
from elastic.platforms.kubernetes.objects.names import groups_among
from elastic.platforms.kubernetes.pods import (
    has_failed,
    is_deleted,
    is_ready,
    phase_of,
    why_failed,
    why_pending,
)
from elastic.spec.status import ConditionStatus, EventStatus, Listing, ObjectStatus, PodStatus
from elastic.spec.values import Since

MAX_EVENTS: Final = 20
TERMINATING: Final = "Terminating"
"""What Kubernetes has no phase for, though its tools say so."""


def object_status(
    kind: Seen,
    job: Manifest,
    pods: Iterable[Manifest] | None = None,
    events: Iterable[Manifest] | None = None,
) -> ObjectStatus:
    """What is told of an object.

    Args:
        kind: What it is.
        job: The object.
        pods: Its own; None where they were not asked for, or may not be seen.
        events: Its own; likewise.
    """
    standing, metadata = kind.standing(job), job["metadata"]
    count = standing.count
    return ObjectStatus(
        kind=kind.resource.kind,
        api_version=kind.resource.api_version,
        namespace=metadata["namespace"],
        job_name=metadata["name"],
        phase=standing.phase,
        reason=standing.reason,
        message=standing.message,
        submitted_s=_moment(metadata.get("creationTimestamp")),
        scaled_role=count.role,
        replicas_ready=count.ready,
        replicas_wanted=count.wanted,
        replicas_min=count.minimum,
        replicas_max=count.maximum,
        conditions=tuple(map(_condition, standing.conditions)),
        pods=None if pods is None else pod_statuses(kind, pods),
        events=None if events is None else _events(events),
    )


def _condition(condition: Condition) -> ConditionStatus:
    return ConditionStatus(
        type=condition.type,
        status=condition.status,
        reason=condition.reason,
        message=condition.message,
        changed_s=_moment(condition.last_transition_time),
    )


def _events(events: Iterable[Manifest]) -> tuple[EventStatus, ...]:
    told = [_event(each) for each in events]
    return tuple(sorted(told, key=lambda each: each.time_s or 0.0)[-MAX_EVENTS:])


def _event(event: Manifest) -> EventStatus:
    times = (event.get("lastTimestamp"), event.get("eventTime"), event.get("firstTimestamp"))
    return EventStatus(
        time_s=_moment(next((each for each in times if each), None)),
        type=str(event.get("type") or "Normal"),
        reason=str(event.get("reason") or ""),
        message=str(event.get("message") or ""),
        count=int(event.get("count") or 1),
    )


def _moment(text: Any) -> float | None:
    """Seconds since the epoch; None for what is no moment."""
    with suppress(ValueError, TypeError):
        return seconds_of(text)
    return None


def replica_of(kind: Seen, pod: Manifest) -> str:
    """What people call it: `worker-0`; `trainer-x7k2p` or `rdzv` where there is no index."""
    role, index = kind.role_of(pod)
    if index is not None:
        return f"{role}-{index}"
    own = name_of(pod).rpartition("-")[2]
    return role if own == role else f"{role}-{own}"


def pod_statuses(kind: Seen, pods: Iterable[Manifest]) -> tuple[PodStatus, ...]:
    """The pods as they are told, by role, index and age."""
    ranks = {role: rank for rank, role in enumerate(kind.roles)}

    def order(pod: PodStatus) -> tuple[int, int, float, str]:
        rank = ranks.get(pod.role, len(ranks))
        return rank, pod.index or 0, pod.created_s or 0.0, pod.pod

    return tuple(sorted((_pod_status(kind, pod) for pod in pods), key=order))


def _pod_status(kind: Seen, pod: Manifest) -> PodStatus:
    role, index = kind.role_of(pod)
    status = pod.get("status") or {}
    created = pod["metadata"].get("creationTimestamp")
    return PodStatus(
        replica=replica_of(kind, pod),
        role=role,
        index=index,
        pod=name_of(pod),
        phase=TERMINATING if is_deleted(pod) else phase_of(pod),
        is_ready=is_ready(pod),
        restarts=sum(
            int(each.get("restartCount") or 0) for each in status.get("containerStatuses") or ()
        ),
        node=str((pod.get("spec") or {}).get("nodeName") or ""),
        message=why_failed(pod) if has_failed(pod) else why_pending(pod),
        created_s=seconds_of(created) if created else None,
    )


POLL_S: Final = 0.25
SETTLE_S: Final = 3.0
"""Even a hurried caller waits this long for pods to leave."""
_CHANGE_TRIES: Final = 10


class Objects:
    """The objects of a namespace; each right that is missing is told once."""

    def __init__(self, cluster: Cluster, namespace: str, tell: Callable[[str], None]) -> None:
        """Keep the parts; nothing is sent before the first call.

        Args:
            cluster: Where they are.
            namespace: Theirs.
            tell: Is told what is not shown, for want of a right.
        """
        self.cluster = cluster
        self.namespace = namespace
        self._tell = tell
        self._told: set[str] = set()
        self._served: tuple[Seen, ...] | None = None

    def listing(self, all_namespaces: bool = False) -> Listing:
        """All jobs: elastic's own, and the objects of all kinds.

        An object that is a job of ours as well is listed as that, which tells more.

        Raises:
            RefusedError: Elastic's own jobs may not be listed.
            AwayError: The API server does not answer.
        """
        namespace = None if all_namespaces else self.namespace
        jobs = listed_jobs(self.cluster, namespace)
        found = [*self._all(namespace)]
        train_jobs = {_place(job) for kind, job in found if kind is TRAIN_JOBS}
        own = {(each.namespace, each.status.job_name) for each in jobs}
        return Listing(
            tuple(
                replace(each, kind=TRAIN_JOBS.resource.kind)
                if (each.namespace, each.status.job_name) in train_jobs
                else each
                for each in jobs
            ),
            tuple(
                object_status(kind, job)
                for kind, job in found
                if kind is not TRAIN_JOBS or _place(job) not in own
            ),
        )

    def status(self, reference: Reference) -> ObjectStatus:
        """One object with its pods and events, as far as these may be seen.

        Raises:
            JobNotFoundError: There is none.
            RefusedError: It may not be read.
            AwayError: The API server does not answer.
        """
        job = self.get(reference)
        kind = reference.kind
        return object_status(kind, job, self.pods(reference), self._events(job))

    def with_pods(self, reference: Reference) -> ObjectStatus:
        """The same without events.

        Raises:
            JobNotFoundError: See `status`, and its other errors.
        """
        return object_status(reference.kind, self.get(reference), self.pods(reference))

    def brief(self, reference: Reference) -> ObjectStatus:
        """The same without pods and events, in one request.

        Raises:
            JobNotFoundError: See `status`, and its other errors.
        """
        return object_status(reference.kind, self.get(reference))

    def get(self, reference: Reference) -> Manifest:
        """The object itself.

        Raises:
            JobNotFoundError: There is none.
            RefusedError: It may not be read.
            AwayError: The API server does not answer.
        """
        found = self.find(reference)
        if found is not None:
            return found
        kind, where = reference.kind.resource.kind, f"namespace {self.namespace!r}"
        if reference.kind not in self._kinds():
            raise JobNotFoundError(
                f"no {reference}: {self.cluster.server} does not know the type {kind}; "
                "`elastic install --controller` installs it"
            )
        raise JobNotFoundError(
            f"no {kind} {reference.name!r} in {where} of {self.cluster.server}: "
            f"`elastic status -n {self.namespace}` lists those there"
        )

    def find(self, reference: Reference) -> Manifest | None:
        """The object, or None where there is none."""
        if reference.kind not in self._kinds():
            return None
        try:
            return self.cluster.get(self.path(reference))
        except RefusedError as error:
            if error.code == HTTPStatus.NOT_FOUND:
                return None
            raise

    def named(self, name: str) -> list[Reference]:
        """Objects of this name that this account may see, of whatever kind."""
        references = [Reference(kind, name) for kind in self._kinds()] if is_name(name) else []
        found = []
        for each in references:
            try:
                if self.find(each) is not None:
                    found.append(each)
            except RefusedError:
                # It is looked for to help with another error, which is told.
                continue
        return found

    def names(self, kind: Seen) -> list[str]:
        """Of all objects of a kind; none where they may not be listed."""
        if kind not in self._kinds():
            return []
        jobs = self._try_list(kind.resource.path(self.namespace), {}) or []
        return [str(job["metadata"]["name"]) for job in jobs]

    def pods(self, reference: Reference) -> list[Manifest] | None:
        """The pods of an object; None where they may not be listed."""
        found: list[Manifest] = []
        for selector in reference.kind.selectors(reference.name):
            path = PODS.path(self.namespace)
            items = self._list("pods", path, {"labelSelector": selector})
            if items is None:
                return None
            found += items
        return found

    def path(self, reference: Reference) -> str:
        """Of the object."""
        return reference.kind.resource.path(self.namespace, reference.name)

    # -- inside --------------------------------------------------------------------------------

    def _events(self, job: Manifest) -> list[Manifest] | None:
        query = {"fieldSelector": f"involvedObject.uid={job['metadata']['uid']}"}
        return self._list("events", EVENTS.path(self.namespace), query)

    def _all(self, namespace: str | None) -> Iterator[tuple[Seen, Manifest]]:
        refused = []
        for kind in self._kinds():
            jobs = self._try_list(kind.resource.path(namespace), {})
            if jobs is None:
                refused.append(full_name(kind.resource))
                continue
            jobs.sort(key=lambda job: str(job["metadata"].get("creationTimestamp") or ""))
            yield from ((kind, job) for job in jobs)
        if refused:
            where = "in all namespaces" if namespace is None else f"in namespace {namespace}"
            self._tell_once(f"{', '.join(refused)} {where}")

    def _list(self, what: str, path: str, query: dict[str, str]) -> list[Manifest] | None:
        items = self._try_list(path, query)
        if items is None:
            self._tell_once(f"{what} in namespace {self.namespace}")
        return items

    def _try_list(self, path: str, query: dict[str, str]) -> list[Manifest] | None:
        """The objects; None where this account may not list them."""
        try:
            items: list[Manifest] = self.cluster.get(path, query).get("items") or []
        except RefusedError as error:
            if not error.is_denied:
                raise
            return None
        return items

    def _tell_once(self, what: str) -> None:
        if what not in self._told:
            self._told.add(what)
            self._tell(f"this account may not list {what}: not shown")

    def _kinds(self) -> Sequence[Seen]:
        """Those whose types the cluster knows: who lacks the right to one hears no more of it."""
        if self._served is None:
            self._served = tuple(_served(self.cluster))
        return self._served


def _served(cluster: Cluster) -> Iterator[Seen]:
    """None where an API server does not tell its types, which as a rule everybody may ask."""
    try:
        groups = cluster.get("/apis")["groups"]
    except RefusedError as error:
        if error.is_denied:
            return
        raise
    versions = {each["groupVersion"] for group in groups for each in group["versions"]}
    for kind in KINDS:
        resource = kind.resource
        if resource.api_version in versions:
            found = cluster.get(f"/apis/{resource.api_version}")["resources"]
            if any(each["name"] == resource.plural for each in found):
                yield kind


def _place(job: Manifest) -> tuple[str, str]:
    return job["metadata"]["namespace"], job["metadata"]["name"]


def objects_of(platform: Platform, tell: Callable[[str], None]) -> Objects | None:
    """The objects beside the jobs of a platform; None where that is no cluster.

    Args:
        platform: Whose namespace and connection are meant.
        tell: Is told what is not shown, for want of a right.
    """
    if not isinstance(platform, KubernetesPlatform):
        return None
    return Objects(platform.cluster, platform.namespace, tell)


def scale(objects: Objects, reference: Reference, size: int) -> ObjectStatus:
    """Have an object be of another size; returns how it stood before.

    Raises:
        JobNotFoundError: There is none.
        JobSpecError: It has ended, or cannot have this size.
        RefusedError: It may not be changed.
    """
    for _ in range(_CHANGE_TRIES):
        job = objects.get(reference)
        before = object_status(reference.kind, job)
        if before.is_final:
            raise JobSpecError(f"{reference} has ended as {before.phase}: nothing of it is scaled")
        # Of two who change at once, one is refused and looks again.
        version = {"metadata": {"resourceVersion": job["metadata"]["resourceVersion"]}}
        change = reference.kind.resized(job, size) | version
        try:
            objects.cluster.patch(objects.path(reference), change)
        except RefusedError as error:
            if error.code != HTTPStatus.CONFLICT:
                raise
        else:
            return before
    raise PlatformError(f"{reference} is changed by others all the time: try again")


def kill(
    objects: Objects,
    reference: Reference,
    timeout_s: float,
    on_wait: Callable[[str], None] = unheard,
) -> ObjectStatus | None:
    """Delete an object, and wait until it and its pods are gone.

    What belongs to it is removed by Kubernetes, with a controller or without. With no time at all
    the API server forgets its pods at once, whether or not their nodes answer. Where only pods are
    left of an earlier call, it is about these.

    Returns:
        How it stood before; None where only pods were left.

    Raises:
        JobNotFoundError: There is none, and no pod of it.
        StillAliveError: Something of it was still there after `timeout_s`.
        RefusedError: It may not be deleted.
    """
    job = objects.find(reference)
    if job is None and not objects.pods(reference):
        job = objects.get(reference)
    uid = None if job is None else str(job["metadata"]["uid"])
    if uid is not None:
        objects.cluster.delete(objects.path(reference), uid=uid)
    _leave_queue(objects, reference, uid)
    if timeout_s == 0:
        _forget_pods(objects, reference)
    deadline_s = time.monotonic() + max(timeout_s, SETTLE_S)
    while left := _left(objects, reference, uid):
        if time.monotonic() >= deadline_s:
            raise StillAliveError(
                f"{reference} was still there after {timeout_s:g} s: "
                f"{', '.join(f'{name} (node {node})' for name, node in left.items())}: try again "
                "with a longer --timeout, or where a node is lost for good with --timeout 0"
            )
        on_wait(f"{', '.join(left)} to be gone")
        time.sleep(POLL_S)
    return None if job is None else object_status(reference.kind, job)


def _leave_queue(objects: Objects, reference: Reference, uid: str | None) -> None:
    """Have Kueue let go of groups whose pods are to go: with no controller, nobody else would."""
    pods = objects.pods(reference) or ()
    for group in groups_among(pod for pod in pods if uid is None or controller_uid(pod) == uid):
        end_group(objects.cluster, objects.namespace, group)


def _forget_pods(objects: Objects, reference: Reference) -> None:
    for pod in objects.pods(reference) or ():
        metadata = pod["metadata"]
        path = PODS.path(objects.namespace, metadata["name"])
        objects.cluster.delete(path, 0.0, metadata["uid"])


def _left(objects: Objects, reference: Reference, uid: str | None) -> dict[str, str]:
    """What there still is of an object that was deleted: by name, the node that it is on."""
    found = objects.find(reference)
    if found is not None and found["metadata"]["uid"] != uid:
        # Somebody has made another one, whose pods have the same labels.
        return {}
    pods = sorted(objects.pods(reference) or (), key=name_of)
    left = {name_of(pod): str((pod.get("spec") or {}).get("nodeName") or "none") for pod in pods}
    return left if found is None else {str(reference): "none"} | left


# What the pods of an object have written, as the logs of elastic's own jobs are read.


def replicas_named(reference: Reference, role: str | None, index: int | None) -> list[str]:
    """What is to be read; an index without a role is that of the first role of the kind with one.

    Raises:
        JobSpecError: The kind has no such role, or no indexes.
    """
    kind = reference.kind
    if role is not None and role not in kind.roles:
        raise JobSpecError(f"--role={role}: {reference} has the roles {', '.join(kind.roles)}")
    if index is None:
        return [role] if role else []
    if kind.indexed_role is None:
        raise JobSpecError(
            f"--index={index}: the pods of a {kind.resource.kind} have no index: `elastic status "
            f"{reference}` has their names; choose a --role"
        )
    return [f"{role or kind.indexed_role}-{index}"]


def object_logs(
    objects: Objects,
    reference: Reference,
    replicas: Sequence[str],
    follow: bool,
    tail: int | None,
    previous: bool = False,
    since: Since | None = None,
) -> Iterator[LogLine]:
    """Lines of the named replicas or roles (all when empty), each with its replica.

    With `follow`, goes on until the object has ended or is gone; with `previous`, those of a
    container that was restarted in place; with `since`, those written from then on.

    Raises:
        JobNotFoundError: There is no such object.
        PlatformError: The pods may not be listed; without `follow`: a replica was named that has
            no log.
    """
    objects.get(reference)
    manner, cluster = _manner(reference.kind), objects.cluster
    since_s = None if since is None else since.at_s(cluster.now_s())
    if follow:

        def look() -> tuple[Sequence[Manifest], bool]:
            # Asked first: what pods have written by the end is in their logs when they are read.
            has_ended = _has_ended(objects, reference)
            return _pods(objects, reference), has_ended

        return follow_logs(cluster, look, replicas, tail, since_s, manner)
    pods = _pods(objects, reference)
    if previous:
        return read_previous_logs(cluster, pods, {}, replicas, tail, since_s, manner)
    return read_logs(cluster, pods, replicas, tail, since_s, manner)


def _manner(kind: Seen) -> Manner:
    return Manner(lambda pod: replica_of(kind, pod), kind.container, kind.roles)


def _pods(objects: Objects, reference: Reference) -> list[Manifest]:
    pods = objects.pods(reference)
    if pods is None:
        raise PlatformError(f"the pods of {reference} may not be listed by this account")
    return pods


def _has_ended(objects: Objects, reference: Reference) -> bool:
    try:
        return objects.brief(reference).is_final
    except JobNotFoundError:
        return True
