"""Finding the first of many rows that has so much in each column without looking at all."""

from collections.abc import Iterator, Sequence
from typing import Final

Needs = tuple[tuple[int, int], ...]
"""Column and amount, of those that are not 0."""

_MOST_KNOWN: Final = 8


class MaxTree:
    """The rows as leaves of a tree whose inner nodes hold the most of each column below them.

    A search descends only where each column has enough somewhere below. Rows may have enough of one
    column here and of another there, so that it can go far in vain. So it is remembered how far
    some needs were searched for, and who needs as much or more starts there.
    """

    def __init__(self, rows: Sequence[Sequence[int]], num_columns: int) -> None:
        self._num_rows = len(rows)
        self._width = 1 << max(0, len(rows) - 1).bit_length()
        self._columns: list[list[int]] = []
        for column in range(num_columns):
            # Nothing needs less than 0, so that a leaf without a row is never found.
            leaves = [row[column] for row in rows] + [-1] * (self._width - len(rows))
            most = [0] * self._width + leaves
            for at in range(self._width - 1, 0, -1):
                most[at] = max(most[2 * at], most[2 * at + 1])
            self._columns.append(most)
        self._known: list[tuple[int, Needs]] = []
        """Needs that no row has before that one."""
        self._stale: list[set[int]] = [set() for _ in self._columns]
        """By column, the nodes above values that were changed since the last search."""

    def set(self, at: int, column: int, amount: int) -> None:
        """Change one value.

        Values change many times between two searches: what follows waits for the next one.
        """
        most = self._columns[column]
        leaf = at + self._width
        is_more = amount > most[leaf]
        most[leaf] = amount
        self._stale[column].add(leaf >> 1)
        if is_more and self._known:
            self._known = [
                (at, needs) if first > at and self.has(at, needs) else (first, needs)
                for first, needs in self._known
            ]

    def _renew(self) -> None:
        for most, stale in zip(self._columns, self._stale, strict=True):
            for changed in stale:
                at = changed
                while at:
                    left, right = most[2 * at], most[2 * at + 1]
                    new = left if left > right else right
                    if most[at] == new:
                        break
                    most[at] = new
                    at >>= 1
            stale.clear()

    def has(self, at: int, needs: Needs) -> bool:
        """Whether one row has all of it."""
        at += self._width
        # One of the two inner loops of a plan: a generator would cost as much as the comparing.
        for column, amount in needs:  # noqa: SIM110
            if self._columns[column][at] < amount:
                return False
        return True

    def all(self, needs: Needs) -> Iterator[int]:
        """Those rows that have all of it, in order; rows must not change meanwhile."""
        self._renew()
        if not all(self._columns[column][1] >= amount for column, amount in needs):
            return
        start, is_first = self._start(needs), True
        for at in self._from(start, needs):
            if is_first and at > start:
                self._learn(at, needs)
            is_first = False
            yield at
        if is_first:
            self._learn(self._num_rows, needs)

    def _from(self, start: int, needs: Needs) -> Iterator[int]:
        if start >= self._num_rows:
            return
        wanted = [(self._columns[column], amount) for column, amount in needs]
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
        wanted, start = dict(needs), 0
        for first, known in self._known:
            if first > start and _is_within(known, wanted):
                start = first
        return start

    def _learn(self, first: int, needs: Needs) -> None:
        """Keep the farthest; what follows from the new one is needed no more."""
        kept = [
            (other, known)
            for other, known in self._known
            if other > first or not _is_within(needs, dict(known))
        ]
        self._known = sorted([*kept, (first, needs)])[-_MOST_KNOWN:]


def _is_within(needs: Needs, wanted: dict[int, int]) -> bool:
    """Whether some needs are part of others."""
    # The other inner loop.
    for column, amount in needs:  # noqa: SIM110
        if wanted.get(column, 0) < amount:
            return False
    return True
