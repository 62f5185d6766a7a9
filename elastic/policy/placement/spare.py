"""What each node would have free if all left it that may, and making that room. Pure."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from elastic.policy.cluster.amounts import MILLI
from elastic.policy.placement.board import Board, Seats
from elastic.policy.placement.rooms import Pool, Shape
from elastic.policy.placement.search import MaxTree, Needs

MayLeave = Callable[[Seats, int], int]
"""How many workers of a job may leave a node."""

Rank = Callable[[Seats, int], tuple[object, ...]]
"""Who leaves a node first: the smallest."""


class Spare:
    """Nodes that could hold a pod if others left.

    It is a bound: a node that is not found cannot hold it; one that is found may still be short of
    a card of which enough is free. `make_room` tells.
    """

    def __init__(
        self, board: Board, may_leave: MayLeave, givers: Iterable[Seats] | None = None
    ) -> None:
        """Look at all nodes.

        Args:
            board: The cluster.
            may_leave: How many leave a node.
            givers: The workers of whom any may ever leave; None for those of all jobs.
        """
        self._board, self._may_leave = board, may_leave
        self._trees: dict[Pool, MaxTree] = {}
        if givers is None:
            givers = (job.workers for job in board.jobs)
        self._surplus = {workers: workers.surplus for workers in givers}
        self._seen = len(board.touched)
        for pool in board.rooms.pools:
            rows = [spare_row(board, node, may_leave) for node in pool.nodes]
            self._trees[pool] = MaxTree(rows, len(board.rooms.columns))

    def could_hold(self, shape: Shape) -> bool:
        """Whether any node could hold such a pod."""
        self._refresh()
        # Asked for each who waits: a generator would cost more.
        for pool in shape.pools:  # noqa: SIM110
            if self._trees[pool].first(shape.needs) is not None:
                return True
        return False

    def nodes_for(self, shape: Shape) -> Iterator[int]:
        """Those that could hold such a pod, in the order of the search."""
        return self.nodes_with(shape.needs, shape.pools)

    def nodes_with(self, needs: Needs, pools: Iterable[Pool]) -> Iterator[int]:
        """Those that could have so much, in the order of the search."""
        self._refresh()
        for pool in pools:
            for at in self._trees[pool].all(needs):
                yield pool.nodes[at]

    def holders(self, shape: Shape, nodes: Iterable[int]) -> list[int]:
        """Of these nodes those that could hold such a pod."""
        self._refresh()
        places, pools = self._board.rooms.pool_of, shape.pools
        found = []
        for node in nodes:
            pool, at = places[node]
            if pool in pools and self._trees[pool].has(at, shape.needs):
                found.append(node)
        return found

    def _refresh(self) -> None:
        touched = self._board.touched
        if self._seen == len(touched):
            return
        stale, surplus = set(self._board.touched_at[self._seen :]), self._surplus
        for seats in set(touched[self._seen :]):
            before = surplus.get(seats)
            if before is None:
                continue
            now = seats.placed - seats.group.min
            if now != before:
                surplus[seats] = now
                stale.update(_affected(seats, min(before, now)))
        self._seen = len(touched)
        places, board, may_leave = self._board.rooms.pool_of, self._board, self._may_leave
        for node in stale:
            pool, at = places[node]
            self._trees[pool].replace(at, spare_row(board, node, may_leave))


def _affected(seats: Seats, least: int) -> list[int]:
    """Where how many may leave depends on how many there are above the minimum in all."""
    return [node for node, count in seats.counts.items() if count > least]


def spare_row(board: Board, node: int, may_leave: MayLeave) -> list[int]:
    """By column, what a node would have free if all left it that may; of cards at most so much."""
    row, part, gpu = list(board.rooms.free[node]), board.rooms.part, board.rooms.gpu
    cards: set[str] = set()
    for seats in board.residents[node]:
        if not seats.can_leave or seats.placed <= seats.group.min:
            continue
        leaving = may_leave(seats, node)
        if leaving <= 0:
            continue
        for column, need in seats.shape.needs:
            if column == part:
                cards.update(seats.cards[node])
            else:
                row[column] += need * leaving
    row[gpu] += MILLI * len(cards)
    if part is not None and row[gpu] >= MILLI:
        row[part] = MILLI
    return row


def make_room(
    board: Board, shape: Shape, node: int, may_leave: MayLeave, rank: Rank
) -> list[Seats] | None:
    """Take replicas from a node, one by one, until such a pod fits; who was taken from.

    Only who holds what is lacking is taken from, and who turns out not to be needed comes back.
    None, and nothing changed, where it cannot be done.
    """
    start, removed = board.mark(), []
    while not board.rooms.fits(shape, node):
        lacking = _lacking(board, shape, node)
        able = [
            seats
            for seats in board.residents[node]
            if seats.can_leave and _holds(seats, lacking) and may_leave(seats, node) > 0
        ]
        if not able:
            board.undo(start)
            return None
        seats = min(able, key=lambda each: rank(each, node)) if len(able) > 1 else able[0]
        board.remove(seats, node)
        removed.append(seats)
    return _without_the_needless(board, shape, node, removed)


def _without_the_needless(
    board: Board, shape: Shape, node: int, removed: Sequence[Seats]
) -> list[Seats]:
    kept = list(removed)
    if len(removed) < 2:
        return kept
    for seats in reversed(removed):
        mark = board.mark()
        if board.rooms.fits(seats.shape, node):
            board.add(seats, node)
            if board.rooms.fits(shape, node):
                kept.remove(seats)
            else:
                board.undo(mark)
    return kept


def _lacking(board: Board, shape: Shape, node: int) -> set[int]:
    row, gpu, part = board.rooms.free[node], board.rooms.gpu, board.rooms.part
    lacking = {column for column, need in shape.needs if row[column] < need}
    if part is not None and (shape.share is not None or gpu in lacking):
        # Whole cards and parts of them give way to each other.
        lacking |= {gpu, part}
    return lacking


def _holds(seats: Seats, lacking: Collection[int]) -> bool:
    # Asked of each resident of a node.
    for column, _ in seats.shape.needs:  # noqa: SIM110
        if column in lacking:
            return True
    return False
