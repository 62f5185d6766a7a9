"""What an API server keeps: objects, their versions, and what happened to them; no HTTP here.

For any group and type. `support.api_server_in_memory` serves it.
"""

import itertools
import json
import re
import threading
import time
import uuid
from collections import deque
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache

WITHOUT_STATUS = frozenset(
    {"configmaps", "secrets", "events", "leases", "serviceaccounts", "roles", "rolebindings"}
)
"""Types of which no part is written separately, and whose generation means nothing."""

MAX_EVENTS = 50_000
"""Of each type that are kept for watches that go on from an earlier version."""


class RefusalError(Exception):
    """An answer of 400 or above."""

    def __init__(self, code, reason, message):
        super().__init__(message)
        self.code = code
        self.reason = reason


@dataclass(eq=False)
class Event:
    """One change, as watches are told; `old` decides what those with selectors see."""

    version: int
    kind: str
    new: dict
    old: dict | None


@dataclass(frozen=True)
class Place:
    """A type of object, and a namespace or an object of it where they are named."""

    group: str
    api_version: str
    plural: str
    namespace: str = ""
    name: str = ""
    part: str = ""

    @property
    def type(self):
        return self.group, self.plural


class Collection:
    """The objects of one type; all versions of a group share it."""

    def __init__(self, lock):
        self.objects = {}
        self.events = deque()
        self.first_version = 0
        self.changed = threading.Condition(lock)


