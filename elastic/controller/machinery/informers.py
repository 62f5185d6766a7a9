"""What is there, for all kinds of jobs together, and which objects belong to which job.

`Index` knows the second, as far as is known; no I/O, and nothing is searched through. Everything is
found by uid: the objects that one controls, those that its labels give to a job and that nobody
controls, and from an object upwards the job that it concerns.
"""

import logging
import secrets
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, auto
from http import HTTPStatus
from typing import Any, Final, TypeVar

from elastic.controller.reconciling import ClusterView, Kind, Observed, Overview
from elastic.errors import PlatformError
from elastic.platforms.kubernetes.api.cluster import Cluster
from elastic.platforms.kubernetes.api.informer import Cache, Key, OnChange, Watch, key_of
from elastic.platforms.kubernetes.api.resources import NODES, PODS, Manifest, Resource
from elastic.platforms.kubernetes.api.transport import RefusedError
from elastic.platforms.kubernetes.pods import has_ended, is_deleted

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


# What is there, for all kinds of jobs together: each type of object is listed and watched once.
#
# A type that cannot be listed is named once and tried again now and then. Where it is not installed
# there are none of it, and its jobs go on; where a right is lacking, jobs that are made of it wait,
# since whoever does not see their objects would take them for lost.
#
# In a copy of the objects of one type our own writes are seen at once, and stay (`WrittenCache`).


RETRY_S: Final = 30.0
"""Between two tries to list what is not installed or not permitted."""

AWAY_RETRY_S: Final = 1.0
"""The same, where the API server did not answer, in addition to its client's own patience."""

RANDOM_BYTES: Final = 64
"""Of `Observed.random_hex`."""

VIEW_SETTLE_S: Final = 1.0
"""Changes of nodes and of other people's pods within this time are looked at together."""

TELLS_PER_S: Final = 100.0
"""Jobs that are told of such changes, in the long run: in a busy cluster there is always one."""

MAX_SETTLE_S: Final = 10.0
"""However many jobs there are, they hear of them within this time."""


class WrittenCache(Cache):
    """A cache that knows what we have written before the watch tells of it.

    Without it a pass that follows a write at once would decide on what was there before, and be
    refused for it. Events that are still on their way from before the write change nothing.
    """

    def __init__(self, on_change: OnChange, lock: "threading.RLock") -> None:
        super().__init__(on_change, lock)
        self._ahead: dict[Key, Manifest] = {}

    def written(self, item: Manifest) -> None:
        """Take over the API server's answer to a write of ours."""
        with self._lock:
            known = self.get(*key_of(item))
            # What was removed meanwhile, or replaced, does not come back.
            if known is None or not _is_same(known, item) or _is_behind(item, known):
                return
            self._ahead[key_of(item)] = item
            super().apply("MODIFIED", item)

    def begin_list(self) -> None:
        """See `Cache`; a list that is asked for now has whatever was written before."""
        with self._lock:
            self._ahead.clear()
            super().begin_list()

    def finish_list(self, items: Iterable[Manifest]) -> None:
        """See `Cache`; what was written while the list was under way is not taken back."""
        with self._lock:
            super().finish_list([self._newest(item) for item in items])

    def apply(self, kind: str, item: Manifest) -> None:
        """See `Cache`."""
        with self._lock:
            if kind != "DELETED" and self._newest(item) is not item:
                return
            self._ahead.pop(key_of(item), None)
            super().apply(kind, item)

    def _newest(self, item: Manifest) -> Manifest:
        ahead = self._ahead.get(key_of(item))
        is_old = ahead is not None and _is_same(ahead, item) and _is_behind(item, ahead)
        return ahead if is_old and ahead is not None else item


def _is_same(one: Manifest, other: Manifest) -> bool:
    return bool(one["metadata"]["uid"] == other["metadata"]["uid"])


def _is_behind(item: Manifest, other: Manifest) -> bool:
    """Whether one state of an object came before another.

    Kubernetes promises that versions are numbers which grow; where they are none, nothing is known.
    """
    version, newer = (each["metadata"].get("resourceVersion", "") for each in (item, other))
    return version.isdecimal() and newer.isdecimal() and int(version) < int(newer)


