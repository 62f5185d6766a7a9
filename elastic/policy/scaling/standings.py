"""Who is the most fulfilled of all jobs, kept while sizes change."""

import heapq
from collections.abc import Iterable, Iterator
from typing import Final

from elastic.policy.placement.board import Board, JobSeats, Seats
from elastic.policy.scaling.scores import giving_weight, score, weight

Order = tuple[float, int]
"""The least fulfilled first, or the most; of equals the one whose place is first."""

_Giver = tuple[Order, int, Seats]
"""The most fulfilled first; the size for which that holds."""


class Standings:
    """The jobs of a board by their scores.

    Attributes:
        job_of: The job of each group of workers.
        in_order: Groups of workers as they come of equally fulfilled jobs.
        place_of: Where each of them comes.
    """

    def __init__(self, board: Board) -> None:
        self._board = board
        self.job_of: Final = {job.workers: job for job in board.jobs}
        # Who of equals comes first is asked far more often than there are jobs.
        weights = {job.workers: weight(job.job) for job in board.jobs}
        self.in_order: Final = sorted(weights, key=weights.__getitem__)
        self.place_of: Final = {workers: place for place, workers in enumerate(self.in_order)}
        giving = sorted(weights, key=lambda workers: giving_weight(weights[workers]))
        self._giving: Final = {workers: place for place, workers in enumerate(giving)}
        self._listed: dict[Seats, int] = {}
        self._givers: list[_Giver] = []
        self._seen = len(board.touched)
        for job in board.jobs:
            self._list(job.workers)

    def order(self, workers: Seats) -> Order:
        """For sorting: the least fulfilled comes first; of equals the smaller, then older."""
        return score(workers.group, workers.placed), self.place_of[workers]

    def giving_order(self, workers: Seats) -> Order:
        """For sorting: the other way round, the most fulfilled first."""
        return -score(workers.group, workers.placed), self._giving[workers]

    def most_fulfilled(self) -> Iterator[Seats]:
        """Those with more than their minimum, the most fulfilled first; sizes may change behind."""
        self._refresh()
        seen: list[_Giver] = []
        try:
            while self._givers:
                giver = heapq.heappop(self._givers)
                _, size, workers = giver
                if self._listed.get(workers) == size == workers.placed:
                    seen.append(giver)
                    yield workers
        finally:
            for giver in seen:
                heapq.heappush(self._givers, giver)

    def _refresh(self) -> None:
        touched = self._board.touched
        for workers in touched[self._seen :]:
            if workers.can_leave and self._listed.get(workers) != workers.placed:
                self._list(workers)
        self._seen = len(touched)

    def _list(self, workers: Seats) -> None:
        self._listed[workers] = workers.placed
        if workers.surplus > 0:
            heapq.heappush(self._givers, (self.giving_order(workers), workers.placed, workers))


class Turns:
    """Jobs that may have more, in the order of their standings; each may come again, larger.

    Many have the same score at a time, so that they are kept by score.
    """

    def __init__(self, standings: Standings, workers: Iterable[Seats]) -> None:
        """Begin with these."""
        self._standings = standings
        self._scores: list[float] = []
        self._places: dict[float, list[int]] = {}
        self.add(workers)

    def add(self, workers: Iterable[Seats]) -> None:
        """Have those that may have more come where their sizes put them now."""
        place_of, known = self._standings.place_of, self._places
        # One of the inner loops of a plan.
        for each in workers:
            group, size = each.group, each.placed
            if size >= group.max:
                continue
            lowest = score(group, size)
            places = known.get(lowest)
            if places is not None:
                places.append(place_of[each])
            else:
                known[lowest] = [place_of[each]]
                heapq.heappush(self._scores, lowest)

    def __iter__(self) -> Iterator[Seats]:
        """Whose turn it is, until nobody is left; as for `rounds`."""
        for equal in self.rounds():
            yield from equal

    def rounds(self) -> Iterator[list[Seats]]:
        """All whose turn it is at the lowest score, in their order, until nobody is left.

        More may be added meanwhile, with higher scores than those whose turn it is.
        """
        in_order = self._standings.in_order
        while self._scores:
            places = self._places.pop(heapq.heappop(self._scores))
            yield [in_order[place] for place in sorted(places)]


def elastic(job: JobSeats) -> bool:
    """Whether its number of workers may change."""
    return job.workers.group.min < job.workers.group.max
