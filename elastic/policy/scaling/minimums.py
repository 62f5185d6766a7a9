"""Room that `goodput` gives without weighing: to jobs with parts of GPUs, and to pods of others.

Nobody learns how fast a job is on parts of cards, so it gets its smallest size, as the fulfillment
policy gives it: who waits longest comes first, others give what they have above their smallest
size, and after a while nodes are kept for it. Pods of no job that have no node yet are given room
in the same way.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from elastic.policy.cluster.amounts import GPU, MILLI, Amounts
from elastic.policy.cluster.plan import Decision, Note
from elastic.policy.cluster.snapshot import JobPhase, Placement, Snapshot
from elastic.policy.placement.board import Board, JobSeats
from elastic.policy.placement.deciding import decisions_of
from elastic.policy.placement.load import Load
from elastic.policy.scaling.claims import Claims
from elastic.policy.scaling.giving import Giving
from elastic.policy.scaling.reasons import Reasons
from elastic.policy.scaling.scores import waiting_since_s
from elastic.policy.scaling.speeds.offers import is_in_parts
from elastic.policy.scaling.standings import Standings

_ALL: Final = 1.0
"""All of CPU and memory may be given out."""


@dataclass(frozen=True, slots=True)
class Given:
    """What came of it.

    Attributes:
        held: Nodes to which pods are to come: what one needs, and how many.
        kept_for: Who has waited longest of those that waited too long; also one that is weighed.
        kept: Nodes to which nobody else comes.
        seats: By role, how these nodes could hold what that job lacks.
    """

    decisions: tuple[Decision, ...] = ()
    notes: tuple[Note, ...] = ()
    held: tuple[tuple[str, Amounts, int], ...] = ()
    kept_for: str | None = None
    kept: frozenset[str] = frozenset()
    seats: Mapping[str, Placement] = field(default_factory=dict)


def give_minimums(snapshot: Snapshot, starve_after_s: float) -> Given:
    """Give room to all who lack some and are not weighed.

    Args:
        snapshot: The cluster.
        starve_after_s: How long a job waits, weighed or not, before nodes are kept for it.
    """
    has_to = any(
        is_in_parts(job) or snapshot.now_s - waiting_since_s(job) >= starve_after_s
        for job in snapshot.jobs
        if job.is_waiting and job.phase is not JobPhase.OVER
    )
    if not has_to and all(pod.node is not None for pod in snapshot.pods):
        return Given()
    board = Board(snapshot)
    standings = Standings(board)
    reasons, load = Reasons(board, standings), Load(board, _ALL)
    giving = Giving(board, standings)
    claims = Claims(board, giving, load, reasons, snapshot.now_s, starve_after_s)
    claims.serve(_is_served)
    for seats in (seats for job in board.jobs for seats in job.all):
        if seats.placed != seats.group.placed:
            seats.size = max(seats.group.min, seats.placed)
    return Given(
        decisions_of(board, reasons.texts()),
        claims.notes(_is_served),
        tuple(_held(board)),
        claims.kept_for,
        frozenset(board.rooms.nodes[node].name for node in claims.kept),
        _seats(board, claims),
    )


def _seats(board: Board, claims: Claims) -> dict[str, dict[str, int]]:
    """By role, how the kept nodes could hold what is lacking."""
    seats: dict[str, dict[str, int]] = {}
    left = {shape: dict(nodes) for shape, nodes in claims.seating.items()}
    job = next((each for each in board.jobs if each.key == claims.kept_for), None)
    for group in () if job is None else job.all:
        lacking = group.group.min - group.placed
        for node, count in left.get(group.shape, {}).items():
            here = min(count, max(0, lacking))
            lacking -= here
            left[group.shape][node] -= here
            if here:
                seats.setdefault(group.group.role, {})[board.rooms.nodes[node].name] = here
    return seats


def _held(board: Board) -> Iterator[tuple[str, Amounts, int]]:
    for pods in board.waiting_pods:
        requests = dict(pods.group.requests)
        if pods.group.share is not None:
            # Which card it will be on nobody knows yet: one to itself is enough for sure.
            requests[GPU] = requests.get(GPU, 0) + MILLI
        for node, count in pods.counts.items():
            yield board.rooms.nodes[node].name, requests, count


def _is_served(job: JobSeats) -> bool:
    return is_in_parts(job.job)