class _State(Enum):
    """WAITING ──▶ LISTED | ABSENT | DENIED; the last two are tried again, and LISTED is the end.

    A watch that is interrupted later on takes care of itself.
    """

    WAITING = auto()
    LISTED = auto()
    ABSENT = auto()
    DENIED = auto()


@dataclass(eq=False)
class Feed:
    """One type of object: its copy, and whether that is one yet.

    Attributes:
        problem: Why it cannot be listed, or empty.
    """

    resource: Resource
    cache: WrittenCache
    watch: Watch
    state: _State = _State.WAITING
    problem: str = ""

    @property
    def label(self) -> str:
        """As people name the type, such as `tfjobs.kubeflow.org`."""
        group = self.resource.group
        return f"{self.resource.plural}.{group}" if group else self.resource.plural


class Informers:
    """Copies of all that the kinds need to see. Safe to use from several threads."""

    def __init__(
        self,
        cluster: Cluster,
        kinds: Sequence[Kind],
        namespace: str | None,
        on_job: Callable[[JobKey, float], None],
        retry_s: float = RETRY_S,
        *,
        has_overview: bool = False,
    ) -> None:
        """Keep the parts; `start` begins to watch.

        Args:
            cluster: Where the objects are.
            kinds: Of jobs; no two of the same resource.
            namespace: Of the jobs; None for all.
            on_job: Called with each job that a change concerns, also with those that are no more,
                and in how many seconds it is to be looked at. It must return at once: it is called
                under the lock.
            retry_s: See `RETRY_S`.
            has_overview: Whether `overview` is to be asked for, which takes a copy of all nodes
                and pods of the cluster.
        """
        self._cluster = cluster
        self._kinds = {kind.resource: kind for kind in kinds}
        self._seers = [kind for kind in kinds if kind.sees_cluster]
        assert len(self._kinds) == len(kinds), "two kinds of the same resource"
        self._namespace = namespace
        self._on_job = on_job
        self._retry_s = retry_s
        self._lock = threading.RLock()
        self._index = Index(kinds)
        self._asked_to_go: dict[str, str] = {}
        self._view: ClusterView | None = None
        self._view_changed = threading.Event()
        self._tell_seers_at_s = 0.0
        self._closing = threading.Event()
        # Children come before jobs: a job is looked at when all is there.
        children = dict.fromkeys(
            each for kind in kinds for each in (*kind.children, *kind.looks_at)
        )
        self._feeds = {each: self._feed(each) for each in (*children, *self._kinds)}
        needs_view = has_overview or bool(self._seers)
        self._view_feeds = self._make_view_feeds() if needs_view else {}
        self._all_feeds = list(dict.fromkeys((*self._feeds.values(), *self._view_feeds.values())))
        self._thread = threading.Thread(target=self._run, name="informers", daemon=True)

    def start(self) -> None:
        """Begin to list and to watch; returns at once, see `is_synced`."""
        self._thread.start()

    def close(self) -> None:
        """Follow no further; threads end with their running requests."""
        self._closing.set()
        self._view_changed.set()
        for feed in self._all_feeds:
            feed.watch.close()

    @property
    def is_synced(self) -> bool:
        """Whether it is known of each type what there is of it, or that it cannot be seen."""
        return all(feed.state is not _State.WAITING for feed in self._all_feeds)

    @property
    def missing(self) -> list[str]:
        """Types that cannot be watched, as `tfjobs.kubeflow.org`."""
        states = (_State.ABSENT, _State.DENIED)
        return sorted({feed.label for feed in self._all_feeds if feed.state in states})

    def is_ready(self, kind: Kind) -> bool:
        """Whether all that a kind decides by is seen, as far as it is installed."""
        states = (_State.LISTED, _State.ABSENT)
        return all(feed.state in states for feed in self._needed(kind))

    def obstacle(self, kind: Kind) -> str:
        """The right that is lacking to see all that a kind decides by, or empty."""
        denied = (feed for feed in self._needed(kind) if feed.state is _State.DENIED)
        return next((feed.problem for feed in denied), "")

    def observe(self, key: JobKey, now_s: float) -> Observed | None:
        """What there is of a job; None where it is no more."""
        kind = self._kinds[key.resource]
        with self._lock:
            job = self._feeds[key.resource].cache.get(key.namespace, key.name)
            if job is None:
                return None
            found: dict[Resource, list[Manifest]] = {each: [] for each in kind.children}
            for resource, item in self._index.belongings(job):
                if resource in found:
                    found[resource].append(self._as_asked(item))
            view = self._cluster_view() if kind.sees_cluster else None
            looked_at = self._looked_at(kind, key.namespace)
        for items in found.values():
            items.sort(key=_name)
        return Observed(job, found, now_s, view, secrets.token_hex(RANDOM_BYTES), looked_at)

    def overview(self, resources: Sequence[Resource], now_s: float) -> Overview | None:
        """All jobs and their room; None until nodes and pods have been listed.

        Args:
            resources: What else is wanted, as far as it is watched.
            now_s: See `Overview`.
        """
        with self._lock:
            view = self._cluster_view()
            if view is None:
                return None
            feeds = {each: self._feeds[each] for each in resources if each in self._feeds}
            objects = {each: list(feed.cache.all()) for each, feed in feeds.items()}
            # What we have made is in the copy of our jobs' pods before that of all tells of it.
            own = self._feeds[PODS].cache.all() if PODS in self._feeds else ()
            pods = {pod["metadata"]["uid"]: pod for pod in (*view.pods, *own)}
            asked = [self._as_asked(pod) for pod in pods.values()]
        return Overview(now_s, view.nodes, asked, objects)

    def orphans(self, key: JobKey) -> list[tuple[Resource, Manifest]]:
        """What belongs to a job by its labels, has no controller, and is not about to go."""
        with self._lock:
            return [each for each in self._index.orphans(key) if not self._is_going(each[1])]

    def leaving_pods(self, key: JobKey) -> list[Manifest]:
        """Pods that belong to a job by their labels, and are to go."""
        with self._lock:
            labelled = self._index.labelled(key)
            return [each for of, each in labelled if of == PODS and is_deleted(each)]

    def strays(self, key: JobKey, job: Manifest) -> list[tuple[Resource, Manifest]]:
        """What a job controls itself although its labels are no more the job's."""
        kind = self._kinds[key.resource]
        with self._lock:
            own = list(self._index.controlled(job))
        return [
            (resource, item)
            for resource, item in own
            if resource in kind.children
            and job_of(kind, resource, item) != key.name
            and not self._is_going(item)
        ]

    def created(self, resource: Resource, item: Manifest) -> None:
        """Take over what was just created, unless a watch has told of it by now."""
        feed = self._feeds.get(resource)
        if feed is None:
            return
        with self._lock:
            known = feed.cache.get(item["metadata"]["namespace"], item["metadata"]["name"])
            if known is None or known["metadata"]["uid"] != item["metadata"]["uid"]:
                feed.cache.put(item)

    def written(self, resource: Resource, item: Manifest) -> None:
        """Take over the API server's answer to a change of ours."""
        feed = self._feeds.get(resource)
        if feed is not None:
            feed.cache.written(item)

    def asked_to_go(self, uid: str, at_s: float) -> None:
        """An object was asked to be removed, by `at_s` seconds since the epoch."""
        with self._lock:
            if self._index.has(uid):
                self._asked_to_go[uid] = _stamp(at_s)

    # -- under the lock ------------------------------------------------------------------------

    def _feed(self, resource: Resource, is_view: bool = False) -> Feed:
        def on_change(old: Manifest | None, new: Manifest | None) -> None:
            if not is_view:
                self._changed(resource, old, new)
            if resource in (NODES, PODS):
                self._view_moved(old, new)

        cache = WrittenCache(on_change, self._lock)
        namespace = self._namespace if resource.namespaced and not is_view else None
        path = resource.path(namespace)
        return Feed(resource, cache, Watch(self._cluster, path, {}, cache, _nothing))

    def _make_view_feeds(self) -> dict[Resource, Feed]:
        """Nodes and pods of the whole cluster; those that are watched anyway, where they do."""
        shared = {} if self._namespace is not None else self._feeds
        return {each: shared.get(each) or self._feed(each, is_view=True) for each in (NODES, PODS)}

    def _needed(self, kind: Kind) -> list[Feed]:
        own = [self._feeds[each] for each in (kind.resource, *kind.children)]
        return [*own, *self._view_feeds.values()] if kind.sees_cluster else own

    def _changed(self, resource: Resource, old: Manifest | None, new: Manifest | None) -> None:
        if new is None and old is not None:
            self._asked_to_go.pop(old["metadata"]["uid"], None)
        for key in self._index.change(resource, old, new):
            self._on_job(key, 0.0)
        # What changes about one that stays is no matter of those who look whether it is there.
        if old is None or new is None:
            self._tell_lookers(resource, (new or old or {})["metadata"].get("namespace", ""))

    def _tell_lookers(self, resource: Resource, namespace: str) -> None:
        for kind in self._kinds.values():
            if resource in kind.looks_at:
                for key in self._jobs(kind.resource):
                    if key.namespace == namespace:
                        self._on_job(key, 0.0)

    def _looked_at(self, kind: Kind, namespace: str) -> dict[Resource, list[Manifest]]:
        feeds = (self._feeds[each] for each in kind.looks_at)
        return {
            feed.resource: [
                each for each in feed.cache.all() if each["metadata"].get("namespace") == namespace
            ]
            for feed in feeds
            if feed.state is _State.LISTED
        }

    def _view_moved(self, old: Manifest | None, new: Manifest | None) -> None:
        self._view = None
        is_other = old is None or new is None or _room(old) != _room(new)
        if is_other and self._seers:
            self._view_changed.set()

    def _cluster_view(self) -> ClusterView | None:
        feeds = [self._view_feeds[each] for each in (NODES, PODS)]
        if any(feed.state is not _State.LISTED for feed in feeds):
            return None
        if self._view is None:
            nodes, pods = (feed.cache.all() for feed in feeds)
            self._view = ClusterView(nodes, pods)
        return self._view

    def _as_asked(self, item: Manifest) -> Manifest:
        stamp = self._asked_to_go.get(item["metadata"]["uid"])
        if stamp is None or "deletionTimestamp" in item["metadata"]:
            return item
        return {**item, "metadata": {**item["metadata"], "deletionTimestamp": stamp}}

    def _is_going(self, item: Manifest) -> bool:
        metadata = item["metadata"]
        return "deletionTimestamp" in metadata or metadata["uid"] in self._asked_to_go

    # -- on a thread of its own ----------------------------------------------------------------

    def _run(self) -> None:
        retry_at_s: float | None = 0.0
        while not self._closing.is_set():
            if retry_at_s is not None and time.monotonic() >= retry_at_s:
                pause_s = self._list_missing()
                retry_at_s = None if pause_s is None else time.monotonic() + pause_s
            wait_s = None if retry_at_s is None else max(0.0, retry_at_s - time.monotonic())
            if self._view_changed.wait(wait_s):
                self._tell_seers()

    def _list_missing(self) -> float | None:
        """Try to list what is not yet; seconds until the next try, None where all is there."""
        missing = [each for each in self._all_feeds if each.state is not _State.LISTED]
        for feed in missing:
            if self._closing.is_set() or not self._try(feed):
                return AWAY_RETRY_S
        return None if all(feed.state is _State.LISTED for feed in missing) else self._retry_s

    def _try(self, feed: Feed) -> bool:
        """List one type for the first time; False where the API server is not to be had."""
        ready = {each for each in self._kinds if self.is_ready(self._kinds[each])}
        try:
            if self._is_installed(feed.resource):
                feed.watch.start()
                feed.state, feed.problem = _State.LISTED, ""
            else:
                self._name_missing(feed, _State.ABSENT, "")
        except RefusedError as error:
            if error.code != HTTPStatus.FORBIDDEN:
                return self._not_yet(feed, error)
            self._name_missing(feed, _State.DENIED, error.detail)
        except PlatformError as error:
            return self._not_yet(feed, error)
        for resource, kind in self._kinds.items():
            # That there is none of what is looked at is told by its list alone.
            is_ready_now = resource not in ready and self.is_ready(kind)
            if is_ready_now or feed.resource in kind.looks_at:
                self._tell_jobs(resource)
        if feed in self._view_feeds.values():
            self._view_changed.set()
        return True

    def _not_yet(self, feed: Feed, error: PlatformError) -> bool:
        if feed.problem != str(error):
            logger.warning("%s cannot be listed yet: %s", feed.label, error)
        feed.problem = str(error)
        return False

    def _name_missing(self, feed: Feed, state: _State, problem: str) -> None:
        if feed.state is state:
            return
        feed.state, feed.problem = state, problem
        if state is _State.ABSENT:
            logger.warning("%s are not installed: there are none, until they are", feed.label)
            return
        needing = [kind for kind in self._kinds.values() if feed in self._needed(kind)]
        what = (
            "so what is made of them waits" if needing else "so nobody is told where one is missing"
        )
        logger.warning("%s cannot be seen, %s: %s", feed.label, what, problem)
        # Its jobs are to be told why nothing happens to them.
        for kind in needing:
            self._tell_jobs(kind.resource)

    def _is_installed(self, resource: Resource) -> bool:
        """Whether the API server has a type.

        Its list does not tell: without the right to it the answer is the same whether or not it is
        there, and where it is not, the answer is a page that any server may have.
        """
        if not resource.group:
            return True
        try:
            groups = self._cluster.get("/apis")["groups"]
            served = {each["groupVersion"] for group in groups for each in group["versions"]}
            if resource.api_version not in served:
                return False
            found = self._cluster.get(f"/apis/{resource.api_version}")
        except RefusedError:
            # Who may not ask for the types is left with trying.
            return True
        return any(each["name"] == resource.plural for each in found["resources"])

    def _tell_seers(self) -> None:
        left_s = self._tell_seers_at_s - time.monotonic()
        self._closing.wait(max(VIEW_SETTLE_S, left_s))
        self._view_changed.clear()
        keys = [key for kind in self._seers for key in self._jobs(kind.resource)]
        # One after the other: what happens to a job itself must not wait behind all of them.
        for number, key in enumerate(keys):
            self._on_job(key, number / TELLS_PER_S)
        pause_s = min(MAX_SETTLE_S, len(keys) / TELLS_PER_S)
        self._tell_seers_at_s = time.monotonic() + pause_s

    def _tell_jobs(self, resource: Resource) -> None:
        for key in self._jobs(resource):
            self._on_job(key, 0.0)

    def _jobs(self, resource: Resource) -> list[JobKey]:
        metadata = [job["metadata"] for job in self._feeds[resource].cache.all()]
        return [JobKey(resource, each.get("namespace", ""), each["name"]) for each in metadata]


def _room(item: Manifest) -> Any:
    """What of a node or of a pod matters for where others may go."""
    spec, status = item.get("spec") or {}, item.get("status") or {}
    ready = [each["status"] for each in status.get("conditions") or () if each["type"] == "Ready"]
    of_node = (spec.get("taints"), spec.get("unschedulable"), status.get("allocatable"))
    of_pod = (spec.get("nodeName"), has_ended(item), spec.get("containers"))
    is_node = "allocatable" in status
    return (*of_node, ready, item["metadata"].get("labels")) if is_node else of_pod


def _stamp(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _name(item: Manifest) -> str:
    name: str = item["metadata"]["name"]
    return name


def _nothing() -> None:
    """The watch logs by itself that it was interrupted."""
