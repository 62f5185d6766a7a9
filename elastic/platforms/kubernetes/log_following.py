"""Follows the logs of a job's pods as they grow, and as pods come and go."""

import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from elastic.platforms.base import LastLook, LogLine
from elastic.platforms.kubernetes.connection import AwayError, Cluster, RefusedError
from elastic.platforms.kubernetes.log_selection import selected
from elastic.platforms.kubernetes.names import Manifest
from elastic.platforms.kubernetes.own_container import own_status
from elastic.platforms.kubernetes.pod_log import ExcuseError, PodLog

logger = logging.getLogger(__name__)

POLL_S: Final = 1.0
FAREWELL_S: Final = 10.0
"""How long pods of a job that has ended may go on writing before nobody waits for them.

Those that have ended may take as long to let more of their logs come.
"""


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
