"""A local copy of some of the cluster's objects, kept by list and watch. No I/O here.

The copy is right after every list; between lists it follows the watch. Objects that were created
by ourselves are put in at once, and neither a list that was under way nor a late event takes them
out again.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from elastic.platforms.kubernetes.names import Manifest

MAX_REMOVED: Final = 10_000
"""Uids of removed objects that are remembered, lest an answer that comes late revives one."""

OnChange: TypeAlias = Callable[[Manifest | None, Manifest | None], None]
"""Called with the object before and after a change; None where there was or is none.

When an object of the same name takes another's place, the removal is told first.
"""


class Mirror:
    """Objects by name. Safe to use from several threads; `on_change` is called under the lock."""

    def __init__(self, on_change: OnChange, lock: "threading.RLock") -> None:
        """Keep the parts.

        Args:
            on_change: See `OnChange`.
            lock: The owner's own, since it asks the mirror while it holds it.
        """
        self._on_change = on_change
        self._lock = lock
        self._objects: dict[str, Manifest] = {}
        self._put_since_list: dict[str, Manifest] = {}
        self._removed: deque[str] = deque(maxlen=MAX_REMOVED)

    def get(self, name: str) -> Manifest | None:
        """The object of that name."""
        with self._lock:
            return self._objects.get(name)

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
            listed = {item["metadata"]["name"]: item for item in items}
            for name, item in self._put_since_list.items():
                listed.setdefault(name, item)
            for name in self._objects.keys() - listed.keys():
                self._remove(self._objects[name])
            for item in listed.values():
                self._set(item)

    def put(self, item: Manifest) -> None:
        """Add what we have just created, before any event tells of it."""
        with self._lock:
            if self._has(item):
                return
            self._put_since_list[item["metadata"]["name"]] = item
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
        name = item["metadata"]["name"]
        old = self._objects.get(name)
        if old is not None and _uid(old) != _uid(item):
            self._remove(old)
            old = None
        if old == item:
            return
        self._objects[name] = item
        self._on_change(old, item)

    def _remove(self, last: Manifest) -> None:
        name = last["metadata"]["name"]
        self._removed.append(_uid(last))
        old = self._objects.get(name)
        put = self._put_since_list.get(name)
        if put is not None and _uid(put) == _uid(last):
            del self._put_since_list[name]
        if old is not None and _uid(old) == _uid(last):
            del self._objects[name]
            self._on_change(last, None)

    def _has(self, item: Manifest) -> bool:
        old = self._objects.get(item["metadata"]["name"])
        return old is not None and _uid(old) == _uid(item)


def _uid(item: Manifest) -> str:
    uid: str = item["metadata"]["uid"]
    return uid
