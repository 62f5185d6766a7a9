"""How fast a job was at each size that it has had, and what a change of its size costs it.

Who chooses sizes for a cluster learns from it. Told are means over whole windows, so that there is
news every ten seconds at the most.

    settling ──▶ measuring ──▶ measuring …
        ▲            │
        └────────────┘ another size
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

WINDOW_S: Final = 10.0
"""What a speed is the mean of, and how long a job settles after a change."""

NEWEST: Final = 0.5
"""The weight of the newest measurement, against all that came before."""

MOST_SIZES: Final = 32
"""Sizes that are remembered; the one that was measured longest ago goes first."""

Size: TypeAlias = tuple[int, int, int | None]
"""Workers, the nodes that they are on, and the records of an update where those are chosen; 0 nodes
where nobody knows."""


@dataclass(slots=True)
class _Window:
    """A stretch of time in which the size stays."""

    began_s: float
    records: int


@dataclass(slots=True)
class _Change:
    """What is known of the newest change of size, until what it cost can be told.

    Attributes:
        before: Samples a second before it.
        windows: Of the time in which the job settled: how long each was, and its records.
    """

    before: float
    windows: list[tuple[float, int]] = field(default_factory=list)


@dataclass(slots=True)
class SizeSpeeds:
    """See the module.

    Attributes:
        speeds: Samples a second by size; what was measured last is last.
        rescale_s: Seconds of work that a change costs; None before one was measured.
    """

    speeds: dict[Size, float] = field(default_factory=dict)
    rescale_s: float | None = None
    _size: Size | None = None
    _window: _Window | None = None
    _change: _Change | None = None
    _is_settling: bool = False

    @classmethod
    def of(cls, speeds: Iterable[tuple[Size, float]], rescale_s: float | None) -> "SizeSpeeds":
        """Go on from what was told before."""
        return cls(dict(speeds), rescale_s)

    @property
    def told(self) -> Mapping[Size, float]:
        """What was measured."""
        return self.speeds

    def look(self, now_s: float, size: Size | None, records: int) -> bool:
        """Take note of how far the job has come; whether a speed has been measured by it.

        Args:
            now_s: By a clock that is not set back.
            size: Who works on the job's own records; None while nobody does.
            records: Those that have counted so far.
        """
        if size is None or not size[0]:
            self._window = None
            return False
        if size != self._size:
            self._begin(now_s, size, records)
        window = self._window
        if window is None or records < window.records:
            # After a pause, or a master that went back to its cut.
            self._window = _Window(now_s, records)
        elif now_s - window.began_s >= WINDOW_S:
            return self._end(window, now_s, records)
        return False

    def _begin(self, now_s: float, size: Size, records: int) -> None:
        before = None if self._size is None else self.speeds.get(self._size)
        # A size that did not last was never measured: two changes are told as one.
        is_other_batch = self._size is not None and self._size[:2] == size[:2]
        if before is not None and not self._is_settling and not is_other_batch:
            self._change = _Change(before)
        elif self._change is not None and self._window is not None:
            self._settle(self._window, now_s, records)
        self._size, self._is_settling = size, True
        self._window = _Window(now_s, records)

    def _end(self, window: _Window, now_s: float, records: int) -> bool:
        """A window is over, another one of the same size begins; whether its speed counts."""
        self._window = _Window(now_s, records)
        if self._is_settling:
            self._settle(window, now_s, records)
            # Where nothing has counted yet, the job has not settled.
            self._is_settling = records == window.records
            return False
        assert self._size is not None, "windows are of a size"
        measured = (records - window.records) / (now_s - window.began_s)
        known = self.speeds.pop(self._size, None)
        self.speeds[self._size] = _mixed(known, measured)
        while len(self.speeds) > MOST_SIZES:
            del self.speeds[next(iter(self.speeds))]
        if self._change is not None:
            self._tell(self._change, measured)
            self._change = None
        return True

    def _settle(self, window: _Window, now_s: float, records: int) -> None:
        if self._change is not None:
            done = max(0, records - window.records)
            self._change.windows.append((now_s - window.began_s, done))

    def _tell(self, change: _Change, after: float) -> None:
        """What is missing of the work that the smaller of both sizes would have done meanwhile."""
        usual = min(change.before, after)
        if usual > 0:
            lost_s = sum(max(0.0, took_s - done / usual) for took_s, done in change.windows)
            self.rescale_s = _mixed(self.rescale_s, lost_s)


def _mixed(known: float | None, measured: float) -> float:
    return measured if known is None else NEWEST * measured + (1 - NEWEST) * known
