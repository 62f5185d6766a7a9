"""Room for whole jobs: nodes for all that one starts with, from what is free or others may leave.

`Spare` has what each node would have free if all left it that may. For a job that has waited long
nodes are kept.
"""

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice, permutations
from typing import Final, Protocol

from elastic.policy.cluster import MILLI
from elastic.policy.placement.board import Board, JobSeats, Seats
from elastic.policy.placement.rooms import MaxTree, Needs, Pool, Shape

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
        rows = spare_rows(board, may_leave, self._surplus)
        self._seen = len(board.touched)
        for pool in board.rooms.pools:
            self._trees[pool] = board.rooms.tree(pool, rows)

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
            # Most have none above the minimum, which is seen without asking.
            givers = [each for each in board.residents[node] if surplus.get(each, 0) > 0]
            self._trees[pool].replace(at, _spare_row(board, node, may_leave, givers))


def _affected(seats: Seats, least: int) -> list[int]:
    """Where how many may leave depends on how many there are above the minimum in all."""
    return [node for node, count in seats.counts.items() if count > least]


def spare_rows(board: Board, may_leave: MayLeave, givers: Iterable[Seats]) -> list[list[int]]:
    """By node and column, what it would have free if all left it that may; of cards at most so
    much.

    Args:
        board: The cluster.
        may_leave: How many leave a node.
        givers: The workers of whom any may.
    """
    rows = [list(row) for row in board.rooms.free]
    leaving: dict[Shape, dict[int, int]] = {}
    cards: dict[int, set[str]] = {}
    for seats in givers:
        if seats.surplus <= 0:
            continue
        # Most are of a few shapes, and on the same nodes: they are added up before rows are.
        by_node = leaving.setdefault(seats.shape, {})
        for node in seats.counts:
            if (count := may_leave(seats, node)) > 0:
                by_node[node] = by_node.get(node, 0) + count
                if seats.cards:
                    cards.setdefault(node, set()).update(seats.cards[node])
    for shape, by_node in leaving.items():
        for node, count in by_node.items():
            _leave(board, shape, count, rows[node])
    if board.rooms.part is not None:
        for node, row in enumerate(rows):
            _free_cards(board, row, cards.get(node, ()))
    return rows


def _spare_row(board: Board, node: int, may_leave: MayLeave, givers: Iterable[Seats]) -> list[int]:
    """Of one node, which some of its residents may leave."""
    row, cards = list(board.rooms.free[node]), set[str]()
    for seats in givers:
        if (count := may_leave(seats, node)) > 0:
            _leave(board, seats.shape, count, row)
            if seats.cards:
                cards.update(seats.cards[node])
    if board.rooms.part is not None:
        _free_cards(board, row, cards)
    return row


def _leave(board: Board, shape: Shape, count: int, row: list[int]) -> None:
    """Count what so many free of a node, but for parts of cards."""
    part = board.rooms.part
    for column, need in shape.needs:
        if column != part:
            row[column] += need * count


def _free_cards(board: Board, row: list[int], cards: Collection[str]) -> None:
    part, gpu = board.rooms.part, board.rooms.gpu
    assert part is not None, "somebody has parts"
    row[gpu] += MILLI * len(cards)
    if row[gpu] >= MILLI:
        row[part] = MILLI


def make_room(
    board: Board, shape: Shape, node: int, may_leave: MayLeave, rank: Rank
) -> list[Seats] | None:
    """Take replicas from a node, one by one, until such a pod fits; who was taken from.

    Only who holds what is lacking is taken from, and who turns out not to be needed comes back.
    None, and nothing changed, where it cannot be done.
    """
    start = board.mark()
    removed: list[Seats] = []
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
        if not removed and (one := _enough_alone(board, shape, node, able, rank)) is not None:
            board.remove(one, node)
            return [one]
        first = _first_of(able, node, rank)
        board.remove(first, node)
        removed.append(first)
    return _without_the_needless(board, shape, node, removed)


def _enough_alone(
    board: Board, shape: Shape, node: int, able: Sequence[Seats], rank: Rank
) -> Seats | None:
    """The one who would not come back if one by one were taken, where it is one.

    What is lacking only its holders give, the first of them whoever is taken before. If that one is
    enough, all those come back.
    """
    if board.rooms.part is not None:
        # Whole cards and parts of them give way to each other.
        return None
    row = board.rooms.free[node]
    missing = [(column, need - row[column]) for column, need in shape.needs if row[column] < need]
    for column, _ in missing:
        holders = [seats for seats in able if _holds(seats, (column,))]
        if holders and _gives(one := _first_of(holders, node, rank), missing):
            return one
    return None


def _first_of(able: Sequence[Seats], node: int, rank: Rank) -> Seats:
    return min(able, key=lambda each: rank(each, node)) if len(able) > 1 else able[0]


def _gives(seats: Seats, missing: Sequence[tuple[int, int]]) -> bool:
    needs = dict(seats.shape.needs)
    return all(needs.get(column, 0) >= amount for column, amount in missing)


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


# Giving nodes to all replicas that a job starts with: one node for all of them if one can be.


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

    def start(self, job: JobSeats, wanted: Wanted, most: int) -> bool:
        """Put a job that has nothing where there is room, with as many workers as fit.

        As many as possible come first, then that they are on one node.

        Args:
            job: Whom to put there.
            wanted: What it lacks of its minimum.
            most: How many workers it may have, its minimum or more.

        Returns:
            Whether it has its minimum; if not, nothing has changed.
        """
        # Most that wait have no room: this comes before all else.
        for seats, _ in wanted:
            if not self._free.is_there_for(seats.shape):
                return False
        if self._on_one_node(self._free, lacking(job, most)):
            return True
        mark = self._board.mark()
        if not self._in_any_order(self._free, wanted, ()):
            return False
        self.add_more(job, most)
        size = job.workers.placed
        # That one node does not hold as many as were asked for is known by now.
        if size < most and len({node for each in job.all for node in each.counts}) > 1:
            self._board.undo(mark)
            if not self._on_one_node(self._free, lacking(job, size)):
                self._in_any_order(self._free, wanted, ())
                self.add_more(job, most)
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

    def squeeze_in(self, job: JobSeats, wanted: Wanted, source: Source, most: int) -> bool:
        """Put what a job lacks of its minimum where others leave; then as many more as fit.

        Args:
            job: Whom to put there.
            wanted: What it lacks of its minimum.
            source: Where room comes from.
            most: How many workers it may have with what is free.

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
            self.add_more(job, most)
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
        able = source.nodes_with(sum_of(board, wanted), _common_pools(board, wanted))
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


def sum_of(board: Board, wanted: Wanted) -> Needs:
    """What all of it needs of one node; parts of cards do not add up, so the largest of them."""
    part = board.rooms.part
    if len(wanted) == 1 and part is None:
        [(seats, count)] = wanted
        return tuple([(column, need * count) for column, need in seats.shape.needs])
    total: dict[int, int] = {}
    for seats, count in wanted:
        for column, need in seats.shape.needs:
            if column == part:
                total[column] = max(total.get(column, 0), need)
            else:
                total[column] = total.get(column, 0) + need * count
    return tuple(sorted(total.items()))


# Which nodes are kept for a job that has waited long: those where the least is still to end.


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
                today[node] = _spare_row(board, node, may_leave, board.residents[node])
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
