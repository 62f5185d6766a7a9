"""Room for a pod from the most fulfilled jobs, one worker at a time, never below their minimum."""

from functools import cached_property
from itertools import islice
from typing import Final, NamedTuple

from elastic.policy.placement.board import Board, Seats
from elastic.policy.placement.rooms import Shape
from elastic.policy.placement.spare import MayLeave, Spare, make_room
from elastic.policy.scaling.scores import ExactScore, exact_score, least_size, servers_for
from elastic.policy.scaling.standings import Standings

MOST_GIVERS: Final = 32
"""How many jobs are asked for room on one of their nodes, before any node will do."""


class Room(NamedTuple):
    """A node where there is room now, and who has given it; nobody where it was free."""

    node: int
    givers: tuple[Seats, ...] = ()


class Giving:
    """Finds room for pods, by taking workers from others where it has to be."""

    def __init__(self, board: Board, standings: Standings) -> None:
        self._board, self._standings = board, standings

    @cached_property
    def _spare(self) -> Spare:
        return Spare(self._board, self.may_leave)

    def room(self, shape: Shape, skip: frozenset[int]) -> Room | None:
        """Room for one more, taken from others if need be; None, and nothing changed, without.

        Args:
            skip: Nodes that are not for it.
        """
        node = self._board.find(shape, skip=skip)
        return Room(node) if node is not None else self._taken(shape, skip)

    def taken_above(self, shape: Shape, floor: ExactScore) -> Room | None:
        """Room that was taken from jobs none of which comes to a score below the floor."""
        most = next(self._standings.most_fulfilled(), None)
        if most is None or not floor.is_below(exact_score(most.group, most.placed)):
            return None
        if not self._spare.could_hold(shape):
            return None

        def may_leave(seats: Seats, node: int) -> int:
            if seats.surplus <= 0:
                return 0
            return min(seats.counts.get(node, 0), seats.placed - least_size(seats.group, floor))

        for giver in islice(self._standings.most_fulfilled(), MOST_GIVERS):
            if not floor.is_below(exact_score(giver.group, giver.placed)):
                return None
            if giver.placed <= least_size(giver.group, floor):
                continue
            for node in self._nodes_of(giver, shape):
                if room := self._made(shape, node, may_leave):
                    return room
        return None

    def _taken(self, shape: Shape, skip: frozenset[int]) -> Room | None:
        """Room on a node of the most fulfilled job that can help, else on any."""
        if all(node in skip for node in self._spare.nodes_for(shape)):
            return None
        for giver in islice(self._standings.most_fulfilled(), MOST_GIVERS):
            for node in self._nodes_of(giver, shape):
                if node not in skip and (room := self._made(shape, node, self.may_leave)):
                    return room
        for node in self._spare.nodes_for(shape):
            if node not in skip and (room := self._made(shape, node, self.may_leave)):
                return room
        return None

    def _made(self, shape: Shape, node: int, may_leave: MayLeave) -> Room | None:
        givers = make_room(self._board, shape, node, may_leave, self._rank)
        if givers is None:
            return None
        for giver in givers:
            self.drop_servers(giver)
        return Room(node, tuple(givers))

    def _nodes_of(self, giver: Seats, shape: Shape) -> list[int]:
        """Where it has workers and such a pod could be, those with the most room first."""
        able = self._spare.holders(shape, giver.counts)
        return sorted(able, key=lambda node: (self._deficit(shape, node), node))

    def _deficit(self, shape: Shape, node: int) -> float:
        row = self._board.rooms.free[node]
        return max((1 - row[column] / need for column, need in shape.needs), default=0.0)

    def take_from(self, workers: Seats, node: int) -> None:
        """One worker less on a node, and the servers that went with it."""
        self._board.remove(workers, node)
        self.drop_servers(workers)

    def drop_servers(self, workers: Seats) -> None:
        """Those that are too many for the workers that are left."""
        job = self._standings.job_of[workers]
        if job.ps is not None:
            while job.ps.placed > servers_for(job.job, workers.placed):
                self.shrink(job.ps)

    def shrink(self, seats: Seats) -> None:
        """One less, where nobody else can be any more if it can be, else where it was put last."""
        if seats.outside:
            self._board.remove_outside(seats)
        else:
            self._board.remove(seats, max(seats.counts))

    def may_leave(self, seats: Seats, node: int) -> int:
        """How many workers of a job may leave a node, down to its minimum."""
        # Asked of each who is on a node, for all nodes.
        count, surplus = seats.counts.get(node, 0), seats.placed - seats.group.min
        return (count if count < surplus else surplus) if seats.can_leave else 0

    def _rank(self, seats: Seats, _: int) -> tuple[object, ...]:
        return self._standings.giving_order(seats)
