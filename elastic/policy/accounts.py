"""What is kept of a job: where its time went, its speed at each size, what outlasts its end."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Final, TypeAlias

from elastic.spec.platforms import JobKind
from elastic.spec.status import NO_MASTERS, JobPhase, JobStatus, Progress, TimeCategory, TimeSplit

STALL_S: Final = 10.0
"""Training that counts nothing for so long stands still."""
STALL_STEPS: Final = 5.0
"""Unless so many typical steps take longer."""

_OF_PHASE: Final = {
    JobPhase.PENDING: TimeCategory.QUEUE,
    JobPhase.STARTING: TimeCategory.START,
    JobPhase.RECOVERING: TimeCategory.RECOVER,
    JobPhase.SUSPENDED: TimeCategory.STALL,
}


@dataclass(frozen=True, slots=True)
class Moment:
    """What a master sees of its job.

    Attributes:
        is_paused: No worker is wanted for now.
        is_trained: Every record has counted.
        is_evaluating: A round of evaluation is open.
        is_computing: A worker has a task of the training records in work.
        last_contribution_s: When a gradient counted last.
        typical_step_s: None before anybody knows.
    """

    now_s: float
    phase: JobPhase
    is_paused: bool = False
    is_trained: bool = False
    is_evaluating: bool = False
    is_computing: bool = False
    last_contribution_s: float = 0.0
    typical_step_s: float | None = None


class TimeAccount:
    """Totals by category, and one interval that is open: what the job does now.

    Whatever is entered, the totals up to a moment add up to the time since the account began.
    """

    def __init__(self, begun_s: float, split: TimeSplit | None = None) -> None:
        """Begin an account, or go on with one.

        Args:
            begun_s: Where the account begins, unless `split` says where it has got to.
            split: What an earlier life of the master has counted.
        """
        split = split or TimeSplit()
        self._totals_ms = _totals_ms(split)
        self._since_ms = _ms(begun_s if split.until_s is None else split.until_s)
        self.current = split.current

    @property
    def since_s(self) -> float:
        """When the open interval began."""
        return self._since_ms / 1000

    def enter(self, category: TimeCategory, at_s: float) -> None:
        """Close the open interval at a moment, from which on the time goes to `category`.

        A moment before the interval began counts as its beginning: clocks are set back.
        """
        at_ms = max(_ms(at_s), self._since_ms)
        self._totals_ms[self.current] += at_ms - self._since_ms
        self._since_ms, self.current = at_ms, category

    def look(self, moment: Moment) -> None:
        """Enter what the job does as of now, or has done since it fell silent."""
        category, at_s = _judge(self.current, self.since_s, moment)
        if category is not self.current:
            self.enter(category, at_s)

    def split(self, until_s: float) -> TimeSplit:
        """The totals, the open interval up to now included."""
        until_ms = max(_ms(until_s), self._since_ms)
        totals_ms = dict(self._totals_ms)
        totals_ms[self.current] += until_ms - self._since_ms
        return _split(totals_ms, self.current, until_ms)


def split_at(status: JobStatus, now_s: float) -> TimeSplit:
    """A job's time as of now, or of its end, as one sees it who knows when it was submitted.

    What its master has not told of any more was spent on coming back, unless none had begun. A
    master may not know when its job was submitted: the rest of the lifetime was spent in the queue.
    """
    split = status.time_split
    begun_s = status.submitted_s if status.submitted_s is not None else status.started_s
    is_untold = split.until_s is None and status.started_s is not None
    if begun_s is None or is_untold:
        # A master of an older version tells nothing of its time.
        return split
    until_ms = max(_ms(now_s if status.ended_s is None else status.ended_s), _ms(begun_s))
    totals_ms = _totals_ms(split)
    current = _untold(status)
    if split.until_s is not None:
        totals_ms[current] += max(0, until_ms - _ms(split.until_s))
    others_ms = sum(totals_ms.values()) - totals_ms[TimeCategory.QUEUE]
    lifetime_ms = until_ms - _ms(begun_s)
    totals_ms[TimeCategory.QUEUE] = max(0, lifetime_ms - others_ms)
    # Two clocks may disagree on a lifetime; what was counted beyond it was not lived.
    surplus_ms = max(0, others_ms - lifetime_ms)
    for category in TimeCategory:
        taken_ms = min(surplus_ms, totals_ms[category]) if surplus_ms else 0
        totals_ms[category] -= taken_ms
        surplus_ms -= taken_ms
    return _split(totals_ms, current, until_ms)


def as_of(status: JobStatus, now_s: float) -> JobStatus:
    """The same status with its time as of now, or of its end."""
    return status.model_copy(update={"time_split": split_at(status, now_s)})


def _untold(status: JobStatus) -> TimeCategory:
    """What the time goes to that no master has told of."""
    current = status.time_split.current
    if current is TimeCategory.QUEUE:
        return current
    if status.phase.is_final or status.phase is JobPhase.RECOVERING:
        return TimeCategory.RECOVER
    return current


def _judge(current: TimeCategory, since_s: float, moment: Moment) -> tuple[TimeCategory, float]:
    """What the job does, and since when."""
    now_s = moment.now_s
    if moment.is_paused and moment.phase is JobPhase.RECOVERING:
        return TimeCategory.QUEUE, now_s
    if moment.phase in _OF_PHASE:
        return _OF_PHASE[moment.phase], now_s
    if moment.is_evaluating and not moment.is_computing:
        return TimeCategory.EVALUATE, now_s
    if moment.is_trained:
        return TimeCategory.STALL, now_s
    last_s = moment.last_contribution_s
    if current is TimeCategory.STALL and last_s <= since_s:
        return current, now_s
    if current is not TimeCategory.TRAIN:
        return TimeCategory.TRAIN, now_s
    silent_since_s = max(since_s, last_s)
    limit_s = max(STALL_S, STALL_STEPS * (moment.typical_step_s or 0.0))
    if now_s - silent_since_s > limit_s:
        return TimeCategory.STALL, silent_since_s
    return current, now_s


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _totals_ms(split: TimeSplit) -> dict[TimeCategory, int]:
    return {category: _ms(getattr(split, f"{category}_s")) for category in TimeCategory}


def _split(totals_ms: Mapping[TimeCategory, int], current: TimeCategory, ms: int) -> TimeSplit:
    seconds = {f"{category}_s": total / 1000 for category, total in totals_ms.items()}
    return TimeSplit(**seconds, current=current, until_s=ms / 1000)


# How fast a job was at each size that it has had, and what a change of its size costs it.
#
# Who chooses sizes for a cluster learns from it. Told are means over whole windows, so that there
# is news every ten seconds at the most.
#
#     settling ──▶ measuring ──▶ measuring …
#         ▲            │
#         └────────────┘ another size


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


# What is kept of a job that has ended: what a resumed one goes on with, which ones may go.


def resumed(status: JobStatus, submitted_s: float | None, kind: JobKind) -> JobStatus:
    """The status until the new master tells its own: what was reached stays, how it ended does not.

    The account of its time goes on too, from the first submission.

    Args:
        status: Of the job that has ended.
        submitted_s: When that was submitted, as far as its platform knows; a master may not.
        kind: Of the new one. What a job of another kind has counted, it does not compute again.
    """
    waits = {"current": TimeCategory.QUEUE}
    return status.model_copy(
        update={
            "phase": JobPhase.PENDING,
            "reason": "",
            "message": "",
            "ended_s": None,
            # Who resumes a job has mended what failed it.
            "master_history": NO_MASTERS,
            "workers": (),
            "progress": status.progress if status.kind is kind else Progress(),
            "submitted_s": submitted_s if status.submitted_s is None else status.submitted_s,
            "time_split": status.time_split.model_copy(update=waits),
        }
    )


def ended_s(status: JobStatus) -> float | None:
    """When a job has ended; None for one that goes on, or where nobody knows.

    An end that no master has told of is dated by what was heard of the job last.
    """
    if not status.phase.is_final:
        return None
    return status.ended_s or status.updated_s or status.submitted_s


def ended_before(statuses: Sequence[JobStatus], moment_s: float) -> list[JobStatus]:
    """The jobs that have ended by then; both clocks are the platform's."""
    return [s for s in statuses if (at_s := ended_s(s)) is not None and at_s <= moment_s]


def only_here(status: JobStatus, own_folder: PurePath, has_kept: bool) -> str:
    """What only the job's own folder has, for people; empty where nothing is lost with it.

    Args:
        status: Of a job that has ended.
        own_folder: Where the job keeps what its user has named no place for.
        has_kept: Whether something is there that another job could go on from.
    """
    if not has_kept or not status.kind.can_resume:
        return ""
    if status.phase is not JobPhase.SUCCEEDED:
        return "what --resume goes on from"
    named = (status.export, status.checkpoint, status.predictions)
    is_own = [PurePath(path).is_relative_to(own_folder) for path in named if path]
    # A model is somewhere even where nobody tells where; predictions may have gone to user code.
    is_result_here = any(is_own) or status.kind is JobKind.TRAIN
    return "results that are nowhere else" if is_result_here and all(is_own) else ""
