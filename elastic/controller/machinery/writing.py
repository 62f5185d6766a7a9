"""Carries out what a kind has decided: its actions in order, the status, and then what is told.

A status is written as what changes it, a merge patch. Objects change hands by their labels: what
matches a job and has no controller becomes its own, and what it controls and matches no more is
let go. When a job is no more Kubernetes removes all that was its own but one thing: Kueue holds the
pods of a group for others to take their place, until its Workload is deleted. The pods are the only
trace of such a job, so whoever looks after its kind sees to it (`Farewell`).
"""

import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

from elastic.controller.machinery.informers import Informers, JobKey, controller_uid, job_of
from elastic.controller.machinery.meter import Meter
from elastic.controller.machinery.recorder import EventRecorder
from elastic.controller.reconciling import (
    Action,
    Create,
    Delete,
    EventType,
    Kind,
    Note,
    Outcome,
    Patch,
    Rejection,
)
from elastic.errors import PlatformError
from elastic.platforms.kubernetes.api.cluster import Cluster
from elastic.platforms.kubernetes.api.resources import Manifest, Resource
from elastic.platforms.kubernetes.api.transport import BUSY, CONFLICT, RefusedError
from elastic.platforms.kubernetes.groups import end_group
from elastic.platforms.kubernetes.objects.names import groups_among

logger = logging.getLogger(__name__)

DEFAULT_GRACE_S: Final = 30.0
"""Of pods that say nothing else."""


class TakenError(PlatformError):
    """An object of the same name is there, and is not this job's."""


class RejectedError(PlatformError):
    """The API server never takes an object as it is."""

    def __init__(self, rejection: Rejection, message: str) -> None:
        super().__init__(message)
        self.rejection = rejection


class LeavingError(PlatformError):
    """Nothing more is done by this process."""


class Writer:
    """Acts for all kinds. Safe to use from several threads, one job at a time."""

    def __init__(
        self,
        cluster: Cluster,
        informers: Informers,
        recorder: EventRecorder,
        meter: Meter,
        is_leaving: Callable[[], bool],
    ) -> None:
        """Keep the parts.

        Args:
            cluster: Where the jobs are.
            informers: Learn of what is written before any watch tells of it.
            recorder: Tells what was done, and what was refused.
            meter: Counts it.
            is_leaving: Asked before each write: one that is under way ends, no other begins.
        """
        self._cluster = cluster
        self._informers = informers
        self._recorder = recorder
        self._meter = meter
        self._is_leaving = is_leaving

    def carry_out(self, kind: Kind, job: Manifest, outcome: Outcome) -> None:
        """Do all that a pass has decided.

        Raises:
            RejectedError: A new object says what the API server never takes; it is told likewise.
            TakenError: The name of a new object is another one's.
            RefusedError: The API server refuses; what it says is told as an event of the job, but
                for what only says that somebody else was faster.
            AwayError: It does not answer.
            LeavingError: See `is_leaving`.
        """
        for action in outcome.actions:
            self._act(kind, job, action)
        self._write_status(kind, job, outcome.status)
        for note in outcome.notes:
            self._recorder.tell(job, kind.component, note)

    # -- actions -------------------------------------------------------------------------------

    def _act(self, kind: Kind, job: Manifest, action: Action) -> None:
        self._stay()
        note = action.note
        try:
            match action:
                case Create():
                    is_new = self._create(kind, job, action)
                    note = note if is_new else None
                case Patch():
                    self._patch(job, action)
                case Delete():
                    self._delete(job, action)
        except (RefusedError, TakenError) as error:
            self._tell_failure(kind, job, *_deed(action), error)
            if isinstance(action, Create) and isinstance(error, RefusedError) and error.is_invalid:
                rejection = Rejection(action, error.detail)
                raise RejectedError(rejection, str(error)) from error
            raise
        self._meter.acted(type(action).__name__.lower())
        if note is not None:
            self._recorder.tell(job, kind.component, note)

    def _create(self, kind: Kind, job: Manifest, action: Create) -> bool:
        """Make an object; False where it is there already, from an earlier try."""
        resource = action.resource
        manifest = _owned(kind, job, action)
        name, namespace = manifest["metadata"]["name"], manifest["metadata"]["namespace"]
        job_name = job["metadata"]["name"]
        found = job_of(kind, resource, manifest)
        assert found == job_name or resource not in kind.children, (
            f"{kind.resource.kind} makes {resource.kind} {name} with labels by which it belongs to "
            f"{found}, not to {job_name}: it would be released at once"
        )
        is_new = True
        try:
            stored = self._cluster.create(resource.path(namespace), manifest)
        except RefusedError as error:
            if not error.is_taken:
                raise
            is_new = False
            stored = self._cluster.get(resource.path(namespace, name))
        is_orphan = controller_uid(stored) is None and job_of(kind, resource, stored) == job_name
        # An orphan of this job is adopted by the pass that seeing it causes.
        if controller_uid(stored) != job["metadata"]["uid"] and not is_orphan:
            raise TakenError(_taken_text(action, job, stored))
        # The watch may have told of it before the answer came.
        self._informers.created(resource, stored)
        return is_new

    def _patch(self, job: Manifest, action: Patch) -> None:
        path = action.resource.path(job["metadata"]["namespace"], action.name)
        self._informers.written(action.resource, self._cluster.patch(path, action.change))

    def _delete(self, job: Manifest, action: Delete) -> None:
        namespace = job["metadata"]["namespace"]
        path = action.resource.path(namespace, action.name)
        self._cluster.delete(path, action.grace_s, uid=action.uid)
        grace_s = DEFAULT_GRACE_S if action.grace_s is None else action.grace_s
        if action.uid is not None:
            self._informers.asked_to_go(action.uid, self._cluster.now_s() + grace_s)

    def _tell_failure(
        self, kind: Kind, job: Manifest, deed: str, words: str, error: RefusedError | TakenError
    ) -> None:
        """Tell what could not be done.

        Args:
            deed: In CamelCase, such as `CreatePod`.
            words: The same for people.
        """
        detail = str(error)
        if isinstance(error, RefusedError):
            if error.code in BUSY - {HTTPStatus.INTERNAL_SERVER_ERROR} or _is_conflict(error):
                return
            detail = error.detail or detail
        note = Note(f"Failed{deed}", f"{words} failed: {detail}", EventType.WARNING)
        self._recorder.tell(job, kind.component, note)

    # -- status --------------------------------------------------------------------------------

    def _write_status(self, kind: Kind, job: Manifest, wanted: Manifest) -> None:
        change = merge_patch(job.get("status") or {}, wanted)
        if not change:
            return
        self._stay()
        metadata = job["metadata"]
        key = JobKey(kind.resource, metadata["namespace"], metadata["name"])
        # What was decided on another state of the job must not stand beside it; nor does another
        # job of its name have that version. (A uid would be no condition here: it is ignored.)
        precondition = {"resourceVersion": metadata["resourceVersion"]}
        patch = {"metadata": precondition, "status": change}
        path = kind.resource.path(key.namespace, key.name, "status")
        try:
            stored = self._cluster.patch(path, patch)
        except RefusedError as error:
            if not _is_conflict(error):
                # A job that was deleted meanwhile needs to be told nothing.
                if error.code != HTTPStatus.NOT_FOUND:
                    self._tell_failure(kind, job, "PatchStatus", "Writing the status", error)
                raise
            stored = self._cluster.get(kind.resource.path(key.namespace, key.name))
            self._informers.written(kind.resource, stored)
            if not _has_status(stored, metadata["uid"], wanted):
                raise
            # A write of ours got through, and only its answer was lost.
        self._informers.written(kind.resource, stored)
        self._meter.acted("status")
        if not _has_status(stored, metadata["uid"], wanted):
            logger.warning(
                "the API server did not keep all of the status of %s, which is written again with "
                "each look at it: its CustomResourceDefinition may be an old one; apply the one of "
                "this version",
                key,
            )

    def _stay(self) -> None:
        if self._is_leaving():
            raise LeavingError("this controller is about to end: the next one goes on from here")


