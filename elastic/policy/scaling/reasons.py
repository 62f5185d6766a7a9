"""Why the fulfillment policy does what it does, in words."""

from collections.abc import Iterable

from elastic.policy.placement.board import Board, JobSeats, Seats
from elastic.policy.placement.rooms import Shape
from elastic.policy.placement.words import change_of, changed_text, listed, name_of
from elastic.policy.scaling.scores import score
from elastic.policy.scaling.standings import Standings, elastic


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
        return "as many as before, on other nodes" if job.workers.group.placed else "has nodes now"


def _short_of_least(job: JobSeats) -> str:
    return f"it had less than its minimum of {job.workers.group.min}"
