"""How fast a job is by its size, relative to the size that its user asked for. Pure."""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


class Speed(Protocol):
    """Relative speed by size; 0 without workers."""

    def at(self, workers: int, nodes: int) -> float:
        """Work done in a second, in any unit.

        Args:
            workers: Those that run.
            nodes: On how many nodes they are.
        """
        ...


@dataclass(frozen=True, slots=True)
class Constant:
    """A job that holds what it has for a time, whatever its size."""

    def at(self, workers: int, _nodes: int) -> float:
        """See `Speed`."""
        return 1.0 if workers else 0.0


@dataclass(frozen=True, slots=True)
class Amdahl:
    """Each worker adds its share, but for what is not shared.

    Attributes:
        serial: The part of one worker's time that others do not shorten, 0 to 1; 0 is linear.
    """

    serial: float = 0.0

    def at(self, workers: int, _nodes: int) -> float:
        """See `Speed`."""
        return 1.0 / (self.serial + (1.0 - self.serial) / workers) if workers else 0.0


@dataclass(frozen=True, slots=True)
class Measured:
    """Speeds that were measured at some sizes; linear between them, and flat beyond the last.

    Attributes:
        points: (workers, speed), ascending, at least one.
        spread: Factor on the speed for each further node, above 0 and up to 1.
    """

    points: tuple[tuple[int, float], ...]
    spread: float = 1.0

    @classmethod
    def of(cls, speeds: Mapping[int, float], spread: float = 1.0) -> "Measured":
        """By the number of workers."""
        return cls(tuple(sorted(speeds.items())), spread)

    def at(self, workers: int, nodes: int) -> float:
        """See `Speed`."""
        if not workers:
            return 0.0
        return self._on_one_node(workers) * self.spread ** max(0, nodes - 1)

    def _on_one_node(self, workers: int) -> float:
        sizes = [size for size, _ in self.points]
        at = bisect_left(sizes, workers)
        if at == len(sizes):
            return self.points[-1][1]
        size, speed = self.points[at]
        # Below the smallest that was measured: in proportion.
        below, slower = self.points[at - 1] if at else (0, 0.0)
        return slower + (speed - slower) * (workers - below) / (size - below)
