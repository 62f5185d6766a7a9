"""Keeps a `Cache` current: list, then watch from there, and again whenever that breaks."""

import json
import logging
import random
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

from elastic.errors import PlatformError
from elastic.platforms.kubernetes.api.cache import Cache
from elastic.platforms.kubernetes.api.cluster import Cluster, RefusedError

logger = logging.getLogger(__name__)

WATCH_S: Final = 60
"""How long one watch request is asked to last; the next goes on where it ended."""

SILENCE_S: Final = 75.0
"""A watch that outlasts its time in silence is dead, whatever its socket says."""

FIRST_PAUSE_S: Final = 0.1
LAST_PAUSE_S: Final = 5.0
STEADY_S: Final = 5.0
"""A watch that has lasted so long was no failure, so the next one owes no pause."""


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
