"""Objects change hands by their labels.

What matches a job and has no controller becomes its own, and what it controls and matches no more
is let go.
"""

from http import HTTPStatus

from elastic.controller.machinery.index import JobKey
from elastic.controller.machinery.informers import Informers
from elastic.controller.machinery.meter import Meter
from elastic.controller.machinery.recorder import EventRecorder
from elastic.controller.reconciling import Kind, Note
from elastic.platforms.kubernetes.api.cluster import Cluster
from elastic.platforms.kubernetes.api.errors import RefusedError
from elastic.platforms.kubernetes.api.resources import Manifest, Resource


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