def _deed(action: Action) -> tuple[str, str]:
    """What an action does, in one word and in several."""
    verb, of_kind = type(action).__name__, action.resource.kind
    name = action.manifest["metadata"]["name"] if isinstance(action, Create) else action.name
    return f"{verb}{of_kind}", f"{verb} of {of_kind} {name}"


def _owned(kind: Kind, job: Manifest, action: Create) -> Manifest:
    """The object as it is sent: in the job's namespace, and the job its controller."""
    assert action.resource.namespaced, f"a job cannot own {action.resource.plural}"
    metadata = action.manifest["metadata"]
    owners = [*(metadata.get("ownerReferences") or ()), owner_reference(kind, job)]
    namespace = job["metadata"]["namespace"]
    return {
        "apiVersion": action.resource.api_version,
        "kind": action.resource.kind,
        **action.manifest,
        "metadata": {**metadata, "namespace": namespace, "ownerReferences": owners},
    }


def _taken_text(action: Create, job: Manifest, there: Manifest) -> str:
    what = f"{action.resource.kind} {there['metadata']['name']}"
    owners = there["metadata"].get("ownerReferences") or ()
    owner = next((each for each in owners if each.get("controller")), None)
    if owner is None:
        advice = action.if_taken or "delete it, or rename the job"
        return f"{what} is there already and belongs to nobody: {advice}"
    whose = f"{owner['kind']} {owner['name']}"
    if owner["name"] == job["metadata"]["name"] and owner["kind"] == job["kind"]:
        return f"{what} of an earlier {whose} is still there: this one waits until it is gone"
    return f"{what} is there already and belongs to {whose}: rename one of the two"


def _is_conflict(error: RefusedError) -> bool:
    return error.code == HTTPStatus.CONFLICT and error.reason == CONFLICT


