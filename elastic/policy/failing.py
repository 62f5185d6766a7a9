"""Whose fault it is that the user's code fails on a minibatch: a record's, or that of its size.

    whole ──fails──▶ whole, elsewhere ──fails──▶ in parts ──▶ a record fails alone: its fault
                                                    └───────▶ all parts run, the whole fails:
                                                              its size's fault

Nothing that is computed in parts is kept: a record that is skipped has to be known before, and a
job whose minibatches are too large is not to be trained by smaller ones without a word.

A record that fails alone and runs beside itself is not to blame either. Where it stands alone
because others of its minibatch were skipped, it counts so; where the job makes minibatches of one,
their size is to blame.
"""

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


TWICE: Final = 2
"""How often a record stands in a minibatch of its own where it fails alone. Some models bear no
single one, as those with batch normalisation; of a mean, two of it give what one would."""

Part: TypeAlias = tuple[int, int]


class FaultSearch:
    """Which parts of a range that failed whole to compute, until it is known why it failed.

    Halves what fails, front to back, and ends with the first record that fails by itself, alone and
    `TWICE`. No part is computed that is as large as one that failed: of a size that is too large,
    few are tried.

    Attributes:
        culprit: The record that is to blame, once it is known.
    """

    def __init__(self, start: int, end: int) -> None:
        """Begin with records `[start, end)`, which have failed together."""
        self.culprit: int | None = None
        self._fails_at = end - start
        self._ran: list[int] = []
        self._todo = [(start, end)]

    def next_part(self) -> Part | None:
        """The records to compute next; None once the answer is known."""
        while self._todo and self.culprit is None:
            start, end = self._todo.pop()
            if end - start < self._fails_at:
                return start, end
            middle = (start + end) // 2
            self._todo += [(middle, end), (start, middle)]
        return None

    def tell(self, start: int, end: int, *, has_failed: bool) -> None:
        """Say what became of the part asked for last."""
        size = end - start
        if not has_failed:
            self._ran.append(size)
        elif size == 1:
            self.culprit = start
        else:
            self._fails_at = size
            self._todo.append((start, end))

    @property
    def runs_at(self) -> int:
        """The largest size that ran below every one that failed; where no record is to blame."""
        below = [size for size in self._ran if size < self._fails_at]
        return max(below, default=max(self._ran, default=1))
