"""A copy of the objects of one type in which our own writes are seen at once, and stay."""

import threading
from collections.abc import Iterable

from elastic.platforms.kubernetes.api.informer import Cache, Key, OnChange, key_of
from elastic.platforms.kubernetes.api.resources import Manifest


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
