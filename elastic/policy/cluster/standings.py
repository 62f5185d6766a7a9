"""Who is the most fulfilled of all jobs, kept while sizes change."""

import heapq
from collections.abc import Iterator
from typing import Final

from elastic.policy.cluster.board import Board, JobSeats, Seats
from elastic.policy.cluster.scores import Weight, score, weight

Order = tuple[float, int, int, int, float, str]
"""The least fulfilled first, then `Weight`."""

_Giver = tuple[tuple[float, int, int, int, float, str], int, Seats]
"""The most fulfilled first; the size for which that holds."""


class Standings:
    """The jobs of a board by their scores.

    Attributes:
        job_of: The job of each group of workers.
    """

    def __init__(self, board: Board) -> None:
        self._board = board
        self.job_of: Final = {job.workers: job for job in board.jobs}
        self._weights: Final[dict[Seats, Weight]] = {
            job.workers: weight(job.job) for job in board.jobs
        }
        self._listed: dict[Seats, int] = {}
        self._givers: list[_Giver] = []
        self._seen = len(board.touched)
        for job in board.jobs:
            self._list(job.workers)

    def order(self, workers: Seats) -> Order:
        """For sorting: the least fulfilled comes first; of equals the smaller, then older."""
        return score(workers.group, workers.placed), *self._weights[workers]

    def giving_order(self, workers: Seats) -> Order:
        """For sorting: the other way round, the most fulfilled first."""
        gpus, cpu, memory, submitted_s, key = self._weights[workers]
        most = -score(workers.group, workers.placed)
        return most, -gpus, -cpu, -memory, -submitted_s, key

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
        for at in range(self._seen, len(touched)):
            workers = touched[at][0]
            if workers.can_leave and self._listed.get(workers) != workers.placed:
                self._list(workers)
        self._seen = len(touched)

    def _list(self, workers: Seats) -> None:
        self._listed[workers] = workers.placed
        if workers.surplus > 0:
            heapq.heappush(self._givers, (self.giving_order(workers), workers.placed, workers))


def elastic(job: JobSeats) -> bool:
    """Whether its number of workers may change."""
    return job.workers.group.min < job.workers.group.max
