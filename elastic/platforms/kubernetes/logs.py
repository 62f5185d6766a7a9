"""Reads the logs of a job's pods through the API server, as they are or as they grow."""

import logging
import queue
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from elastic.errors import PlatformError
from elastic.platforms.base import LogLine
from elastic.platforms.kubernetes.connection import AwayError, Cluster, RefusedError
from elastic.platforms.kubernetes.names import (
    INDEX_LABEL,
    MASTER,
    TYPE_LABEL,
    Manifest,
    object_path,
)

logger = logging.getLogger(__name__)

POLL_S: Final = 1.0
SILENCE_S: Final = 60.0
"""A quiet stream is opened anew after so long, in case its connection has died in silence."""
FAREWELL_S: Final = 10.0
"""How long pods of a job that has ended may go on writing before nobody waits for them."""
_EXCUSE_PAUSES_S: Final = (0.5, 1.0, 2.0)
_STAMP: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")


class ExcuseError(PlatformError):
    """The node has sent a sentence of its own in the place of a log, as it does without an error.

    It has just removed the container, or not yet linked its file, or may open no more files.
    """


class _PodLog:
    """The log of one life of a pod's container, read on from where the last read ended."""

    def __init__(self, cluster: Cluster, pod: Manifest) -> None:
        self.replica = replica_name(pod)
        self._cluster = cluster
        metadata = pod["metadata"]
        self._path = object_path("pods", metadata["namespace"], metadata["name"]) + "/log"
        self._last_stamp = ""

    def lines(self, **options: object) -> Iterator[LogLine]:
        """The lines that no earlier call has given.

        Args:
            options: Of the API: follow, tailLines, previous; None leaves one out.

        Raises:
            RefusedError: There is no log; `code` is 400 where the container has not begun.
            AwayError: The API server is away, or with `follow`: nothing came for a while.
            ExcuseError: The node cannot read the log, which may pass.
        """
        query = {name: str(value).lower() for name, value in options.items() if value is not None}
        query["timestamps"] = "true"
        if self._last_stamp:
            query["sinceTime"] = _whole_second(self._last_stamp)
        for raw in self._cluster.lines(self._path, query, read_timeout_s=SILENCE_S):
            stamp, _, text = raw.decode("utf-8", errors="replace").partition(" ")
            if not _STAMP.match(stamp):
                raise ExcuseError(
                    f"{self.replica}: the node cannot give its log now: {stamp} {text}"
                )
            if self._last_stamp and _order(stamp) <= _order(self._last_stamp):
                continue
            self._last_stamp = stamp
            yield LogLine(self.replica, text.removesuffix("\r"))


