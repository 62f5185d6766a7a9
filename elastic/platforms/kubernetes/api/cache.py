"""A local copy of some of the cluster's objects, kept by list and watch. No I/O here.

The copy is right after every list; between lists it follows the watch. Objects that were created
by ourselves are put in at once, and neither a list that was under way nor a late event takes them
out again.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from elastic.platforms.kubernetes.api.resources import Manifest

MAX_REMOVED: Final = 10_000
"""Uids of removed objects that are remembered, lest an answer that comes late revives one."""

OnChange: TypeAlias = Callable[[Manifest | None, Manifest | None], None]
"""Called with the object before and after a change; None where there was or is none.

When an object of the same name takes another's place, the removal is told first.
"""

Key: TypeAlias = tuple[str, str]
"""Namespace and name; the first is empty where objects are in none."""


def key_of(item: Manifest) -> Key:
    """What an object is found by; one that takes its place has the same."""
    metadata = item["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


class Cache:
    """Objects by namespace and name. Safe to use from several threads.

    `on_change` is called under the lock.
    """

    def __init__(self, on_change: OnChange, lock: "threading.RLock") -> None:
        """Keep the parts.

        Args:
            on_change: See `OnChange`.
            lock: The owner's own, since it asks the cache while it holds it.
        """
        self._on_change = on_change
        self._lock = lock
        self._objects: dict[Key, Manifest] = {}
        self._put_since_list: dict[Key, Manifest] = {}
        self._removed: deque[str] = deque(maxlen=MAX_REMOVED)

    def get(self, namespace: str, name: str) -> Manifest | None:
        """The object of that name; `namespace` is empty for one that is in none."""
        with self._lock:
            return self._objects.get((namespace, name))

    def all(self) -> list[Manifest]:
        """Every object."""
        with self._lock:
            return list(self._objects.values())

    def begin_list(self) -> None:
        """A list is about to be asked for: what is put from now on may be missing in it."""
        with self._lock:
            self._put_since_list.clear()

    def finish_list(self, items: Iterable[Manifest]) -> None:
        """Take over the answer to a list: what is missing there has been removed."""
        with self._lock:
            listed = {key_of(item): item for item in items}
            for key, item in self._put_since_list.items():
                listed.setdefault(key, item)
            for key in self._objects.keys() - listed.keys():
                self._remove(self._objects[key])
            for item in listed.values():
                self._set(item)

    def put(self, item: Manifest) -> None:
        """Add what we have just created, before any event tells of it."""
        with self._lock:
            if self._has(item):
                return
            self._put_since_list[key_of(item)] = item
            self._set(item)

    def apply(self, kind: str, item: Manifest) -> None:
        """Follow one event of the watch: ADDED, MODIFIED or DELETED."""
        with self._lock:
            if kind == "DELETED":
                self._remove(item)
            else:
                self._set(item)

    def _set(self, item: Manifest) -> None:
        if _uid(item) in self._removed:
            return
        key = key_of(item)
        old = self._objects.get(key)
        if old is not None and _uid(old) != _uid(item):
            self._remove(old)
            old = None
        if old == item:
            return
        self._objects[key] = item
        self._on_change(old, item)

    def _remove(self, last: Manifest) -> None:
        key = key_of(last)
        self._removed.append(_uid(last))
        old = self._objects.get(key)
        put = self._put_since_list.get(key)
        if put is not None and _uid(put) == _uid(last):
            del self._put_since_list[key]
        if old is not None and _uid(old) == _uid(last):
            del self._objects[key]
            self._on_change(last, None)

    def _has(self, item: Manifest) -> bool:
        old = self._objects.get(key_of(item))
        return old is not None and _uid(old) == _uid(item)


def _uid(item: Manifest) -> str:
    uid: str = item["metadata"]["uid"]
    return uid