class Objects:
    """All objects of a cluster. Thread-safe; what is returned must not be changed.

    Times are those of `now_s`.

    Attributes:
        check: Called with the place of each new object and the object; raises RefusalError.
    """

    def __init__(self, now_s=time.time):
        self.lock = threading.RLock()
        self.version = 1
        self.now_s = now_s
        self.check = lambda place, item: None
        self.collects_garbage = True
        self._collections = {}
        self._uids = {}
        self._dependents = {}
        self._garbage = deque()
        self._names = itertools.count(1)

    # -- reading -------------------------------------------------------------------------------

    def get(self, place):
        with self.lock:
            found = self._of(place).objects.get((place.namespace, place.name))
            if found is None:
                raise RefusalError(404, "NotFound", f'{place.plural} "{place.name}" not found')
            return found

    def list(self, place, matches=lambda _: True):
        """The objects, in the order of their names, and the version they are of."""
        with self.lock:
            found = self._of(place).objects
            keys = sorted(key for key in found if not place.namespace or key[0] == place.namespace)
            return [found[key] for key in keys if matches(found[key])], self.version

    def events_after(self, place, version):
        """What has happened since; refused where that is no longer known."""
        with self.lock:
            collection = self._of(place)
            if version < collection.first_version:
                raise RefusalError(410, "Expired", f"too old resource version: {version}")
            found = []
            for event in reversed(collection.events):
                if event.version <= version:
                    break
                found.append(event)
            found.reverse()
            return found

    def wait(self, place, timeout_s):
        """Until something of a type has changed, or may have; to be called with the lock."""
        self._of(place).changed.wait(timeout_s)

    def wake_all(self):
        """Have all who wait look again."""
        with self.lock:
            for collection in self._collections.values():
                collection.changed.notify_all()

    def forget_history(self):
        """Have every watch that goes on from before list anew."""
        with self.lock:
            for collection in self._collections.values():
                collection.events.clear()
                collection.first_version = self.version + 1
                collection.changed.notify_all()
            self.version += 1

    # -- writing -------------------------------------------------------------------------------

    def create(self, place, manifest, dry_run=False):
        item = deepcopy(manifest)
        metadata = item.setdefault("metadata", {})
        name = metadata.get("name") or self._made_up(metadata)
        if not name:
            raise RefusalError(422, "Invalid", "metadata.name: name or generateName is required")
        self.check(place, item)
        with self.lock:
            objects = self._of(place).objects
            if metadata.get("resourceVersion"):
                raise RefusalError(
                    400, "BadRequest", "resourceVersion should not be set on objects to be created"
                )
            if (place.namespace, name) in objects:
                raise RefusalError(409, "AlreadyExists", f'{place.plural} "{name}" already exists')
            metadata.update(name=name, uid=str(uuid.uuid4()), creationTimestamp=self.stamp())
            if place.namespace:
                metadata["namespace"] = place.namespace
            if place.plural not in WITHOUT_STATUS:
                item.pop("status", None)
                metadata["generation"] = 1
            if place.type == ("", "pods"):
                item["status"] = {"phase": "Pending"}
            if dry_run:
                return item
            self._store(place, "ADDED", item, None)
            self._collect_if_unowned(place, item)
            return item

    def replace(self, place, manifest):
        with self.lock:
            return self._update(place, self.get(place), deepcopy(manifest))

    def merge(self, place, change):
        """A merge patch."""
        with self.lock:
            old = self.get(place)
            return self._update(place, old, merged(old, change))

    def apply(self, place, manifest):
        """Merge, or create where there is none; who applied what is not remembered."""
        with self.lock:
            try:
                self.get(place)
            except RefusalError:
                return self.create(place, manifest)
            return self.merge(place, manifest)

    def delete(self, place, options):
        with self.lock:
            item = self.get(place)
            self._check(place, item, options.get("preconditions") or {})
            metadata = item["metadata"]
            grace_s = self._grace_s(place, item, options)
            if options.get("propagationPolicy") == "Orphan":
                self._orphan(metadata["uid"])
            if not grace_s and not metadata.get("finalizers"):
                return self._remove(place, item)
            if "deletionTimestamp" in metadata and grace_s:
                return item
            going = deepcopy(item)
            going["metadata"]["deletionTimestamp"] = self.stamp(grace_s)
            going["metadata"]["deletionGracePeriodSeconds"] = grace_s
            return self._store(place, "MODIFIED", going, item)

    def collect(self):
        """Remove what was owned by what is no more, as the garbage collector does by itself."""
        while self._garbage:
            place, uid = self._garbage.popleft()
            item = self._of(place).objects.get((place.namespace, place.name))
            if item is not None and item["metadata"]["uid"] == uid and self._is_unowned(item):
                self.delete(place, {})

    # -- inside --------------------------------------------------------------------------------

    def _of(self, place):
        return self._collections.setdefault(place.type, Collection(self.lock))

    def stamp(self, later_s=0):
        """Now, or so many seconds later, as Kubernetes writes it."""
        time_s = datetime.fromtimestamp(self.now_s() + later_s, UTC)
        return time_s.strftime("%Y-%m-%dT%H:%M:%SZ")

    def _made_up(self, metadata):
        prefix = metadata.get("generateName")
        return f"{prefix}{next(self._names):05}" if prefix else None

    def _update(self, place, old, new):
        # A patch shares with the old object whatever it does not change.
        metadata, before = dict(new.get("metadata") or {}), old["metadata"]
        new["metadata"] = metadata
        self._check(place, old, {"resourceVersion": metadata.get("resourceVersion")})
        if place.part != "status" and metadata.get("uid", before["uid"]) != before["uid"]:
            raise RefusalError(422, "Invalid", "metadata.uid: field is immutable")
        if place.plural not in WITHOUT_STATUS:
            if place.part == "status":
                new = {**old, "status": new.get("status", {})}
                if not new["status"]:
                    new.pop("status")
                metadata = new["metadata"] = dict(before)
            elif "status" in old:
                new["status"] = old["status"]
            else:
                new.pop("status", None)
        for name in ("name", "namespace", "uid", "creationTimestamp", "generation"):
            if name in before:
                metadata[name] = before[name]
        for name in ("deletionTimestamp", "deletionGracePeriodSeconds"):
            metadata.pop(name, None)
            if name in before:
                metadata[name] = before[name]
        metadata["resourceVersion"] = before["resourceVersion"]
        if new == old:
            return old
        if "generation" in before and _desired(new) != _desired(old):
            metadata["generation"] = before["generation"] + 1
        was_kept = "deletionTimestamp" in metadata and before.get("finalizers")
        if was_kept and not metadata.get("finalizers"):
            return self._remove(place, new)
        self._store(place, "MODIFIED", new, old)
        self._collect_if_unowned(place, new)
        return new

    def _check(self, place, item, wanted):
        metadata = item["metadata"]
        for name in ("uid", "resourceVersion"):
            if wanted.get(name) and wanted[name] != metadata[name]:
                raise RefusalError(
                    409,
                    "Conflict",
                    f'Operation cannot be fulfilled on {place.plural} "{metadata["name"]}": '
                    f"{name} in precondition: {wanted[name]}, in object: {metadata[name]}",
                )

    def _grace_s(self, place, item, options):
        if place.type != ("", "pods"):
            return 0
        spec = item.get("spec", {})
        is_over = item["status"].get("phase") in ("Succeeded", "Failed")
        if not spec.get("nodeName") or is_over:
            return 0
        asked = options.get("gracePeriodSeconds")
        return spec.get("terminationGracePeriodSeconds", 30) if asked is None else asked

    def _store(self, place, kind, item, old):
        self.version += 1
        item["metadata"]["resourceVersion"] = str(self.version)
        metadata = item["metadata"]
        collection = self._of(place)
        key = (metadata.get("namespace", ""), metadata["name"])
        if kind == "DELETED":
            del collection.objects[key]
        else:
            collection.objects[key] = item
        self._link(place, kind, item, old)
        collection.events.append(Event(self.version, kind, item, old))
        if len(collection.events) > MAX_EVENTS:
            collection.first_version = collection.events.popleft().version
        collection.changed.notify_all()
        return item

    def _link(self, place, kind, item, old):
        here = Place(place.group, place.api_version, place.plural, *_key(item))
        uid = item["metadata"]["uid"]
        for owner in _owner_uids(old or {"metadata": {}}):
            self._dependents.get(owner, {}).pop(uid, None)
        if kind == "DELETED":
            self._uids.pop(uid, None)
            for each, there in self._dependents.pop(uid, {}).items():
                self._garbage.append((there, each))
            return
        self._uids[uid] = here
        for owner in _owner_uids(item):
            self._dependents.setdefault(owner, {})[uid] = here

    def _remove(self, place, item):
        last = deepcopy(item)
        self._store(place, "DELETED", last, item)
        if self.collects_garbage:
            self.collect()
        return last

    def _orphan(self, uid):
        for place in list(self._dependents.get(uid, {}).values()):
            item = self.get(place)
            owners = [each for each in item["metadata"]["ownerReferences"] if each["uid"] != uid]
            self.merge(place, {"metadata": {"ownerReferences": owners}})

    def _is_unowned(self, item):
        owners = _owner_uids(item)
        return bool(owners) and not any(owner in self._uids for owner in owners)

    def _collect_if_unowned(self, place, item):
        if self._is_unowned(item):
            here = Place(place.group, place.api_version, place.plural, *_key(item))
            self._garbage.append((here, item["metadata"]["uid"]))
            if self.collects_garbage:
                self.collect()


