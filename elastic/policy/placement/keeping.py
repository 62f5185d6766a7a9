"""Which nodes are kept for a job that has waited long: those where the least is still to end."""

import heapq
from collections.abc import Iterable, Sequence
from itertools import islice, permutations
from typing import Final

from elastic.policy.cluster.amounts import MILLI
from elastic.policy.placement.board import Board, JobSeats
from elastic.policy.placement.rooms import Shape
from elastic.policy.placement.search import Needs
from elastic.policy.placement.spare import MayLeave, spare_row

_MOST_ORDERS: Final = 6
"""In how many orders what is missing is tried: all of three."""

Seating = dict[Shape, dict[int, int]]
"""How many pods of each shape go to which node."""


def seating_to_keep(
    board: Board,
    missing: Sequence[tuple[Shape, int]],
    may_leave: MayLeave,
    stuck: Iterable[JobSeats],
) -> Seating:
    """Nodes that together can hold what is missing once the jobs that run there have ended.

    Of all that could it takes those that lack the least today. Where nobody is started any more,
    less and less is lacking, so that the day comes: every job ends that runs.

    Args:
        board: The cluster.
        missing: What has to have room.
        may_leave: Who could leave today.
        stuck: Jobs that have a part of what they need, the one that misses it included: what they
            hold they hold until they have all.

    Returns:
        Nothing where the nodes could not hold it even then.
    """
    held = _held_by(stuck)
    seatings = (
        _seating(board, order, may_leave, held, is_tightest=is_tightest)
        for is_tightest in (False, True)
        for order in islice(permutations(missing), _MOST_ORDERS)
    )
    return next((each for each in seatings if each), {})


def _seating(
    board: Board,
    missing: Iterable[tuple[Shape, int]],
    may_leave: MayLeave,
    held: "_Held",
    *,
    is_tightest: bool,
) -> Seating:
    """With the shapes in one order; on the tightest nodes, or on those that lack the least."""
    today: dict[int, list[int]] = {}
    empty: dict[int, list[int]] = {}
    needs: dict[int, Needs] = {}
    seating: Seating = {}

    def order(node: int) -> tuple[float, float, int]:
        lack, room = _lack(needs[node], today[node]), _room(needs[node], empty[node])
        return (0.0 if is_tightest else lack, room, node)

    for shape, count in missing:
        nodes = [node for pool in shape.pools for node in pool.nodes]
        for node in nodes:
            needs[node] = _needs(board, shape, node)
            if node not in today:
                today[node] = spare_row(board, node, may_leave)
                empty[node] = _without(board, node, held.get(node, ()))
        heap = [order(node) for node in nodes if _fits(needs[node], empty[node])]
        heapq.heapify(heap)
        seats = seating.setdefault(shape, {})
        for _ in range(count):
            if not heap:
                return {}
            *_, node = heapq.heappop(heap)
            seats[node] = seats.get(node, 0) + 1
            for row in (today[node], empty[node]):
                _use(board, needs[node], row)
            if _fits(needs[node], empty[node]):
                heapq.heappush(heap, order(node))
    return seating


_Held = dict[int, list[tuple[Shape, int, int]]]
"""By node: of which shape how many are there, and on how many cards."""


def _held_by(jobs: Iterable[JobSeats]) -> _Held:
    held: _Held = {}
    for seats in (seats for job in jobs for seats in job.all):
        for node, count in seats.counts.items():
            cards = len(seats.cards.get(node, ()))
            held.setdefault(node, []).append((seats.shape, count, cards))
    return held


def _without(board: Board, node: int, held: Iterable[tuple[Shape, int, int]]) -> list[int]:
    """What is free there but for these."""
    row, part, gpu = list(board.without_jobs[node]), board.rooms.part, board.rooms.gpu
    for shape, count, cards in held:
        for column, need in shape.needs:
            if column != part:
                row[column] -= need * count
        row[gpu] -= MILLI * cards
    return row


def _needs(board: Board, shape: Shape, node: int) -> Needs:
    """What one needs there: of a card the part of its memory, where that is the larger one."""
    memory = board.rooms.nodes[node].card_memory_bytes
    if shape.share is None or not memory:
        return shape.needs
    part = -(-MILLI * shape.share.memory_bytes // memory)
    is_part = board.rooms.part
    return tuple((at, max(need, part) if at == is_part else need) for at, need in shape.needs)


def _use(board: Board, needs: Needs, row: list[int]) -> None:
    """Take the room of one pod; how cards are divided is only nearly known here."""
    part, gpu = board.rooms.part, board.rooms.gpu
    for column, need in needs:
        row[column] -= need
        if column == part:
            row[gpu] -= need
    if part is not None and row[gpu] >= MILLI:
        row[part] = MILLI


def _fits(needs: Needs, row: list[int]) -> bool:
    return all(row[column] >= need for column, need in needs)


def _lack(needs: Needs, row: list[int]) -> float:
    """The part of its scarcest need that is lacking; 0 where it fits."""
    return max((max(0.0, 1 - row[column] / need) for column, need in needs), default=0.0)


def _room(needs: Needs, row: list[int]) -> float:
    """How many fit: of nodes that lack the same the tightest is taken."""
    return min((row[column] / need for column, need in needs), default=0.0)
