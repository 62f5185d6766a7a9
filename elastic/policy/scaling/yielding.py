"""Room that running jobs leave for one that starves: lonely workers first."""

from collections.abc import Collection, Iterable, Sequence
from functools import cached_property

from elastic.policy.placement.board import Board, JobSeats, Seats
from elastic.policy.placement.rooms import Pool
from elastic.policy.placement.search import Needs
from elastic.policy.placement.spare import Spare, make_room
from elastic.policy.placement.starting import FreeRoom, Wanted, near_servers
from elastic.policy.scaling.standings import Standings


def is_lonely(job: JobSeats, node: int) -> bool:
    """Whether a worker there is away from all parameter servers of its job."""
    near = near_servers(job)
    return bool(near) and node not in near


class YieldedRoom:
    """A `Source`: what is free, and what workers leave that may."""

    def __init__(
        self, board: Board, free: FreeRoom, standings: Standings, *, only_lonely: bool
    ) -> None:
        self._board, self._free, self._standings = board, free, standings
        self._only_lonely = only_lonely
        self._near = {job.workers: near_servers(job) for job in board.jobs if job.ps is not None}
        """Where their servers are, of those that have some."""

    @cached_property
    def spare(self) -> Spare:
        """What each node could have free."""
        return Spare(self._board, self.may_leave, self._near if self._only_lonely else None)

    def could_hold(self, wanted: Wanted) -> bool:
        """Whether for each of these some node could have room for one."""
        spare = self.spare
        # Asked for each who waits: a generator would cost more.
        for seats, _ in wanted:  # noqa: SIM110
            if not spare.could_hold(seats.shape):
                return False
        return True

    def may_leave(self, seats: Seats, node: int) -> int:
        """How many leave a node: no server, not worker 0, and the minimum stays."""
        # Asked of each who is on a node, for all nodes.
        group = seats.group
        surplus = seats.placed - group.min
        if surplus <= 0 or not seats.can_leave:
            return 0
        if self._only_lonely and not self._is_lonely(seats, node):
            return 0
        count, first = seats.counts.get(node, 0), group.first_node
        if first is not None and first == self._board.rooms.nodes[node].name:
            count -= 1
        return count if count < surplus else surplus

    def nodes_with(self, needs: Needs, pools: Sequence[Pool]) -> Iterable[int]:
        """See `Source`."""
        return self.spare.nodes_with(needs, pools)

    def add_on(self, seats: Seats, node: int, _most: int = 1) -> int:
        """See `Source`; one at a time, since others leave for each."""
        givers = make_room(self._board, seats.shape, node, self.may_leave, self._rank)
        if givers is None:
            return 0
        self._board.add(seats, node)
        return 1

    def add(self, seats: Seats, near: Collection[int], most: int = 1) -> int:
        """See `Source`."""
        if added := self._free.add(seats, near, most):
            return added
        for node in self.spare.holders(seats.shape, near) if near else ():
            if self.add_on(seats, node):
                return 1
        for node in self.spare.nodes_for(seats.shape):
            if self.add_on(seats, node):
                return 1
        return 0

    def _rank(self, seats: Seats, node: int) -> tuple[object, ...]:
        """Who is lonely leaves first, then who has most of its range."""
        return not self._is_lonely(seats, node), self._standings.giving_order(seats)

    def _is_lonely(self, workers: Seats, node: int) -> bool:
        # What `is_lonely` says, which is asked too often to look for the job first.
        near = self._near.get(workers, ())
        return bool(near) and node not in near
