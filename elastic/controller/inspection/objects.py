"""Objects of all kinds in a cluster: read as far as it has their types and shows them, and changed.

`scale` and `kill` are what `elastic scale` and `elastic kill` do with one.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Final

from elastic.controller.inspection.documents import object_status
from elastic.controller.inspection.kinds import KINDS, TRAIN_JOBS, Reference, Seen, is_name
from elastic.controller.kinds.pods import name_of
from elastic.controller.machinery.index import controller_uid
from elastic.controller.machinery.registration import full_name
from elastic.errors import JobNotFoundError, JobSpecError, PlatformError
from elastic.platforms.base import Platform, StillAliveError, unheard
from elastic.platforms.kubernetes.api.cluster import Cluster, RefusedError
from elastic.platforms.kubernetes.api.resources import EVENTS, PODS, Manifest
from elastic.platforms.kubernetes.job.objects import listed_jobs
from elastic.platforms.kubernetes.job.platform import KubernetesPlatform
from elastic.platforms.kubernetes.objects.queues import groups_among
from elastic.platforms.kubernetes.pods.groups import end_group
from elastic.spec.status.objects import Listing, ObjectStatus

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
