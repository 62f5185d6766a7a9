"""How much of CPU and memory may be given out, by the nodes on which pods may run."""

import math
from collections.abc import Iterator
from fractions import Fraction

from elastic.policy.placement.board import BOUNDED, Board, Seats
from elastic.policy.placement.rooms import Pool


class Load:
    """The bounds of a board's loads.

    GPUs have none: they are given out whole.
    """

    def __init__(self, board: Board, max_load: float) -> None:
        self._board = board
        most = Fraction(str(max_load))
        self._bounds = [
            [math.floor(most * amount) for amount in amounts] for amounts in board.capacities
        ]

    def has_room(self, seats: Seats, pool: Pool) -> bool:
        """Whether one more on these nodes stays within all bounds that it counts against."""
        for number in pool.rules:
            load, bounds = self._board.loads[number], self._bounds[number]
            for at, limit in enumerate(seats.limits):
                if limit and load[at] + limit > bounds[at]:
                    return False
        return True

    def count(self, seats: Seats, pool: Pool, most: int) -> int:
        """How many more on these nodes stay within them, of at most so many."""
        for number in pool.rules:
            load, bounds = self._board.loads[number], self._bounds[number]
            for at, limit in enumerate(seats.limits):
                if limit:
                    most = min(most, (bounds[at] - load[at]) // limit)
        return most

    def pools_for(self, seats: Seats) -> list[Pool]:
        """Where one more stays within the bounds."""
        return [pool for pool in seats.shape.pools if self.has_room(seats, pool)]

    def excesses(self) -> Iterator[tuple[int, int]]:
        """Rules and the place in `BOUNDED` of which too much is given out, as long as it is so."""
        for number, bounds in enumerate(self._bounds):
            for at in range(len(BOUNDED)):
                while self._board.loads[number][at] > bounds[at]:
                    before = self._board.loads[number][at]
                    yield number, at
                    if self._board.loads[number][at] == before:
                        break

    def shown(self, number: int, at: int) -> str:
        """A load for people: `98% of CPU`."""
        load, capacity = self._board.loads[number][at], self._board.capacities[number][at]
        name = {"cpu": "CPU"}.get(BOUNDED[at], BOUNDED[at])
        return f"{100 * load / max(capacity, 1):.1f}% of {name} is given out"