def merged(old, change):
    """RFC 7386; shares what is unchanged."""
    if not isinstance(change, dict):
        return change
    result = dict(old) if isinstance(old, dict) else {}
    for name, value in change.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def selector(query):
    """What of a list or a watch is asked for by labels and by fields."""
    labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
    if not labels and not fields:
        return lambda _: True
    conditions = _label_conditions(labels)
    wanted = [each.replace("==", "=").partition("=") for each in fields.split(",") if each]

    def matches(item):
        there = item["metadata"].get("labels") or {}
        return all(condition(there) for condition in conditions) and all(
            (str(_field(item, path.rstrip("!"))) == value) != path.endswith("!")
            for path, _, value in wanted
        )

    return matches


@lru_cache(maxsize=1000)
def _label_conditions(text):
    return tuple(map(_condition, re.findall(r"[^,(]+(?:\([^)]*\))?", text)))


def _condition(text):
    text = text.strip()
    if found := re.fullmatch(r"(\S+)\s+(in|notin)\s+\((.*)\)", text):
        key, word, listed = found.groups()
        values = {each.strip() for each in listed.split(",")}
        return lambda labels: (labels.get(key) in values) == (word == "in")
    if found := re.fullmatch(r"([^!=]+)(!=|==|=)(.*)", text):
        key, sign, value = found.groups()
        return lambda labels: (labels.get(key) == value) == (sign != "!=")
    if text.startswith("!"):
        return lambda labels: text[1:] not in labels
    return lambda labels: text in labels


def _field(item, path):
    for name in path.split("."):
        item = item.get(name, "") if isinstance(item, dict) else ""
    return item


def _desired(item):
    return {name: value for name, value in item.items() if name not in ("metadata", "status")}


def _key(item):
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


def _owner_uids(item):
    return [each["uid"] for each in item["metadata"].get("ownerReferences") or ()]


def encoded(item):
    """As JSON, without spaces."""
    return json.dumps(item, separators=(",", ":")).encode()
