"""Giving nodes to all replicas that a job starts with: one node for all of them if one can be."""

from collections.abc import Collection, Iterable, Sequence
from itertools import islice, permutations
from typing import Final, Protocol

from elastic.policy.placement.board import Board, JobSeats, Seats
from elastic.policy.placement.rooms import Pool, Shape
from elastic.policy.placement.search import Needs

_MOST_TRIES: Final = 32
"""How many nodes that have enough in sum are tried: parts of cards may not fit all the same."""

_MOST_ORDERS: Final = 6
"""In how many orders the groups of a job are tried: all of three."""

_MOST_NODES: Final = 8
"""How many nodes are tried for each group as the one that others leave first."""

Wanted = Sequence[tuple[Seats, int]]
"""How many more each group is to have."""


class Source(Protocol):
    """Where room comes from: what is free, or what others can be made to leave."""

    def nodes_with(self, needs: Needs, pools: Sequence[Pool]) -> Iterable[int]:
        """Nodes that may have so much."""
        ...

    def add_on(self, seats: Seats, node: int, most: int = 1) -> int:
        """Put at most so many more on a node; how many. Nothing has changed where it is none."""
        ...

    def add(self, seats: Seats, near: Collection[int], most: int = 1) -> int:
        """Put at most so many more on one node, on one of `near` if it can be; how many.

        Where it is fewer, but some, the next ones may have room on another node.
        """
        ...