def _has_status(job: Manifest, uid: str, wanted: Manifest) -> bool:
    is_same = job["metadata"]["uid"] == uid
    return is_same and bool(without_none(job.get("status") or {}) == without_none(wanted))


class Adoption:
    """Adopts and releases. Safe to use from several threads, one job at a time."""

    def __init__(
        self, cluster: Cluster, informers: Informers, recorder: EventRecorder, meter: Meter
    ) -> None:
        self._cluster = cluster
        self._informers = informers
        self._recorder = recorder
        self._meter = meter

    def settle(self, kind: Kind, key: JobKey, job: Manifest) -> bool:
        """Make the owners of objects agree with their labels; True where anything was changed.

        Raises:
            RefusedError: The API server refuses; a conflict says that somebody else was faster.
            AwayError: It does not answer.
        """
        strays, orphans = self._informers.strays(key, job), self._informers.orphans(key)
        for resource, item in strays:
            owners = [each for each in _owners(item) if each["uid"] != job["metadata"]["uid"]]
            note = Note(f"Released{resource.kind}", _told("Released", resource, item))
            self._change(kind, job, resource, item, owners, note)
        if orphans and is_still_there(self._cluster, key, job["metadata"]["uid"]):
            mine = owner_reference(kind, job)
            for resource, item in orphans:
                note = Note(f"Adopted{resource.kind}", _told("Adopted", resource, item))
                self._change(kind, job, resource, item, [*_owners(item), mine], note)
        return bool(strays or orphans)

    def _change(
        self,
        kind: Kind,
        job: Manifest,
        resource: Resource,
        item: Manifest,
        owners: list[Manifest],
        note: Note,
    ) -> None:
        metadata = item["metadata"]
        # The list of owners is written whole, so it must be the one that was read.
        change = {
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
            "ownerReferences": owners,
        }
        path = resource.path(metadata["namespace"], metadata["name"])
        try:
            stored = self._cluster.patch(path, {"metadata": change})
        except RefusedError as error:
            if error.code == HTTPStatus.NOT_FOUND:
                return
            raise
        self._informers.written(resource, stored)
        self._meter.acted("patch")
        self._recorder.tell(job, kind.component, note)


def is_still_there(cluster: Cluster, key: JobKey, uid: str) -> bool:
    """Ask the API server itself: what a copy still has may be deleted, or be another by now."""
    try:
        now = cluster.get(key.resource.path(key.namespace, key.name))
    except RefusedError as error:
        if error.code == HTTPStatus.NOT_FOUND:
            return False
        raise
    metadata = now["metadata"]
    return metadata["uid"] == uid and "deletionTimestamp" not in metadata


def _told(word: str, resource: Resource, item: Manifest) -> str:
    return f"{word} {resource.kind.lower()}: {item['metadata']['name']}, by its labels"


def _owners(item: Manifest) -> list[Manifest]:
    owners: list[Manifest] = item["metadata"].get("ownerReferences") or []
    return owners


def owner_reference(kind: Kind, job: Manifest) -> Manifest:
    """What says of an object that the job controls it, and that it goes with the job."""
    return {
        "apiVersion": kind.resource.api_version,
        "kind": kind.resource.kind,
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


class Farewell:
    """Has queues let go of pods. Safe to use from several threads, one job at a time."""

    def __init__(self, cluster: Cluster, informers: Informers) -> None:
        self._cluster = cluster
        self._informers = informers

    def say(self, key: JobKey) -> None:
        """See to what a job has left that is no more, or is about to be.

        Raises:
            RefusedError: The API server refuses.
            AwayError: It does not answer.
        """
        held: dict[str, list[Manifest]] = {}
        for pod in self._informers.leaving_pods(key):
            if uid := controller_uid(pod):
                held.setdefault(uid, []).append(pod)
        for uid, pods in held.items():
            groups = groups_among(pods)
            # By the API server itself: another job of that name may have begun.
            if groups and not is_still_there(self._cluster, key, uid):
                for group in groups:
                    end_group(self._cluster, key.namespace, group)


def merge_patch(there: Manifest, wanted: Manifest) -> Manifest:
    """The smallest merge patch (RFC 7386) that makes `wanted` of what is there.

    Both are taken without their empty fields: None in an object says that there is no such field,
    and the API server keeps none. Empty where there is nothing to change.
    """
    return _changes(without_none(there), without_none(wanted))


def without_none(value: Any) -> Any:
    """The same without fields that are None, at any depth."""
    if isinstance(value, Mapping):
        return {key: without_none(each) for key, each in value.items() if each is not None}
    if isinstance(value, list | tuple):
        return [without_none(each) for each in value]
    return value


def _changes(there: Manifest, wanted: Manifest) -> Manifest:
    changes: Manifest = dict.fromkeys(key for key in there if key not in wanted)
    for key, value in wanted.items():
        old = there.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            # An empty patch of a field would be no change, and is not one here either.
            if within := _changes(old, value):
                changes[key] = within
        elif key not in there or old != value or isinstance(old, bool) != isinstance(value, bool):
            changes[key] = value
    return changes
