"""Whose fault it is that the user's code fails on a minibatch: a record's, or that of its size.

    whole ──fails──▶ whole, elsewhere ──fails──▶ in parts ──▶ a record fails alone: its fault
                                                    └───────▶ all parts run, the whole fails:
                                                              its size's fault

Nothing that is computed in parts is kept: a record that is skipped has to be known before, and a
job whose minibatches are too large is not to be trained by smaller ones without a word.
"""

from collections.abc import Generator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, TypeAlias

WHOLE_ATTEMPTS: Final = 2
"""How often a minibatch fails whole before it is computed in parts: once may be the machine's."""


class Retry(Enum):
    """How a range that failed is tried again."""

    WHOLE = auto()
    """As it is, by another worker where there is one."""
    IN_PARTS = auto()
    """In search of the record that fails; if none does, whole once more."""
    ALONE = auto()
    """One record, which failed by itself."""


@dataclass(frozen=True, slots=True)
class SizeFault:
    """No record is to blame: a minibatch failed whole, and all of its parts ran.

    Attributes:
        fails_at: Records of the minibatch.
        runs_at: The largest number of records that ran, below every one that failed.
        goes_on: Whether the job goes on with minibatches of `runs_at` records.
    """

    fails_at: int
    runs_at: int
    goes_on: bool


MAX_PAIRS: Final = 8
"""Neighbours that are computed together where every record fails alone: half of them would have
to be bad for none of these to run."""

Part: TypeAlias = tuple[int, int]
Search: TypeAlias = Generator[Part, bool, bool]
"""Gives parts to compute, is told whether they failed, and returns whether something did."""


class FaultSearch:
    """Which parts of a range that failed whole to compute, until it is known why it failed.

    Halves what fails, front to back, and ends with the first record that fails alone. No part is
    computed that is as large as one that failed: of a size that is too large, few are tried.

    Some models bear no record alone, as those with batch normalisation. A record is blamed for
    failing alone only where another one did not; else for failing beside one that does no harm.

    Attributes:
        culprit: The record that is to blame, once it is known.
        evidence: The part whose failure says so.
    """

    def __init__(self, start: int, end: int) -> None:
        """Begin with records `[start, end)`, which have failed together."""
        self.culprit: int | None = None
        self.evidence: Part = (start, end)
        self._start, self._end = start, end
        self._fails_at = end - start
        self._told = {(start, end): True}
        self._parts = self._look()
        self._part = next(self._parts, None)

    def next_part(self) -> Part | None:
        """The records to compute next; None once the answer is known."""
        return self._part

    def tell(self, start: int, end: int, *, has_failed: bool) -> None:
        """Say what became of the part asked for last."""
        self._told[start, end] = has_failed
        try:
            self._part = self._parts.send(has_failed)
        except StopIteration:
            self._part = None

    @property
    def runs_at(self) -> int:
        """The largest size that ran below every one that failed; where no record is to blame."""
        ran = [end - start for (start, end), has_failed in self._told.items() if not has_failed]
        return max((size for size in ran if size < self._fails_at), default=max(ran, default=1))

    def _look(self) -> Generator[Part, bool, None]:
        todo = [(self._start, self._end)]
        while todo and self.culprit is None:
            start, end = todo.pop()
            if end - start < self._fails_at:
                if not (yield from self._fails(start, end)):
                    continue
                if end - start == 1:
                    yield from self._judge(start)
                    continue
                self._fails_at = end - start
            middle = (start + end) // 2
            todo += [(middle, end), (start, middle)]

    def _fails(self, start: int, end: int) -> Search:
        if (start, end) not in self._told:
            yield start, end
        return self._told[start, end]

    def _judge(self, suspect: int) -> Generator[Part, bool, None]:
        """Blame a record that has failed alone, or not; all records before it do no harm."""
        other = suspect - 1 if suspect > self._start else suspect + 1
        if other == self._end or not (yield from self._any_fails_alone(other)):
            self._blame(suspect, (suspect, suspect + 1))
        elif suspect == self._start:
            yield from self._judge_pairs(suspect)
        elif (yield from self._fails(suspect - 1, suspect + 1)):
            self._blame(suspect, (suspect - 1, suspect + 1))

    def _blame(self, culprit: int, evidence: Part) -> None:
        self.culprit, self.evidence = culprit, evidence

    def _any_fails_alone(self, other: int) -> Search:
        """Whether no record ran alone yet, nor does another one than the suspect."""
        if any(e - s == 1 and not has_failed for (s, e), has_failed in self._told.items()):
            return False
        return (yield from self._fails(other, other + 1))

    def _judge_pairs(self, suspect: int) -> Generator[Part, bool, None]:
        """Blame the record before the first two that run together, if there is one."""
        for index in range(suspect, min(suspect + MAX_PAIRS, self._end - 1)):
            if not (yield from self._fails(index, index + 2)):
                if index > suspect:
                    self._blame(index - 1, (index - 1, index + 1))
                return
        self._blame(suspect, (suspect, suspect + 1))
