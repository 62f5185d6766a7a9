"""Reads what the logs of a job's pods hold now, or follows them as pods come and go."""

import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from elastic.errors import PlatformError
from elastic.platforms.base import LastLook, LogLine
from elastic.platforms.kubernetes.api.cluster import AwayError, Cluster, RefusedError
from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.platforms.kubernetes.job.pod_log import ExcuseError, PodLog
from elastic.platforms.kubernetes.pods.containers import own_status
from elastic.platforms.kubernetes.pods.observation import replica_name, why_pending
from elastic.spec.roles import ROLES

logger = logging.getLogger(__name__)

_EXCUSE_PAUSES_S: Final = (0.5, 1.0, 2.0, 4.0, 8.0)
"""A busy node takes its time to link the log of a container that it has just begun."""

POLL_S: Final = 1.0
FAREWELL_S: Final = 10.0
"""How long pods of a job that has ended may go on writing before nobody waits for them.

Those that have ended may take as long to let more of their logs come.
"""


def read_logs(
    cluster: Cluster,
    pods: Sequence[Manifest],
    replicas: Sequence[str],
    tail: int | None,
    since_s: float | None = None,
) -> Iterator[LogLine]:
    """What the logs hold now, replica by replica, the master first.

    Raises:
        PlatformError: A replica was named that has no log, or nobody has one.
    """
    known = ", ".join(map(replica_name, in_order(pods))) or "none"
    for name in replicas:
        if not any(is_named(replica_name(pod), [name]) for pod in pods):
            raise PlatformError(f"{name!r} has no pod: name one of: {known}")
    if not pods:
        raise PlatformError("the job has no pods any more, and their logs went with them")
    wanted = selected(pods, replicas)
    for pod in wanted:
        if not pod["spec"].get("nodeName"):
            # Of a pod without a node the API server gives an empty log, as if it were silent.
            if replicas or len(wanted) == 1:
                raise PlatformError(
                    f"{replica_name(pod)} has written nothing yet: "
                    f"{why_pending(pod) or 'it waits for a node'}"
                )
            continue
        try:
            yield from _read_now(PodLog(cluster, pod, since_s, tail), previous=False)
        except RefusedError as error:
            if error.code == HTTPStatus.NOT_FOUND:
                continue
            if error.code != HTTPStatus.BAD_REQUEST:
                raise
            if replicas or len(wanted) == 1:
                raise PlatformError(
                    f"{replica_name(pod)} has written nothing yet: {error.detail}"
                ) from error


def read_previous_logs(
    cluster: Cluster,
    pods: Sequence[Manifest],
    last_words: Mapping[str, str],
    replicas: Sequence[str],
    tail: int | None,
    since_s: float | None = None,
) -> Iterator[LogLine]:
    """What is left of the lives before the present ones, the master's first.

    The log of a container that was restarted in place is whole. Of a worker that was replaced
    there are its last words, of which nobody knows when they were written.

    Raises:
        PlatformError: Nothing is left of what was asked for.
    """
    restarted = [pod for pod in selected(pods, replicas) if own_status(pod).get("restartCount", 0)]
    replaced = [name for name in sorted(last_words) if is_named(name, replicas)]
    if not restarted and not replaced:
        raise PlatformError(
            "nothing is left of an earlier life: no container was restarted in place, and no "
            "worker that was replaced had written why it ended; the log of a master holds all "
            "that its container has had: leave out --previous"
        )
    for pod in restarted:
        try:
            yield from _read_now(PodLog(cluster, pod, since_s, tail), previous=True)
        except RefusedError as error:
            # The node keeps one earlier container at most, and may need its disk.
            if error.code not in (HTTPStatus.NOT_FOUND, HTTPStatus.BAD_REQUEST):
                raise
    for name in replaced:
        lines = last_words[name].splitlines()
        for text in lines if tail is None else lines[max(0, len(lines) - tail) :]:
            yield LogLine(name, text)


def _read_now(log: PodLog, previous: bool) -> Iterator[LogLine]:
    for pause_s in _EXCUSE_PAUSES_S:
        try:
            yield from log.lines(previous=previous or None)
        except ExcuseError:
            time.sleep(pause_s)
        else:
            return
    yield from log.lines(previous=previous or None)


def selected(pods: Iterable[Manifest], names: Sequence[str]) -> list[Manifest]:
    """The pods that the names mean, the master's first."""
    return in_order(pod for pod in pods if is_named(replica_name(pod), names))


