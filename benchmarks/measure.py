"""Ratios of two measurements taken in turn, so that a machine that slows down slows both."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bar:
    """What a ratio has to reach.

    Attributes:
        first: Without this the path counts as too slow.
        goal: What the project aims at.
        is_ceiling: The ratio must stay below, as where times are divided; else above.
    """

    first: float
    goal: float
    is_ceiling: bool = False

    def verdict(self, ratio: float) -> str:
        """`goal`, `first` or `no`: the highest bar that the ratio meets."""
        if self._meets(ratio, self.goal):
            return "goal"
        return "first" if self._meets(ratio, self.first) else "no"

    def _meets(self, ratio: float, bar: float) -> bool:
        return ratio <= bar if self.is_ceiling else ratio >= bar


@dataclass(frozen=True, slots=True)
class Series:
    """One side of a ratio: what was measured, and a value for each round."""

    what: str
    unit: str
    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)


@dataclass(frozen=True, slots=True)
class Ratio:
    """Two series measured in turn; `bar` is None where the figure is for information."""

    name: str
    numerator: Series
    denominator: Series
    bar: Bar | None
    note: str = ""

    @property
    def ratios(self) -> tuple[float, ...]:
        """Round by round: the two values of a round were measured next to each other."""
        pairs = zip(self.numerator.values, self.denominator.values, strict=True)
        return tuple(above / below for above, below in pairs)

    @property
    def median(self) -> float:
        return statistics.median(self.ratios)

    @property
    def verdict(self) -> str:
        return "-" if self.bar is None else self.bar.verdict(self.median)


def take_turns(
    rounds: int, *measures: Callable[[], float], warmups: int = 1
) -> list[tuple[float, ...]]:
    """Call the measures A B A B …; the first rounds are thrown away.

    Returns:
        For each measure, its values round by round.
    """
    table = [[measure() for measure in measures] for _ in range(warmups + rounds)]
    return [tuple(column) for column in zip(*table[warmups:], strict=True)]
