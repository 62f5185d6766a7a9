"""A set of integers kept as disjoint, sorted, half-open intervals."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence


class IntervalSet:
    """Grows by whole intervals; adding what is there already is refused, not merged in silence."""

    __slots__ = ("_ends", "_starts", "size")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self.size = 0

    @classmethod
    def from_lists(cls, intervals: Iterable[Sequence[int]]) -> "IntervalSet":
        """Rebuild a set from `as_lists`.

        Raises:
            ValueError: Two intervals overlap.
        """
        result = cls()
        for start, end in intervals:
            if not result.add(start, end):
                raise ValueError(f"interval [{start}, {end}) overlaps another")
        return result

    def add(self, start: int, end: int) -> bool:
        """Add `[start, end)`; False, and nothing changed, if any of it is there already."""
        at = bisect_right(self._starts, start)
        if at > 0 and self._ends[at - 1] > start:
            return False
        if at < len(self._starts) and self._starts[at] < end:
            return False
        joins_left = at > 0 and self._ends[at - 1] == start
        joins_right = at < len(self._starts) and self._starts[at] == end
        if joins_left and joins_right:
            self._ends[at - 1] = self._ends.pop(at)
            del self._starts[at]
        elif joins_left:
            self._ends[at - 1] = end
        elif joins_right:
            self._starts[at] = start
        else:
            self._starts.insert(at, start)
            self._ends.insert(at, end)
        self.size += end - start
        return True

    def gaps(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The maximal intervals of `[start, end)` that are not in the set."""
        position = start
        for low, high in zip(self._starts, self._ends, strict=True):
            if low > position:
                yield position, min(low, end)
            position = max(position, high)
        if position < end:
            yield position, end

    def as_lists(self) -> list[list[int]]:
        """The intervals as `[[start, end], …]`, in order."""
        return [list(pair) for pair in zip(self._starts, self._ends, strict=True)]
