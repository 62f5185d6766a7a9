"""Where a job's time goes: an account in whole milliseconds that has no gap and no overlap."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from elastic.spec.status import JobPhase, JobStatus
from elastic.spec.status.time_split import TimeCategory, TimeSplit

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
