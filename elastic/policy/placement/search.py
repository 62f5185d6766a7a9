"""Finding the first of many rows that has so much in each column without looking at all."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import gt
from typing import Final

Needs = tuple[tuple[int, int], ...]
"""Column and amount, of those that are not 0."""

_MOST_SOUGHT: Final = 32

_NEAR: Final = 4


@dataclass(slots=True)
class _Sought:
    """How far some needs were searched for.

    Attributes:
        end: Rows before this one were looked at.
        able: Those of them that may have so much, in order; no others have.
        seen: So many of the rows that have grown were looked at again.
    """

    end: int
    able: list[int]
    seen: int


class MaxTree:
    """The rows as leaves of a tree whose inner nodes hold the most of each column below them.

    A search descends only where each column has enough somewhere below. Rows may have enough of one
    column here and of another there, so that it can go far in vain. So it is remembered how far
    some needs were searched for, and which rows before had enough or have grown since: who needs
    the same goes on from there, and who needs more starts there.
    """

    def __init__(self, rows: Iterable[Sequence[int]], num_columns: int) -> None:
        """The rows stay the caller's, who tells which of them have changed."""
        self._rows = list(rows)
        self._width = 1 << max(0, len(self._rows) - 1).bit_length()
        self._columns: list[list[int]] = []
        for column in range(num_columns):
            # Nothing needs less than 0, so that a leaf without a row is never found.
            unused = [-1] * (self._width - len(self._rows))
            most = [0] * self._width + [row[column] for row in self._rows] + unused
            for at in range(self._width - 1, 0, -1):
                left, right = most[2 * at], most[2 * at + 1]
                most[at] = left if left > right else right
            self._columns.append(most)
        self._sought: dict[Needs, _Sought] = {}
        self._grown: list[int] = []
        """Rows of which some amount has grown, in the order of that."""
        self._stale: set[int] = set()
        """Rows that have changed since the last search of the tree."""

    def changed(self, at: int, *, is_more: bool) -> None:
        """A row is not what it was.

        Rows change many times between two searches: what follows waits for the next one.

        Args:
            at: Which one.
            is_more: Whether any of its amounts has grown.
        """
        self._stale.add(at)
        if is_more:
            self._grown.append(at)

    def replace(self, at: int, row: Sequence[int]) -> None:
        """Have another row in the place of one."""
        before, self._rows[at] = self._rows[at], row
        if row != before:
            self.changed(at, is_more=any(map(gt, row, before)))

    def has(self, at: int, needs: Needs) -> bool:
        """Whether one row has all of it."""
        row = self._rows[at]
        # One of the inner loops of a plan: a generator would cost as much as the comparing.
        for column, amount in needs:  # noqa: SIM110
            if row[column] < amount:
                return False
        return True

    def first(self, needs: Needs) -> int | None:
        """The first row that has all of it."""
        sought = self._sought.get(needs)
        if sought is None:
            sought = self._begin(needs)
        if sought.seen < len(self._grown):
            self._look_again(sought, needs)
        able, gone = sought.able, 0
        if not able and sought.end == len(self._rows):
            return None
        # Most pods are like the one before, and go where that one went: no tree is needed.
        for at in able:
            if self.has(at, needs):
                break
            gone += 1
        if gone:
            del able[:gone]
        return able[0] if able else self._go_on(sought, needs)

    def all(self, needs: Needs) -> Iterator[int]:
        """Those rows that have all of it, in order; rows must not change meanwhile."""
        at = self.first(needs)
        sought = self._sought[needs]
        while at is not None:
            yield at
            at = self._next(sought, needs, at)

    def _next(self, sought: _Sought, needs: Needs, last: int) -> int | None:
        able = sought.able
        for place in range(bisect_right(able, last), len(able)):
            if self.has(able[place], needs):
                return able[place]
        return self._go_on(sought, needs)

    def _go_on(self, sought: _Sought, needs: Needs) -> int | None:
        """The first of the rows not looked at before that has all of it."""
        at = self._after(sought.end, needs)
        sought.end = len(self._rows) if at is None else at + 1
        if at is not None:
            sought.able.append(at)
        return at

    def _after(self, first: int, needs: Needs) -> int | None:
        """The first row from one on that has all of it."""
        end = len(self._rows)
        # Neighbours are often alike: of the next few one is found sooner than by the tree.
        near = min(first + _NEAR, end)
        for at in range(first, near):
            if self.has(at, needs):
                return at
        if near == end:
            return None
        self._renew()
        return next(self._from(near, needs), None)

    def _look_again(self, sought: _Sought, needs: Needs) -> None:
        """Learn of all that has grown since somebody asked."""
        able, grown = sought.able, self._grown[sought.seen :]
        sought.seen = len(self._grown)
        for at in set(grown):
            if at < sought.end and self.has(at, needs):
                place = bisect_left(able, at)
                if place == len(able) or able[place] != at:
                    able.insert(place, at)

    def _begin(self, needs: Needs) -> _Sought:
        """Start where less was searched for: rows that have not that have not more either."""
        wanted, least = dict(needs), _Sought(0, [], len(self._grown))
        for known, sought in self._sought.items():
            if sought.end > least.end and _is_within(known, wanted):
                least = sought
        if len(self._sought) == _MOST_SOUGHT:
            # Who was not asked for longest is the first to be forgotten.
            del self._sought[min(self._sought, key=lambda each: self._sought[each].seen)]
        self._sought[needs] = _Sought(least.end, list(least.able), least.seen)
        return self._sought[needs]

    def _renew(self) -> None:
        for row in self._stale:
            amounts, leaf = self._rows[row], row + self._width
            for most, amount in zip(self._columns, amounts, strict=True):
                if most[leaf] != amount:
                    most[leaf] = amount
                    _renew_above(most, leaf)
        self._stale.clear()

    def _from(self, start: int, needs: Needs) -> Iterator[int]:
        wanted = [(self._columns[column], amount) for column, amount in needs]
        # Where all of them together have not enough of something there is nothing to go through.
        if any(most[1] < amount for most, amount in wanted):
            return
        width = self._width
        at = start + width
        while True:
            for most, amount in wanted:
                if most[at] < amount:
                    break
            else:
                if at < width:
                    at *= 2
                    continue
                yield at - width
            # On to the next subtree on the right: up, as long as this is a right child.
            while at & 1:
                at >>= 1
                if not at:
                    return
            at += 1


def _renew_above(most: list[int], leaf: int) -> None:
    at = leaf >> 1
    while at:
        left, right = most[2 * at], most[2 * at + 1]
        new = left if left > right else right
        if most[at] == new:
            break
        most[at] = new
        at >>= 1


def _is_within(needs: Needs, wanted: dict[int, int]) -> bool:
    """Whether some needs are part of others."""
    # Another inner loop.
    for column, amount in needs:  # noqa: SIM110
        if wanted.get(column, 0) < amount:
            return False
    return True
