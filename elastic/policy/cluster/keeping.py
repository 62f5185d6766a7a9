"""Which nodes are kept for a job that has waited long: those where the least is still to end."""

import heapq
from collections.abc import Iterable

from elastic.policy.cluster.board import Board
from elastic.policy.cluster.rooms import Shape
from elastic.policy.cluster.spare import MayLeave, spare_row


def nodes_to_keep(
    board: Board, missing: Iterable[tuple[Shape, int]], may_leave: MayLeave
) -> frozenset[int]:
    """Nodes that together can hold what is missing once the jobs that are there have ended.

    Of all that could it takes those that lack the least today. Where nobody is started any more,
    less and less is lacking, so that the day comes: every job ends.

    Returns:
        None of them where these nodes could not hold it even without any job.
    """
    today: dict[int, list[int]] = {}
    empty: dict[int, list[int]] = {}
    kept = set()
    for shape, count in missing:
        nodes = [node for pool in shape.pools for node in pool.nodes]
        for node in nodes:
            if node not in today:
                today[node] = spare_row(board, node, may_leave)
                empty[node] = list(board.without_jobs[node])
        heap = [(_lack(shape, today[node]), node) for node in nodes if _fits(shape, empty[node])]
        heapq.heapify(heap)
        for _ in range(count):
            if not heap:
                return frozenset()
            _, node = heapq.heappop(heap)
            kept.add(node)
            for column, need in shape.needs:
                today[node][column] -= need
                empty[node][column] -= need
            if _fits(shape, empty[node]):
                heapq.heappush(heap, (_lack(shape, today[node]), node))
    return frozenset(kept)


def _fits(shape: Shape, row: list[int]) -> bool:
    return all(row[column] >= need for column, need in shape.needs)


def _lack(shape: Shape, row: list[int]) -> float:
    """The part of its scarcest need that is lacking; 0 where it fits."""
    return max((max(0.0, 1 - row[column] / need) for column, need in shape.needs), default=0.0)
