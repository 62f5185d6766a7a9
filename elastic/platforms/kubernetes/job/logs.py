"""Reads what the logs of a job's pods hold now, or follows them as pods come and go."""

import logging
import math
import queue
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from itertools import dropwhile
from typing import Any, Final

from elastic.errors import PlatformError
from elastic.platforms.base import LastLook, LogLine
from elastic.platforms.kubernetes.api.cluster import AwayError, Cluster, RefusedError
from elastic.platforms.kubernetes.api.resources import PODS, Manifest
from elastic.platforms.kubernetes.objects.names import CONTAINER
from elastic.platforms.kubernetes.pods import replica_name, status_of, why_pending
from elastic.spec.roles import ROLES

SILENCE_S: Final = 60.0
"""A quiet stream is opened anew after so long, in case its connection has died in silence."""
NUM_REMEMBERED: Final = 10_000
"""Time stamps of given lines that are kept, some 1.5 MB: what they span, a clock may be set back.

Those of the second that the next read begins with are kept however many they are.
"""
_STAMP: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")

logger = logging.getLogger(__name__)

_EXCUSE_PAUSES_S: Final = (0.5, 1.0, 2.0, 4.0, 8.0)
"""A busy node takes its time to link the log of a container that it has just begun."""

POLL_S: Final = 1.0

FAREWELL_S: Final = 10.0
"""How long pods of a job that has ended may go on writing before nobody waits for them.

Those that have ended may take as long to let more of their logs come.
"""


@dataclass(frozen=True, slots=True)
class Manner:
    """How the pods of one sort of job are called, and which of their logs is meant.

    Attributes:
        replica: Of a pod, the name that people know it by: its role, `-`, and what tells it from
            others of the role.
        container: Of a pod, the container whose log is read.
        roles: In the order in which they are read.
    """

    replica: Callable[[Manifest], str]
    container: Callable[[Manifest], str]
    roles: Sequence[str]


OWN: Final = Manner(replica_name, lambda _: CONTAINER, tuple(ROLES))
"""Of elastic's own jobs."""


class ExcuseError(PlatformError):
    """The node has sent a sentence of its own in the place of a log, as it does without an error.

    It has just removed the container, or not yet linked its file, or may open no more files.
    """


