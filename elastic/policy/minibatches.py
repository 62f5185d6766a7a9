"""What minibatches tell of a job: whose fault a failing one is, and what is odd about the first."""

import math
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
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


# What is odd about a job's first minibatches, and would be trained on without a word.


MIN_ALIKE: Final = 4
MIN_ONE_CLASS: Final = 4

MAX_LOOKED_AT: Final = 1000
"""Minibatches, where all so far have one class each: there may be no other class."""

NO_CHANCE: Final = math.log(1e-6)
"""Below it nobody draws the records of a minibatch like that."""


class Oddity(StrEnum):
    """What is told, as the kind of an event."""

    ONE_CLASS = "MinibatchesOfOneClass"
    ALIKE = "MinibatchesAlike"


ADVICE: Final = {
    Oddity.ONE_CLASS: (
        "warning: the first minibatches have one class of labels each, as where the data is sorted "
        "by class; what is trained forgets one class while it sees the next: have the records "
        "shuffled, with --shuffle records or in the data itself"
    ),
    Oddity.ALIKE: (
        "warning: the first minibatches are all the same, though they are of different records: "
        "look at what the reader gives and what dataset_fn makes of it"
    ),
}


@dataclass(frozen=True, slots=True)
class Looked:
    """What was seen of one minibatch.

    Attributes:
        epoch: The epoch it is of.
        place: Tells its records from the others of the epoch.
        num_examples: Examples in it.
        label: What all of its examples have as label; None where they differ or have none.
        digest: Of all that is in it; None where that was not asked for.
    """

    epoch: int
    place: Hashable
    num_examples: int
    label: Hashable | None
    digest: int | None = None


class FirstMinibatches:
    """Looks at one minibatch after the other until nothing can be odd any more.

    Of records in random order the first minibatch has examples of several classes, which ends it:
    only where each has one class the looking goes on, for another class to come, up to the end of
    the epoch.
    """

    def __init__(self) -> None:
        self._places: set[Hashable] = set()
        self._epoch: int | None = None
        self._digest: int | None = None
        self._is_alike = True
        self._has_classes = True
        self._num_looked_at = 0
        self._sizes: Counter[int] = Counter()
        self._examples: Counter[Hashable] = Counter()

    @property
    def is_done(self) -> bool:
        """Whether there is no need to look at another one."""
        return not (self._is_alike or self._has_classes)

    @property
    def wants_digest(self) -> bool:
        """Whether it takes more than the labels of the next one."""
        return self._is_alike

    def add(self, looked: Looked) -> Oddity | None:
        """Take one more minibatch; what all so far show is told once."""
        if self._epoch not in (None, looked.epoch):
            # Its records have been seen.
            self._end()
        self._epoch = looked.epoch
        if self.is_done or looked.place in self._places:
            # Where it is the same, it was computed again on a newer version.
            return None
        self._places.add(looked.place)
        oddity = None
        if self._are_alike(looked):
            oddity = Oddity.ALIKE
        elif self._are_one_class(looked):
            oddity = Oddity.ONE_CLASS
        if oddity is not None:
            self._end()
        return oddity

    def _end(self) -> None:
        self._is_alike = self._has_classes = False

    def _are_alike(self, looked: Looked) -> bool:
        if not self._is_alike:
            return False
        is_first = self._digest is None
        if looked.digest is None or not (is_first or looked.digest == self._digest):
            self._is_alike = False
            return False
        self._digest = looked.digest
        return len(self._places) >= MIN_ALIKE

    def _are_one_class(self, looked: Looked) -> bool:
        """Whether the minibatches of one class are too many for records in random order."""
        if not self._has_classes:
            return False
        self._num_looked_at += 1
        if looked.label is not None and looked.num_examples > 1:
            self._sizes[looked.num_examples] += 1
            self._examples[looked.label] += looked.num_examples
        num_one_class = self._sizes.total()
        is_mixed = 2 * num_one_class < self._num_looked_at
        if is_mixed or self._num_looked_at >= MAX_LOOKED_AT:
            self._has_classes = False
            return False
        if num_one_class < MIN_ONE_CLASS or len(self._examples) < 2:
            return False
        return self._log_chance(num_one_class) < NO_CHANCE

    def _log_chance(self, num_one_class: int) -> float:
        """At most so likely are that many minibatches of one class, at these shares of classes."""
        shares = [count / self._examples.total() for count in self._examples.values()]
        log_chance = math.log(math.comb(self._num_looked_at, num_one_class))
        for size, count in self._sizes.items():
            log_chance += count * math.log(sum(share**size for share in shares))
        return log_chance
