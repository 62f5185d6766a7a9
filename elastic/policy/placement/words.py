"""What is said of jobs and their changes."""

from collections.abc import Iterable, Sequence
from typing import Final

from elastic.policy.placement.board import Board, JobSeats, Seats
from elastic.policy.placement.rooms import Rooms, Shape

REPLACED: Final = "what was lost has a node again"

_MANY: Final = 4


def listed(names: Iterable[str]) -> str:
    """The first of many, each once."""
    unique = list(dict.fromkeys(names))
    more = f" and {len(unique) - _MANY} more" if len(unique) > _MANY else ""
    return ", ".join(unique[:_MANY]) + more


def name_of(seats: Seats) -> str:
    """Of its job, without kind and namespace."""
    return seats.job.rpartition("/")[2]


def nodes_text(board: Board, job: JobSeats) -> str:
    """Where a job is."""
    names = {board.rooms.nodes[node].name for each in job.all for node in each.counts}
    return listed(sorted(names.union(*(each.outside for each in job.all))))


def change_of(workers: Seats) -> int:
    """How many more workers a job is to have; a job that had none had none to have either."""
    group = workers.group
    return workers.size - (group.replicas if group.placed else 0)


def changed_text(workers: Seats, why: str) -> str:
    """A change and its reason: `+2: …`; without a number where it is none."""
    change = change_of(workers)
    return f"{change:+d}: {why}" if change else why


def lacking_text(rooms: Rooms, lacking: Sequence[tuple[Shape, int]]) -> str:
    """What a job lacks: `2 x (1 CPU, 1 GPU)`."""
    return ", ".join(f"{count} x ({rooms.needs_shown(shape)})" for shape, count in lacking)