class PodLog:
    """The log of one life of a pod's container, read on from where the last read ended."""

    def __init__(
        self,
        cluster: Cluster,
        pod: Manifest,
        since_s: float | None = None,
        tail: int | None = None,
        manner: Manner = OWN,
    ) -> None:
        """Keep the parts.

        Args:
            cluster: Where the pod is.
            pod: Whose log it is.
            since_s: Seconds since the epoch; what was written before is left out.
            tail: How many lines there are at the most when the first read begins.
            manner: Of the pod's job.
        """
        self.replica = manner.replica(pod)
        self._container = manner.container(pod)
        self._cluster = cluster
        metadata = pod["metadata"]
        self._path = PODS.path(metadata["namespace"], metadata["name"], "log")
        self._last_stamp = ""
        self._latest_stamp = ""
        self._tail_stamp = ""
        # How many lines of each stamp were given, in the order in which they came.
        self._num_given: dict[str, float] = {}
        self._since = "" if since_s is None else _stamp(since_s)
        self._tail = tail

    def lines(self, **options: object) -> Iterator[LogLine]:
        """The lines that no earlier call has given.

        Args:
            options: Of the API: follow, previous; None leaves one out.

        Raises:
            RefusedError: There is no log; `code` is 400 where the container has not begun.
            AwayError: The API server is away, or with `follow`: nothing came for a while.
            ExcuseError: The node cannot read the log, which may pass.
        """
        query = {name: str(value).lower() for name, value in options.items() if value is not None}
        # Without a name the API server refuses where the pod has another container.
        query |= {"container": self._container, "timestamps": "true"}
        since, tail = self._since, None if self._last_stamp else self._tail
        if self._last_stamp or since:
            query["sinceTime"] = _whole_second(self._last_stamp or since)
        if tail is not None:
            query["tailLines"] = str(tail)
        if tail == 0:
            # No line will tell the next read where this one began.
            self._tail, self._since = None, max(since, _stamp(self._cluster.now_s()), key=_order)
        last, latest, num_left = self._last_stamp, self._latest_stamp, self._num_given.copy()
        for stamp, text in dropwhile(self._is_before_tail, self._stamped(query)):
            # What a read repeats comes before what is new, so of equal stamps the first are known.
            if num_left.get(stamp, 0) > 0:
                num_left[stamp] -= 1
                continue
            if tail is not None and not self._tail_stamp:
                # Nobody knows how many lines of the same time stood before a tail.
                self._tail_stamp, self._num_given[stamp] = stamp, math.inf
            # A forgotten line from before the clock was set back: were the stream to end here, a
            # read from its time on would lack what is new.
            is_repeated = num_left.get(last, 0) > 0 and (
                _order(last) < _order(stamp) <= _order(latest)
            )
            self._remember(stamp, is_last=not is_repeated)
            if since and _order(stamp) < _order(since):
                continue
            yield LogLine(self.replica, text.removesuffix("\r"), stamp)

    def _stamped(self, query: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        for raw in self._cluster.lines(self._path, query, read_timeout_s=SILENCE_S):
            stamp, _, text = raw.decode("utf-8", errors="replace").partition(" ")
            if not _STAMP.match(stamp):
                raise ExcuseError(
                    f"{self.replica}: the node cannot give its log now: {stamp} {text}"
                )
            yield stamp, text

    def _is_before_tail(self, line: tuple[str, str]) -> bool:
        """Tells the lines that the API gives only because it takes no fraction of a second."""
        stamp, first = line[0], self._tail_stamp
        return stamp[:19] == first[:19] and _order(stamp) < _order(first)

    def _remember(self, stamp: str, *, is_last: bool) -> None:
        """Count a line, by its exact stamp.

        No comparison of stamps tells what a read repeats: CRI-O gives the same one to all lines
        that were written at once, and a node whose clock was set back gives earlier ones, so that
        a read from these on has lines with later stamps first. Nor does the mere number of lines:
        those of a rotated file are gone.
        """
        if is_last:
            self._last_stamp = stamp
        self._latest_stamp = max(self._latest_stamp, stamp, key=_order)
        self._num_given[stamp] = self._num_given.get(stamp, 0) + 1
        while len(self._num_given) > NUM_REMEMBERED:
            oldest = next(iter(self._num_given))
            if oldest[:19] == self._last_stamp[:19]:
                if is_last or len(self._num_given) <= 2 * NUM_REMEMBERED:
                    break
                # Its line has left with a rotated file: nothing repeats it, and all would be kept.
                self._last_stamp = stamp
            del self._num_given[oldest]


def _stamp(moment_s: float) -> str:
    """A moment as the API server writes it."""
    return datetime.fromtimestamp(moment_s, UTC).isoformat(timespec="microseconds")[:26] + "Z"


def _order(stamp: str) -> tuple[str, str]:
    """Sorts time stamps whose fractions of a second have lost their last zeros."""
    return stamp[:19], stamp[20:].rstrip("Z").ljust(9, "0")


def _whole_second(stamp: str) -> str:
    """The stamp without its fraction, as the API takes times."""
    zone = stamp[19:].lstrip(".0123456789")
    return stamp[:19] + (zone or "Z")


def read_logs(
    cluster: Cluster,
    pods: Sequence[Manifest],
    replicas: Sequence[str],
    tail: int | None,
    since_s: float | None = None,
    manner: Manner = OWN,
) -> Iterator[LogLine]:
    """What the logs hold now, replica by replica, the master first.

    Raises:
        PlatformError: A replica was named that has no log, or nobody has one.
    """
    known = ", ".join(map(manner.replica, in_order(pods, manner))) or "none"
    for name in replicas:
        if not any(is_named(manner.replica(pod), [name]) for pod in pods):
            raise PlatformError(f"{name!r} has no pod: name one of: {known}")
    if not pods:
        raise PlatformError("the job has no pods any more, and their logs went with them")
    wanted = selected(pods, replicas, manner)
    for pod in wanted:
        if not pod["spec"].get("nodeName"):
            # Of a pod without a node the API server gives an empty log, as if it were silent.
            if replicas or len(wanted) == 1:
                raise PlatformError(
                    f"{manner.replica(pod)} has written nothing yet: "
                    f"{why_pending(pod) or 'it waits for a node'}"
                )
            continue
        try:
            yield from _read_now(PodLog(cluster, pod, since_s, tail, manner), previous=False)
        except RefusedError as error:
            if error.code == HTTPStatus.NOT_FOUND:
                continue
            if error.code != HTTPStatus.BAD_REQUEST:
                raise
            if replicas or len(wanted) == 1:
                raise PlatformError(
                    f"{manner.replica(pod)} has written nothing yet: {error.detail}"
                ) from error


def read_previous_logs(
    cluster: Cluster,
    pods: Sequence[Manifest],
    last_words: Mapping[str, str],
    replicas: Sequence[str],
    tail: int | None,
    since_s: float | None = None,
    manner: Manner = OWN,
) -> Iterator[LogLine]:
    """What is left of the lives before the present ones, the master's first.

    The log of a container that was restarted in place is whole. Of a worker that was replaced
    there are its last words, of which nobody knows when they were written.

    Raises:
        PlatformError: Nothing is left of what was asked for.
    """
    restarted = [
        pod
        for pod in selected(pods, replicas, manner)
        if _status_of(pod, manner).get("restartCount", 0)
    ]
    replaced = [name for name in sorted(last_words) if is_named(name, replicas)]
    if not restarted and not replaced:
        raise PlatformError(
            "nothing is left of an earlier life: no container was restarted in place, and no "
            "worker that was replaced had written why it ended; the log of a master holds all "
            "that its container has had: leave out --previous"
        )
    for pod in restarted:
        try:
            yield from _read_now(PodLog(cluster, pod, since_s, tail, manner), previous=True)
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


def selected(
    pods: Iterable[Manifest], names: Sequence[str], manner: Manner = OWN
) -> list[Manifest]:
    """The pods that the names mean, the master's first."""
    return in_order((pod for pod in pods if is_named(manner.replica(pod), names)), manner)


def in_order(pods: Iterable[Manifest], manner: Manner = OWN) -> list[Manifest]:
    """The master first, then by role and index."""
    ranks = {role: rank for rank, role in enumerate(manner.roles)}

    def order(pod: Manifest) -> tuple[int, str, int]:
        role, _, index = manner.replica(pod).rpartition("-")
        return ranks.get(role, len(ranks)), role, int(index) if index.isdecimal() else 0

    return sorted(pods, key=order)


def is_named(replica: str, names: Sequence[str]) -> bool:
    """Whether `worker-0` is meant by the names: itself, its role, or everybody."""
    return not names or replica in names or replica.rsplit("-", 1)[0] in names


def _status_of(pod: Manifest, manner: Manner) -> dict[str, Any]:
    """What the node has told of the container whose log is meant."""
    return status_of(pod, manner.container(pod))


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
    manner: Manner = OWN,
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
            for pod in selected(pods, replicas, manner):
                log = PodLog(cluster, pod, since_s, first_tail, manner)
                _read_on(log, pod, _status_of(pod, manner), streams, lines)
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
    status: Mapping[str, Any],
    streams: dict[tuple[str, int], _Stream],
    lines: "queue.SimpleQueue[LogLine]",
) -> None:
    """Have a thread read `log`, that of the pod's present life, where there is more to read."""
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