class FreeRoom:
    """What is free."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._in_vain: dict[Shape, int] = {}
        """What had no room anywhere, and how many changes there had been when that was seen."""

    def is_there_for(self, shape: Shape) -> bool:
        """Whether any node has room for one more."""
        return self._find(shape, ()) is not None

    def nodes_with(self, needs: Needs, pools: Sequence[Pool]) -> Iterable[int]:
        """See `Source`."""
        return self._board.rooms.nodes_with(needs, pools)

    def add_on(self, seats: Seats, node: int, most: int = 1) -> int:
        """See `Source`."""
        board = self._board
        if not (board.allows(seats.shape, node) and board.rooms.fits(seats.shape, node)):
            return 0
        return self._fill(seats, node, most)

    def add(self, seats: Seats, near: Collection[int], most: int = 1) -> int:
        """See `Source`."""
        node = self._find(seats.shape, near)
        return 0 if node is None else self._fill(seats, node, most)

    def _find(self, shape: Shape, near: Iterable[int]) -> int | None:
        """A node for one more; as long as nothing has changed what is not found is sought once."""
        changes = len(self._board.touched)
        if self._in_vain.get(shape) == changes:
            return None
        node = self._board.find(shape, near)
        if node is None:
            self._in_vain[shape] = changes
        return node

    def _fill(self, seats: Seats, node: int, most: int) -> int:
        count = self._board.rooms.count(seats.shape, node, most)
        self._board.add(seats, node, count=count)
        return count


class Starter:
    """Finds nodes for all that a job needs together."""

    def __init__(self, board: Board, free: FreeRoom | None = None) -> None:
        self._board, self._free = board, free or FreeRoom(board)

    def start(self, job: JobSeats, wanted: Wanted) -> bool:
        """Put a job that has nothing where there is room, with as many workers as fit.

        As many as possible come first, then that they are on one node.

        Args:
            job: Whom to put there.
            wanted: What it lacks of its minimum.

        Returns:
            Whether it has its minimum; if not, nothing has changed.
        """
        # Most that wait have no room: this comes before all else.
        for seats, _ in wanted:
            if not self._free.is_there_for(seats.shape):
                return False
        wish = job.workers.group.size_at_start
        if self._on_one_node(self._free, lacking(job, wish)):
            return True
        mark = self._board.mark()
        if not self._in_any_order(self._free, wanted, ()):
            return False
        self.add_more(job, wish)
        size = job.workers.placed
        # That one node does not hold as many as were asked for is known by now.
        if size < wish and len({node for each in job.all for node in each.counts}) > 1:
            self._board.undo(mark)
            if not self._on_one_node(self._free, lacking(job, size)):
                self._in_any_order(self._free, wanted, ())
                self.add_more(job, wish)
        return True

    def start_whole(self, job: JobSeats) -> bool:
        """Put a job that has nothing where there is room for as many workers as were asked for.

        Returns:
            Whether it has them all; if not, nothing has changed.
        """
        wanted = lacking(job, job.workers.group.size_at_start)
        return self._on_one_node(self._free, wanted) or self._in_any_order(self._free, wanted, ())

    def replace_lost(self, job: JobSeats) -> bool:
        """Put what a job has no more of what it is to have where there is room, one by one.

        Returns:
            Whether something has a node now.
        """
        workers, mark = job.workers, self._board.mark()
        size = min(max(workers.size, workers.group.min), workers.group.max)
        for seats, count in lacking(job, size):
            left = count
            while left and (added := self._free.add(seats, near_servers(job), left)):
                left -= added
        return self._board.mark() > mark

    def squeeze_in(self, job: JobSeats, wanted: Wanted, source: Source) -> bool:
        """Put what a job lacks of its minimum where others leave; then as many more as fit.

        Args:
            job: Whom to put there.
            wanted: What it lacks of its minimum.
            source: Where room comes from.

        Returns:
            Whether it has its minimum; if not, nothing has changed.
        """
        near, mark = near_servers(job), self._board.mark()
        found = (
            self._anywhere(source, wanted, near)
            or self._on_one_node(source, wanted)
            or self._in_any_order(source, wanted, near)
            or self._around_any_node(source, wanted)
        )
        if found:
            # What the first of several took may not be needed once the others have their room.
            self._board.return_needless(mark)
            self.add_more(job, job.workers.group.size_at_start)
        return found

    def add_more(self, job: JobSeats, most: int) -> None:
        """Workers where there is room, next to the others of the job first."""
        workers = job.workers
        if workers.placed >= most:
            return
        near = [node for each in job.all for node in each.counts]
        while workers.placed < most and self._free.add(workers, near, most - workers.placed):
            pass

    def _on_one_node(self, source: Source, wanted: Wanted) -> bool:
        """Put all of it on the first node that can hold it, or nothing anywhere."""
        board = self._board
        able = source.nodes_with(_sum_of(board, wanted), _common_pools(board, wanted))
        for node in islice(able, _MOST_TRIES):
            mark = board.mark()
            if all(_put_on(source, seats, node, count) for seats, count in wanted):
                return True
            board.undo(mark)
        return False

    def _in_any_order(self, source: Source, wanted: Wanted, near: Collection[int]) -> bool:
        """Put all of it on some nodes; where the one order of groups has no room another may.

        Servers that are first where they can be may take the only node that holds a worker.
        """
        able = list(islice(permutations(wanted), _MOST_ORDERS))
        if any(self._anywhere(source, order, near) for order in able):
            return True
        # Next to each other is not always possible.
        return any(self._anywhere(source, order, None) for order in able)

    def _around_any_node(self, source: Source, wanted: Wanted) -> bool:
        """Put all of it on some nodes, where others leave one of them first.

        Of several nodes that one job could leave, not each is of use to all of the groups.
        """
        able = list(islice(permutations(wanted), _MOST_ORDERS))
        shapes = [seats.shape for seats, _ in wanted]
        nodes = {
            node: None
            for shape in shapes
            for node in islice(source.nodes_with(shape.needs, shape.pools), _MOST_NODES)
        }
        return any(self._anywhere(source, order, (node,)) for node in nodes for order in able)

    def _anywhere(self, source: Source, wanted: Wanted, near: Collection[int] | None) -> bool:
        """Put all of it on some nodes, or nothing anywhere.

        Args:
            source: Where room comes from.
            wanted: What is to be put, in this order.
            near: Where to look first, and then next to each other; None for wherever it is tight.
        """
        mark, preferred = self._board.mark(), dict.fromkeys(near or ())
        for seats, count in wanted:
            left = count
            while left:
                added = source.add(seats, preferred, left)
                if not added:
                    self._board.undo(mark)
                    return False
                left -= added
                if near is not None:
                    preferred.update(dict.fromkeys(seats.counts))
        return True


def _put_on(source: Source, seats: Seats, node: int, count: int) -> bool:
    """Put so many more on one node; whether all of them are there now."""
    left = count
    while left and (added := source.add_on(seats, node, left)):
        left -= added
    return not left


def _common_pools(board: Board, wanted: Wanted) -> Sequence[Pool]:
    """The nodes on which all of it may run."""
    pools = board.rooms.pools
    return [pool for pool in pools if all(pool in each.shape.pools for each, _ in wanted)]


def lacking(job: JobSeats, num_workers: int) -> Wanted:
    """What a job lacks of so many workers, and of all that it needs beside them."""
    workers, wanted = job.workers, []
    for each in job.all:
        missing = (num_workers if each is workers else each.group.min) - each.placed
        if missing > 0:
            wanted.append((each, missing))
    return wanted


def near_servers(job: JobSeats) -> Collection[int]:
    """The nodes of its parameter servers."""
    return job.ps.counts if job.ps is not None else {}


def _sum_of(board: Board, wanted: Wanted) -> Needs:
    """What all of it needs of one node; parts of cards do not add up, so the largest of them."""
    total: dict[int, int] = {}
    for seats, count in wanted:
        for column, need in seats.shape.needs:
            if column == board.rooms.part:
                total[column] = max(total.get(column, 0), need)
            else:
                total[column] = total.get(column, 0) + need * count
    return tuple(sorted(total.items()))
