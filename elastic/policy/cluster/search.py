"""Finding the first of many rows that has so much in each column without looking at all."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

Needs = tuple[tuple[int, int], ...]
"""Column and amount, of those that are not 0."""

_MOST_KNOWN: Final = 16


class MaxTree:
    """The rows as leaves of a tree whose inner nodes hold the most of each column below them.

    A search descends only where each column has enough somewhere below. Rows may have enough of one
    column here and of another there, so that it can go far in vain. So it is remembered how far
    some needs were searched for: who needs the same finds the same row again at once, as long as it
    has enough, and who needs more starts there.
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
        self._known: dict[Needs, int] = {}
        """Before which row there is none that has so much."""
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
            for needs, first in self._known.items():
                if first > at and self.has(at, needs):
                    self._known[needs] = at

    def replace(self, at: int, row: Sequence[int]) -> None:
        """Have another row in the place of one."""
        before, self._rows[at] = self._rows[at], row
        self.changed(at, is_more=any(new > old for new, old in zip(row, before, strict=True)))

    def _renew(self) -> None:
        for row in self._stale:
            amounts, leaf = self._rows[row], row + self._width
            for most, amount in zip(self._columns, amounts, strict=True):
                if most[leaf] != amount:
                    most[leaf] = amount
                    _renew_above(most, leaf)
        self._stale.clear()

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
        at = self._known.get(needs)
        # Most pods are like the one before, and go where that one went: no tree is needed.
        if at is not None:
            if at == len(self._rows):
                return None
            if self.has(at, needs):
                return at
        return next(self.all(needs), None)

    def all(self, needs: Needs) -> Iterator[int]:
        """Those rows that have all of it, in order; rows must not change meanwhile."""
        start, is_first = self._start(needs), True
        if start >= len(self._rows):
            return
        self._renew()
        for at in self._from(start, needs):
            if is_first:
                self._learn(at, needs)
            is_first = False
            yield at
        if is_first:
            self._learn(len(self._rows), needs)

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

    def _start(self, needs: Needs) -> int:
        """Before this row there is none that has so much."""
        if needs in self._known:
            return self._known[needs]
        wanted, start = dict(needs), 0
        for known, first in self._known.items():
            if first > start and _is_within(known, wanted):
                start = first
        return start

    def _learn(self, first: int, needs: Needs) -> None:
        """Keep the farthest; what follows from the new one is the first to be forgotten."""
        self._known[needs] = first
        if len(self._known) > _MOST_KNOWN:
            kept = [
                (other, known)
                for known, other in self._known.items()
                if known == needs or other > first or not _is_within(needs, dict(known))
            ]
            self._known = {known: other for other, known in sorted(kept)[-_MOST_KNOWN:]}


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
