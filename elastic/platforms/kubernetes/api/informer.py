"""A local copy of some of the cluster's objects, kept current by list and watch.

It is right after every list; between lists it follows the watch.
"""

import json
import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any, Final, TypeAlias

from elastic.errors import PlatformError
from elastic.platforms.kubernetes.api.cluster import Cluster, RefusedError
from elastic.platforms.kubernetes.api.resources import Manifest

MAX_REMOVED: Final = 10_000
"""Uids of removed objects that are remembered, lest an answer that comes late revives one."""

OnChange: TypeAlias = Callable[[Manifest | None, Manifest | None], None]
"""Called with the object before and after a change; None where there was or is none.

When an object of the same name takes another's place, the removal is told first.
"""

Key: TypeAlias = tuple[str, str]
"""Namespace and name; the first is empty where objects are in none."""

logger = logging.getLogger(__name__)

WATCH_S: Final = 60
"""How long one watch request is asked to last; the next goes on where it ended."""

SILENCE_S: Final = 75.0
"""A watch that outlasts its time in silence is dead, whatever its socket says."""

FIRST_PAUSE_S: Final = 0.1

LAST_PAUSE_S: Final = 5.0

STEADY_S: Final = 5.0
"""A watch that has lasted so long was no failure, so the next one owes no pause."""


def key_of(item: Manifest) -> Key:
    """What an object is found by; one that takes its place has the same."""
    metadata = item["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


class Cache:
    """Objects by namespace and name. Safe to use from several threads; no I/O here.

    Objects that were created by ourselves are put in at once, and neither a list that was under
    way nor a late event takes them out again.

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


class GoneError(Exception):
    """The API server keeps no history that far back: everything has to be listed anew."""


class Watch:
    """A thread that follows one collection, narrowed by selectors."""

    def __init__(
        self,
        cluster: Cluster,
        path: str,
        selectors: dict[str, str],
        cache: Cache,
        on_contact: Callable[[], None],
        watch_s: int = WATCH_S,
        silence_s: float = SILENCE_S,
    ) -> None:
        """Keep the parts; `start` does the first list.

        Args:
            cluster: Where the objects are.
            path: Of the collection.
            selectors: `labelSelector` or `fieldSelector`.
            cache: What is kept current.
            on_contact: Called when the API server has been lost or is back, see `failure`.
            watch_s: See `WATCH_S`.
            silence_s: See `SILENCE_S`.
        """
        self._cluster = cluster
        self._path = path
        self._selectors = selectors
        self._cache = cache
        self._on_contact = on_contact
        self._watch_s = watch_s
        self._silence_s = silence_s
        self._version: str | None = None
        self._failure: PlatformError | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch {path}", daemon=True)

    def start(self) -> None:
        """List everything once, then follow it in the background; once is enough.

        Raises:
            PlatformError: The first list failed; it may be started again.
        """
        if self._thread.is_alive():
            # Whoever starts several tries all of them again when one cannot be listed.
            return
        self._list()
        self._thread.start()

    def close(self) -> None:
        """Follow no further; the thread ends with its running request."""
        self._stopping.set()

    @property
    def failure(self) -> PlatformError | None:
        """Why the cache is not current at the moment, or None where it is."""
        return self._failure

    def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        while not self._stopping.is_set():
            began_s = time.monotonic()
            try:
                self._follow()
            except GoneError as error:
                logger.info("the watch of %s lists anew: %s", self._path, error)
                self._version = None
            except RefusedError as error:
                if error.code == HTTPStatus.GONE:
                    self._version = None
                self._lost(error)
            except PlatformError as error:
                self._lost(error)
            if time.monotonic() - began_s >= STEADY_S:
                pause_s = FIRST_PAUSE_S
            # An answered watch may end at once as well, so there is always a pause.
            self._stopping.wait(pause_s * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
            pause_s = min(2 * pause_s, LAST_PAUSE_S)

    def _follow(self) -> None:
        """One watch, after a list where there is nothing to go on from."""
        if self._version is None:
            self._list()
        query = self._selectors | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": str(self._version),
            "timeoutSeconds": str(self._watch_s),
        }
        lines = self._cluster.lines(self._path, query, self._silence_s, on_open=self._found_again)
        for line in lines:
            if self._stopping.is_set():
                return
            if line.strip():
                self._handle(line)

    def _handle(self, line: bytes) -> None:
        try:
            event: dict[str, Any] = json.loads(line)
            kind, item = event["type"], event["object"]
        except (ValueError, KeyError, TypeError):
            # Cut off in the middle: the next watch begins before it.
            logger.info("the watch of %s broke within an event", self._path)
            return
        if kind == "ERROR":
            message = item.get("message", "no explanation")
            if item.get("code") == HTTPStatus.GONE:
                raise GoneError(message)
            raise RefusedError(f"the watch of {self._path} ended: {message}", item.get("code", 0))
        if kind != "BOOKMARK":
            self._cache.apply(kind, item)
        self._version = item["metadata"]["resourceVersion"]

    def _list(self) -> None:
        self._cache.begin_list()
        answer = self._cluster.get(self._path, self._selectors)
        self._cache.finish_list(answer["items"])
        self._version = answer["metadata"]["resourceVersion"]
        self._found_again()

    def _lost(self, error: PlatformError) -> None:
        if self._failure is None:
            logger.warning("the watch of %s is interrupted: %s", self._path, error)
        self._failure = error
        self._on_contact()

    def _found_again(self) -> None:
        if self._failure is not None:
            logger.info("the watch of %s goes on", self._path)
            self._failure = None
            self._on_contact()