def in_order(pods: Iterable[Manifest]) -> list[Manifest]:
    """The master first, then by role and index."""
    ranks = {role: rank for rank, role in enumerate(ROLES)}

    def order(pod: Manifest) -> tuple[int, str, int]:
        role, _, index = replica_name(pod).rpartition("-")
        return ranks.get(role, len(ranks)), role, int(index) if index.isdecimal() else 0

    return sorted(pods, key=order)


def is_named(replica: str, names: Sequence[str]) -> bool:
    """Whether `worker-0` is meant by the names: itself, its role, or everybody."""
    return not names or replica in names or replica.rsplit("-", 1)[0] in names


class _Stream:
    """A thread that reads one life's log into a queue; started again until it has all."""

    def __init__(self, log: PodLog, lines: "queue.SimpleQueue[LogLine]") -> None:
        self._log = log
        self._lines = lines
        self._thread: threading.Thread | None = None
        self.is_complete = False
        self.is_live = True
        self.heard_s = -math.inf

    @property
    def is_reading(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def read(self, has_terminated: bool) -> None:
        """Read on in the background; whoever has terminated by now has written all."""
        self._thread = threading.Thread(
            target=self._run, args=(has_terminated,), name=self._log.replica, daemon=True
        )
        self._thread.start()

    def _run(self, has_terminated: bool) -> None:
        try:
            for line in self._log.lines(follow=True):
                self._lines.put(line)
                self.heard_s = time.monotonic()
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


def follow_logs(
    cluster: Cluster,
    look: Callable[[], tuple[Sequence[Manifest], bool]],
    replicas: Sequence[str],
    tail: int | None,
    since_s: float | None = None,
) -> Iterator[LogLine]:
    """What the logs hold and what is added, until the job has ended and all was read.

    Args:
        look: The job's pods as they are now, and whether the job has ended.

    Raises:
        PlatformError: See `LastLook`.
    """
    looks = LastLook(look)
    lines: queue.SimpleQueue[LogLine] = queue.SimpleQueue()
    streams: dict[tuple[str, int], _Stream] = {}
    first_tail, ended_s = tail, None
    while True:
        pods, has_ended = looks()
        if has_ended and ended_s is None:
            ended_s = time.monotonic()
        # What breaks off later is read no further, or one that never answers would hold us up.
        if ended_s is None or not _is_late(streams.values(), ended_s):
            for stream in streams.values():
                stream.is_live = False
            for pod in selected(pods, replicas):
                _read_on(PodLog(cluster, pod, since_s, first_tail), pod, streams, lines)
        first_tail = None
        yield from _until_next_look(lines)
        if ended_s is not None and _is_over(streams.values(), lines, ended_s):
            return


def _is_late(streams: Collection[_Stream], ended_s: float) -> bool:
    """Whether nobody waits any longer for what nobody has begun to read."""
    heard_s = max((s.heard_s for s in streams if not s.is_live), default=ended_s)
    return time.monotonic() - max(ended_s, heard_s) > FAREWELL_S


def _is_over(
    streams: Collection[_Stream], lines: "queue.SimpleQueue[LogLine]", ended_s: float
) -> bool:
    """Whether all that is waited for was read and given."""
    # Before the queue, into which one that has just ended may have put its last line.
    reading = [stream for stream in streams if stream.is_reading]
    if not lines.empty():
        return False
    if _is_late(streams, ended_s):
        return all(stream.is_live for stream in reading)
    return not reading and all(stream.is_complete for stream in streams)


def _read_on(
    log: PodLog,
    pod: Manifest,
    streams: dict[tuple[str, int], _Stream],
    lines: "queue.SimpleQueue[LogLine]",
) -> None:
    """Have a thread read `log`, that of the pod's present life, where there is more to read."""
    status = own_status(pod)
    state: Mapping[str, Any] = status.get("state") or {}
    if "running" not in state and "terminated" not in state:
        return
    life = (pod["metadata"]["uid"], status.get("restartCount", 0))
    if life not in streams:
        streams[life] = _Stream(log, lines)
        streams[life].read("terminated" in state)
    elif not streams[life].is_reading and not streams[life].is_complete:
        streams[life].read("terminated" in state)
    streams[life].is_live = "running" in state


def _until_next_look(lines: "queue.SimpleQueue[LogLine]") -> Iterator[LogLine]:
    deadline_s = time.monotonic() + POLL_S
    while (left_s := deadline_s - time.monotonic()) > 0:
        try:
            yield lines.get(timeout=left_s)
        except queue.Empty:
            return
