"""The log of one pod, as the API server gives it: line by line, no line twice."""

import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import dropwhile
from typing import Final

from elastic.errors import PlatformError
from elastic.platforms.base import LogLine
from elastic.platforms.kubernetes.api.cluster import Cluster
from elastic.platforms.kubernetes.api.resources import PODS, Manifest
from elastic.platforms.kubernetes.objects.names import CONTAINER
from elastic.platforms.kubernetes.pods.observation import replica_name

SILENCE_S: Final = 60.0
"""A quiet stream is opened anew after so long, in case its connection has died in silence."""
NUM_REMEMBERED: Final = 10_000
"""Time stamps of given lines that are kept, some 1.5 MB: what they span, a clock may be set back.

Those of the second that the next read begins with are kept however many they are.
"""
_STAMP: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")


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
    ) -> None:
        """Keep the parts.

        Args:
            cluster: Where the pod is.
            pod: Whose log it is.
            since_s: Seconds since the epoch; what was written before is left out.
            tail: How many lines there are at the most when the first read begins.
        """
        self.replica = replica_name(pod)
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
        query |= {"container": CONTAINER, "timestamps": "true"}
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
