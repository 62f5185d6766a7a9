"""How fulfilled jobs are, who comes before whom, and the words for it."""

import heapq
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from elastic.policy.cluster import CPU, MEMORY, Amounts, Group, Job, is_gpu
from elastic.policy.placement.board import (
    Board,
    JobSeats,
    Seats,
    change_of,
    changed_text,
    listed,
    name_of,
)
from elastic.policy.placement.rooms import Shape

FULFILLED: Final = 1.0


def score(group: Group, size: int) -> float:
    """How much of its range a group has: 0 at its minimum, 1 at its maximum.

    A group without a range has all that it can have.
    """
    return (size - group.min) / (group.max - group.min) if group.max > group.min else FULFILLED


class ExactScore(NamedTuple):
    """A score without rounding: `above` workers of `span` that a job may have above its minimum."""

    above: int
    span: int

    def is_below(self, other: "ExactScore") -> bool:
        """Whether it is the lower one."""
        return self.above * other.span < other.above * self.span


def exact_score(group: Group, size: int) -> ExactScore:
    """Of a group with a range."""
    return ExactScore(size - group.min, group.max - group.min)


def least_size(group: Group, floor: ExactScore) -> int:
    """The smallest size whose score is not below a floor."""
    return group.min - (-floor.above * (group.max - group.min) // floor.span)


def servers_for(job: Job, num_workers: int) -> int:
    """How many parameter servers go with so many workers: the same part of their range.

    Servers of a job whose workers have no range have nothing to follow, and stay at their minimum.
    """
    ps, workers = job.ps, job.workers
    if ps is None:
        return 0
    span, wide = ps.max - ps.min, workers.max - workers.min
    if not span or not wide:
        return ps.min
    above = min(max(num_workers - workers.min, 0), wide)
    # Half a server rounds up.
    return ps.min + (2 * above * span + wide) // (2 * wide)


Weight = tuple[int, int, int, float, str]
"""GPU, CPU and memory of one worker, then age and name: who of equally fulfilled jobs is first."""


def _weights(jobs: Iterable[JobSeats]) -> dict[Seats, Weight]:
    """Smaller and older jobs come first, and give last."""
    size_of: dict[Shape, tuple[int, int, int]] = {}
    weights = {}
    for job in jobs:
        workers = job.workers
        # Most are of a few shapes.
        size = size_of.get(workers.shape)
        if size is None:
            size = size_of[workers.shape] = _size_of_one(workers.group)
        weights[workers] = (*size, job.job.submitted_s, workers.job)
    return weights


def _size_of_one(workers: Group) -> tuple[int, int, int]:
    asked, part = workers.requests, workers.share.milli if workers.share is not None else 0
    return _gpus(asked) + part, asked.get(CPU, 0), asked.get(MEMORY, 0)


def giving_weight(weight: Weight) -> Weight:
    """The other way round: larger and younger jobs give first."""
    gpus, cpu, memory, submitted_s, key = weight
    return -gpus, -cpu, -memory, -submitted_s, key


def needs_gpu(job: Job) -> bool:
    """Whether any replica of it has a GPU, or a part of one."""
    return any(group.share is not None or _gpus(group.requests) > 0 for group in job.groups)


def waiting_since_s(job: Job) -> float:
    """Since when a job waits, for one that does."""
    return job.submitted_s if job.waiting_since_s is None else job.waiting_since_s


def waiting_order(job: Job) -> tuple[float, float, str]:
    """For sorting: who waits longest comes first, then who was submitted first."""
    return waiting_since_s(job), job.submitted_s, job.key


def _gpus(amounts: Amounts) -> int:
    return sum(amount for name, amount in amounts.items() if is_gpu(name))


# Who is the most fulfilled of all jobs, kept while sizes change.


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
        weights = _weights(board.jobs)
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


# Why the fulfillment policy does what it does, in words.


class Reasons:
    """The first cause of each job's change, up and down; what it comes to says which holds."""

    def __init__(self, board: Board, standings: Standings) -> None:
        self._board, self._standings = board, standings
        self._up: dict[str, str] = {}
        self._down: dict[str, str] = {}
        self._num_elastic = sum(elastic(job) for job in board.jobs)

    def idle(self, shape: Shape, node: int) -> str:
        """What a pod finds on a node: `6 CPU idle on n3`; to be asked before it is there."""
        return self._board.rooms.shown(node, shape)

    def has_grown(self, workers: Seats) -> bool:
        """Whether it is known why a job gets more."""
        return workers.job in self._up

    def grown(self, workers: Seats, size: int, idle: str) -> None:
        """A job with so many workers got one more where there was room."""
        if workers.job not in self._up:
            lowest = score(workers.group, size)
            text = f"{idle}, score {lowest:.2f} is the lowest of {self._jobs}"
            self._up[workers.job] = text

    def taken(self, givers: Iterable[Seats], workers: Seats, size: int) -> None:
        """A job with so many workers got one more in the room of others, after they gave it."""
        for giver in givers:
            self._gave(giver, f"goes to {name_of(workers)} with {score(workers.group, size):.2f}")
            text = f"from {name_of(giver)}, score {score(workers.group, size):.2f} is the lowest of"
            self._up.setdefault(workers.job, f"{text} {self._jobs}")

    def started(self, job: JobSeats, givers: Iterable[Seats], idle: str) -> None:
        """A job got what it lacked of its minimum."""
        names = [name_of(giver) for giver in givers]
        for giver in dict.fromkeys(givers):
            self._gave(giver, f"{name_of(job.workers)} waits for it")
        source = f"room from {listed(names)}" if names else idle
        self._up[job.key] = f"{_short_of_least(job)}: {source}"

    def begun(self, job: JobSeats) -> None:
        """A job is started without room for all of its minimum."""
        short = f"{_short_of_least(job)}, and begins before there is room for all"
        self._up[job.key] = f"{short}: nobody can give any"

    def given_to_pods(self, givers: Iterable[Seats]) -> None:
        """Somebody made room for what belongs to no job."""
        for giver in givers:
            self._gave(giver, "a pod of no job waits for it")

    def relieved(self, workers: Seats, why: str) -> None:
        """Somebody has to give, whoever gets it; after it gave."""
        self._gave(workers, why)

    def trimmed(self, workers: Seats) -> None:
        """A job has more than its maximum."""
        self._down.setdefault(workers.job, f"max is {workers.group.max}")

    def texts(self) -> dict[str, str]:
        """By the keys of the jobs, with what the changes come to: `+2: …`."""
        return {job.key: self._text(job) for job in self._board.jobs}

    @property
    def _jobs(self) -> str:
        return f"{self._num_elastic} job{'s' * (self._num_elastic != 1)}"

    def _gave(self, giver: Seats, why: str) -> None:
        highest = score(giver.group, giver.placed + 1)
        text = f"{why}, score {highest:.2f} is the highest of {self._jobs}"
        self._down.setdefault(giver.job, text)

    def _text(self, job: JobSeats) -> str:
        key, change = job.key, change_of(job.workers)
        if change < 0:
            return changed_text(job.workers, self._down.get(key, "no node has room for them"))
        if change > 0:
            return changed_text(job.workers, self._up.get(key, "room for all that it waited for"))
        return "as many as before, on other nodes" if job.workers.placed_before else "has nodes now"


def _short_of_least(job: JobSeats) -> str:
    return f"it had less than its minimum of {job.workers.group.min}"