class _Stream:
    """A thread that reads one life's log into a queue; started again until it has all."""

    def __init__(self, log: _PodLog, lines: "queue.SimpleQueue[LogLine]") -> None:
        self._log = log
        self._lines = lines
        self._thread: threading.Thread | None = None
        self.is_complete = False

    @property
    def is_reading(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def read(self, tail: int | None, has_terminated: bool) -> None:
        """Read on in the background; whoever has terminated by now has written all."""
        self._thread = threading.Thread(
            target=self._run, args=(tail, has_terminated), name=self._log.replica, daemon=True
        )
        self._thread.start()

    def _run(self, tail: int | None, has_terminated: bool) -> None:
        try:
            for line in self._log.lines(follow=True, tailLines=tail):
                self._lines.put(line)
            self.is_complete = has_terminated
        except RefusedError as error:
            # A pod that is gone says no more; one that has not begun is looked at again.
            self.is_complete = error.code == HTTPStatus.NOT_FOUND
        except ExcuseError as error:
            # Until whoever follows gives up.
            logger.info("%s", error)
        except AwayError:
            # Who looks for pods meets it too, and judges how long is too long.
            return


def read_logs(
    cluster: Cluster,
    pods: Sequence[Manifest],
    replicas: Sequence[str],
    tail: int | None,
    previous: bool,
) -> Iterator[LogLine]:
    """What the logs hold now, replica by replica, the master first.

    Raises:
        PlatformError: A replica was named that has no log, or nobody has one.
    """
    known = ", ".join(map(replica_name, _sorted(pods))) or "none"
    for name in replicas:
        if not any(_is_named(replica_name(pod), [name]) for pod in pods):
            raise PlatformError(f"{name!r} has no pod: name one of: {known}")
    if not pods:
        raise PlatformError("the job has no pods any more, and their logs went with them")
    wanted = [pod for pod in _sorted(pods) if _is_named(replica_name(pod), replicas)]
    if previous:
        wanted = [pod for pod in wanted if _container(pod).get("restartCount", 0)]
        if not wanted:
            raise PlatformError(
                "no container was restarted in place, so there is no log of an earlier life: the "
                "log of a worker's earlier launch went with its pod"
            )
    for pod in wanted:
        try:
            yield from _read_now(_PodLog(cluster, pod), tail, previous)
        except RefusedError as error:
            if error.code == HTTPStatus.NOT_FOUND:
                continue
            if error.code != HTTPStatus.BAD_REQUEST:
                raise
            if replicas or len(wanted) == 1:
                raise PlatformError(
                    f"{replica_name(pod)} has written nothing yet: {error.detail}"
                ) from error


def _read_now(log: _PodLog, tail: int | None, previous: bool) -> Iterator[LogLine]:
    for pause_s in _EXCUSE_PAUSES_S:
        try:
            yield from log.lines(tailLines=tail, previous=previous or None)
        except ExcuseError:
            time.sleep(pause_s)
        else:
            return
    yield from log.lines(tailLines=tail, previous=previous or None)


def follow_logs(
    cluster: Cluster,
    look: Callable[[], tuple[Sequence[Manifest], bool]],
    replicas: Sequence[str],
    tail: int | None,
) -> Iterator[LogLine]:
    """What the logs hold and what is added, until the job has ended and all was read.

    Args:
        look: The job's pods as they are now, and whether the job has ended.
    """
    lines: queue.SimpleQueue[LogLine] = queue.SimpleQueue()
    streams: dict[tuple[str, int], _Stream] = {}
    first_tail, ended_s = tail, None
    while True:
        pods, has_ended = look()
        if has_ended and ended_s is None:
            ended_s = time.monotonic()
        wanted = [pod for pod in pods if _is_named(replica_name(pod), replicas)]
        for pod in _sorted(wanted):
            _read_on(cluster, pod, streams, lines, first_tail)
        first_tail = None
        yield from _until_next_look(lines)
        if ended_s is None:
            continue
        is_read = lines.empty() and not any(s.is_reading for s in streams.values())
        is_complete = is_read and all(s.is_complete for s in streams.values())
        if is_complete or (lines.empty() and time.monotonic() - ended_s > FAREWELL_S):
            return


def _read_on(
    cluster: Cluster,
    pod: Manifest,
    streams: dict[tuple[str, int], _Stream],
    lines: "queue.SimpleQueue[LogLine]",
    tail: int | None,
) -> None:
    """Have a thread read the log of the pod's present life, where there is more to read."""
    container = _container(pod)
    state: Mapping[str, Any] = container.get("state") or {}
    if "running" not in state and "terminated" not in state:
        return
    life = (pod["metadata"]["uid"], container.get("restartCount", 0))
    if life not in streams:
        streams[life] = _Stream(_PodLog(cluster, pod), lines)
        streams[life].read(tail, "terminated" in state)
    elif not streams[life].is_reading and not streams[life].is_complete:
        streams[life].read(None, "terminated" in state)


def _until_next_look(lines: "queue.SimpleQueue[LogLine]") -> Iterator[LogLine]:
    deadline_s = time.monotonic() + POLL_S
    while (left_s := deadline_s - time.monotonic()) > 0:
        try:
            yield lines.get(timeout=left_s)
        except queue.Empty:
            return


def replica_name(pod: Manifest) -> str:
    """`worker-0`, as users name it."""
    labels = pod["metadata"].get("labels") or {}
    return f"{labels.get(TYPE_LABEL, 'pod')}-{labels.get(INDEX_LABEL, '0')}"


def _sorted(pods: Iterable[Manifest]) -> list[Manifest]:
    def order(pod: Manifest) -> tuple[bool, str, int]:
        role, _, index = replica_name(pod).rpartition("-")
        return role != MASTER, role, int(index) if index.isdecimal() else 0

    return sorted(pods, key=order)


def _is_named(replica: str, names: Sequence[str]) -> bool:
    """Whether `worker-0` is meant by the names: itself, its role, or everybody."""
    return not names or replica in names or replica.rsplit("-", 1)[0] in names


def _container(pod: Manifest) -> dict[str, Any]:
    statuses: list[dict[str, Any]] = pod["status"].get("containerStatuses") or [{}]
    return statuses[0]


def _order(stamp: str) -> tuple[str, str]:
    """Sorts time stamps whose fractions of a second have lost their last zeros."""
    return stamp[:19], stamp[20:].rstrip("Z").ljust(9, "0")


def _whole_second(stamp: str) -> str:
    """The stamp without its fraction, as the API takes times."""
    zone = stamp[19:].lstrip(".0123456789")
    return stamp[:19] + (zone or "Z")
