"""Which objects belong to which job, as far as is known; no I/O, and nothing is searched through.

Everything is found by uid: the objects that one controls, those that its labels give to a job and
that nobody controls, and from an object upwards the job that it concerns.
"""

import logging
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from elastic.controller.reconciling import Kind
from elastic.platforms.kubernetes.api.resources import Manifest, Resource

K = TypeVar("K", bound=Hashable)

logger = logging.getLogger(__name__)

MAX_DEPTH: Final = 2
"""From a job to what is controlled by what it controls, as to the pods of its ReplicaSet."""


@dataclass(frozen=True, slots=True)
class JobKey:
    """What a job is found by; one that takes its place has the same."""

    resource: Resource
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.resource.kind} {self.namespace}/{self.name}"


class Index:
    """Objects of all watched types by what they belong to. Not thread-safe."""

    def __init__(self, kinds: Sequence[Kind]) -> None:
        self._kinds = {kind.resource: kind for kind in kinds}
        self._kinds_of: dict[Resource, list[Kind]] = defaultdict(list)
        for kind in kinds:
            for resource in kind.children:
                self._kinds_of[resource].append(kind)
        self._objects: dict[str, tuple[Resource, Manifest]] = {}
        self._controlled: dict[str, set[str]] = {}
        self._by_labels: dict[JobKey, set[str]] = {}

    def change(self, resource: Resource, old: Manifest | None, new: Manifest | None) -> set[JobKey]:
        """Follow a change of one object; None where there was or is none.

        Returns:
            The jobs that it concerns, whether or not they are there.
        """
        concerned: set[JobKey] = set()
        # What is told of an object's end may differ from what was known of it.
        known = None if old is None else self._objects.get(_uid(old))
        if known is not None:
            concerned |= self._jobs_of(*known)
            self._unlink(*known)
        if new is not None:
            self._link(resource, new)
            concerned |= self._jobs_of(resource, new)
        return concerned

    def has(self, uid: str) -> bool:
        """Whether an object is there."""
        return uid in self._objects

    def controlled(self, job: Manifest) -> list[tuple[Resource, Manifest]]:
        """What a job controls itself."""
        found = [self._objects[uid] for uid in self._controlled.get(_uid(job), ())]
        # An owner reference says nothing of objects elsewhere.
        return [each for each in found if _namespace(each[1]) == _namespace(job)]

    def belongings(self, job: Manifest) -> Iterator[tuple[Resource, Manifest]]:
        """What a job controls, and what is controlled by that."""
        owners = [job]
        for _ in range(MAX_DEPTH):
            found = [each for owner in owners for each in self.controlled(owner)]
            yield from found
            owners = [item for _, item in found]

    def orphans(self, key: JobKey) -> list[tuple[Resource, Manifest]]:
        """What belongs to a job by its labels, and has no controller."""
        return [each for each in self.labelled(key) if controller_uid(each[1]) is None]

    def labelled(self, key: JobKey) -> list[tuple[Resource, Manifest]]:
        """What belongs to a job by its labels, whoever controls it."""
        return [self._objects[uid] for uid in self._by_labels.get(key, ())]

    # -- inside --------------------------------------------------------------------------------

    def _link(self, resource: Resource, item: Manifest) -> None:
        uid = _uid(item)
        self._objects[uid] = (resource, item)
        controller = controller_uid(item)
        if controller is not None:
            self._controlled.setdefault(controller, set()).add(uid)
        for key in self._labelled(resource, item):
            self._by_labels.setdefault(key, set()).add(uid)

    def _unlink(self, resource: Resource, item: Manifest) -> None:
        uid = _uid(item)
        self._objects.pop(uid, None)
        controller = controller_uid(item)
        if controller is not None:
            _discard(self._controlled, controller, uid)
        for key in self._labelled(resource, item):
            _discard(self._by_labels, key, uid)

    def _jobs_of(self, resource: Resource, item: Manifest) -> set[JobKey]:
        keys = set()
        if resource in self._kinds:
            keys.add(_key(resource, item))
        controller = controller_uid(item)
        if controller is None or controller not in self._objects:
            # Also what a job has left that is no more.
            return keys | set(self._labelled(resource, item))
        for _ in range(MAX_DEPTH):
            found = None if controller is None else self._objects.get(controller)
            if found is None:
                break
            owner_resource, owner = found
            if owner_resource in self._kinds:
                keys.add(_key(owner_resource, owner))
                break
            controller = controller_uid(owner)
        return keys

    def _labelled(self, resource: Resource, item: Manifest) -> Iterator[JobKey]:
        for kind in self._kinds_of.get(resource, ()):
            name = job_of(kind, resource, item)
            if name is not None:
                yield JobKey(kind.resource, _namespace(item), name)


def job_of(kind: Kind, resource: Resource, item: Manifest) -> str | None:
    """The name of the job that an object belongs to by its labels, see `Kind.job_of`.

    Labels may be anybody's: those that a kind does not get along with are no job's, and what
    follows them goes on.
    """
    try:
        return kind.job_of(resource, item)
    except Exception:
        logger.exception(
            "%s does not know whose %s %s is: it is taken for nobody's",
            kind.resource.kind,
            resource.kind,
            item["metadata"].get("name"),
        )
        return None


def controller_uid(item: Manifest) -> str | None:
    """The uid of what controls an object, or None."""
    for reference in item["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            uid: str = reference["uid"]
            return uid
    return None


def _discard(sets: dict[K, set[str]], key: K, uid: str) -> None:
    members = sets.get(key)
    if members is not None:
        members.discard(uid)
        if not members:
            del sets[key]


def _key(resource: Resource, job: Manifest) -> JobKey:
    return JobKey(resource, _namespace(job), job["metadata"]["name"])


def _namespace(item: Manifest) -> str:
    namespace: str = item["metadata"].get("namespace", "")
    return namespace


def _uid(item: Manifest) -> str:
    uid: str = item["metadata"]["uid"]
    return uid
