"""What `elastic scale` and `elastic kill` do with an object."""

import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from elastic.controller.inspection.documents import object_status
from elastic.controller.inspection.kinds import Reference
from elastic.controller.inspection.objects import Objects
from elastic.controller.kinds.pods import name_of
from elastic.controller.machinery.index import controller_uid
from elastic.errors import JobSpecError, PlatformError
from elastic.platforms.base import StillAliveError, unheard
from elastic.platforms.kubernetes.api.cluster import RefusedError
from elastic.platforms.kubernetes.api.resources import PODS
from elastic.platforms.kubernetes.objects.queues import groups_among
from elastic.platforms.kubernetes.pods.groups import end_group
from elastic.spec.status.objects import ObjectStatus

POLL_S: Final = 0.25
SETTLE_S: Final = 3.0
"""Even a hurried caller waits this long for pods to leave."""
_CHANGE_TRIES: Final = 10


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
