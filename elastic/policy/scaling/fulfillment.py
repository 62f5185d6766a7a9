"""The fulfillment policy: room goes to whoever has the least of its range, and comes from the most.

Score of a job: (current - min) / (max - min). In this order, until nothing changes any more:

1. Who has less than its minimum, and pods of others that have no node, are given room, the one that
   waits longest first; where there is none it is taken from the most fulfilled jobs, one worker at
   a time, and only if that is enough.
2. While more than `max_load` of CPU or memory is given out, the most fulfilled jobs give back.
3. Free room goes to the least fulfilled job, one worker at a time.
4. The least fulfilled job takes a worker's room from the most fulfilled one as long as it is not
   left better off than that one: equal jobs end equal, whoever came first.

Capacity and load are those of the nodes on which a job's pods may run. Load counts limits, and so
does `max_load`; whether a pod fits a node is decided by requests.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Final

from elastic.policy.cluster import Plan, Snapshot, uncollected
from elastic.policy.placement.board import Board, JobSeats, Load, Seats, decisions_of
from elastic.policy.placement.rooms import Pool
from elastic.policy.scaling.claims import MOST_GIVERS, Claims, Giving
from elastic.policy.scaling.standings import (
    ExactScore,
    Reasons,
    Standings,
    Turns,
    exact_score,
    least_size,
    servers_for,
)

_MOST_RESEATINGS: Final = 8
"""How often pods of others are put elsewhere when they can be; once is nearly always enough."""


@dataclass(frozen=True, slots=True)
class Fulfillment:
    """See the module.

    Attributes:
        max_load: The part of CPU and of memory that is given out at most.
        starve_after_s: How long a job waits before nodes are kept for it: of those who came later
            nobody is started or grows there.
    """

    max_load: float = 0.97
    starve_after_s: float = 300.0

    @uncollected
    def plan(self, snapshot: Snapshot) -> Plan:
        """What is to change now."""
        return _Planning(self, snapshot).plan()


class _Planning:
    def __init__(self, policy: Fulfillment, snapshot: Snapshot) -> None:
        self._board = Board(snapshot)
        self._standings = Standings(self._board)
        self._load = Load(self._board, policy.max_load)
        self._giving = Giving(self._board, self._standings)
        self._reasons = Reasons(self._board, self._standings)
        self._claims = Claims(
            self._board,
            self._giving,
            self._load,
            self._reasons,
            snapshot.now_s,
            policy.starve_after_s,
        )
        self._full: dict[object, int] = {}
        """How much had been touched on the board when there was no room for such a pod."""

    def plan(self) -> Plan:
        for job in self._board.jobs:
            self._trim(job.workers)
        self._seat_wanted()
        for _ in range(_MOST_RESEATINGS):
            self._share_out()
            if not self._claims.reseat_pods():
                break
        for job in self._board.jobs:
            self._settle(job)
        return Plan(decisions_of(self._board, self._reasons.texts()), self._claims.notes())

    def _share_out(self) -> None:
        """Until nothing changes: each round starts somebody, or leaves the scores more equal."""
        before, in_vain = -1, None
        while before != self._board.mark():
            before = self._board.mark()
            self._claims.serve()
            # What is kept for others may be other nodes now.
            self._full.clear()
            self._relieve()
            for workers in filter(self._has_minimum, self._standings.job_of):
                self._add_servers(workers)
            if in_vain == (self._board.mark(), self._claims.kept):
                break
            self._grow()
            grown = self._board.mark()
            self._level()
            # All that could change has been looked at as it stands now, if nothing has since.
            in_vain = (grown, self._claims.kept) if grown == self._board.mark() else None

    def _trim(self, workers: Seats) -> None:
        """Down to a maximum that was lowered."""
        while workers.placed > workers.group.max:
            self._giving.shrink(workers)
            self._reasons.trimmed(workers)
        self._giving.drop_servers(workers)

    def _seat_wanted(self) -> None:
        """Those that were asked for before and have no node yet, where there is room for them."""
        ready = (workers for workers in self._standings.job_of if self._has_minimum(workers))
        for workers in sorted(ready, key=self._standings.order):
            while workers.placed < min(workers.size, workers.group.max):
                if not self._add_one(workers):
                    break

    def _relieve(self) -> None:
        for number, at in self._load.excesses():
            why = f"{self._load.shown(number, at)}, more than max_load"
            for workers in self._standings.most_fulfilled():
                nodes = [each for each in workers.counts if number in self._rules_of(each)]
                if nodes and workers.limits[at]:
                    self._giving.take_from(workers, max(nodes))
                    self._reasons.relieved(workers, why)
                    break

    def _rules_of(self, node: int) -> tuple[int, ...]:
        return self._board.rooms.pool(node).rules

    def _grow(self) -> None:
        growing = self._growing()
        ways = {workers: self._way_to_grow(workers) for workers in growing}
        turns = Turns(self._standings, growing)
        for equal in turns.rounds():
            for _, alike in groupby(equal, ways.__getitem__):
                grown = self._add_to_each(list(alike))
                if len(grown) == 1:
                    ways[grown[0]] = self._way_to_grow(grown[0])
                turns.add(grown)

    def _way_to_grow(self, workers: Seats) -> object:
        """The same for those who are given one more in the same way, one after the other.

        Servers that go with it, cards, and words for a job that has grown for the first time are
        for each alone.
        """
        ps = self._standings.job_of[workers].ps
        is_plain = ps is None or ps.group.min == ps.group.max
        if is_plain and workers.shape.share is None and self._reasons.has_grown(workers):
            return workers.shape, workers.limits
        return workers

    def _add_to_each(self, alike: Sequence[Seats]) -> Sequence[Seats]:
        """One more worker for each of them, in this order; who got one."""
        if len(alike) == 1:
            return alike if self._add_one(alike[0]) else ()
        board, done = self._board, 0
        while done < len(alike):
            node = self._room_within_load(alike[done])
            if node is None:
                break
            most = board.rooms.count(alike[done].shape, node, len(alike) - done)
            count = self._load.count(alike[done], board.rooms.pool(node), most)
            board.add_to_each(alike[done : done + count], node)
            done += count
        return alike[:done]

    def _level(self) -> None:
        # The lowest score for which somebody who needs the same looked in vain: higher ones need
        # not. What changes meanwhile is seen in the next round.
        failed: dict[object, ExactScore] = {}
        turns = Turns(self._standings, self._growing())
        for workers in turns:
            if self._add_one(workers) or self._take_above(workers, failed):
                turns.add((workers,))

    def _take_above(self, workers: Seats, failed: dict[object, ExactScore]) -> bool:
        """One more from those who are better off, unless that was tried in vain."""
        ps = self._standings.job_of[workers].ps
        need = (workers.shape, workers.limits, ps and ps.shape)
        floor = exact_score(workers.group, workers.placed + 1)
        if need in failed and not floor.is_below(failed[need]):
            return False
        if self._take_one(workers, floor):
            return True
        failed[need] = floor
        return False

    def _growing(self) -> list[Seats]:
        """Who has its minimum, and may have more."""
        able = filter(self._has_minimum, self._standings.job_of)
        return [workers for workers in able if workers.placed < workers.group.max]

    def _has_minimum(self, workers: Seats) -> bool:
        return not self._standings.job_of[workers].is_short

    def _add_one(self, workers: Seats) -> bool:
        """One more worker where there is room, with the servers that go with it."""
        mark, size = self._board.mark(), workers.placed
        node = self._room_within_load(workers)
        if node is None:
            return False
        # Words cost more than the rest, and the first ones are kept.
        idle = "" if self._reasons.has_grown(workers) else self._reasons.idle(workers.shape, node)
        self._board.add(workers, node)
        if not self._add_servers(workers):
            self._board.undo(mark)
            return False
        self._reasons.grown(workers, size, idle)
        return True

    def _take_one(self, workers: Seats, floor: ExactScore) -> bool:
        """One more worker in the room of jobs that are better off, and do not fall below it."""
        mark, size = self._board.mark(), workers.placed
        givers = self._move_one(workers, floor)
        if givers is None or not self._add_servers(workers):
            self._board.undo(mark)
            return False
        self._reasons.taken(givers, workers, size)
        return True

    def _move_one(self, workers: Seats, floor: ExactScore) -> list[Seats] | None:
        """Add one in the room of others; who gave it. None where it cannot be, half done."""
        room = self._giving.taken_above(workers.shape, floor)
        if room is None:
            return None
        givers = list(room.givers)
        pool = self._board.rooms.pool(room.node)
        while not self._load.has_room(workers, pool):
            other = self._giver_of_load(floor, pool)
            if other is None:
                return None
            givers.append(other)
        self._board.add(workers, room.node)
        return givers

    def _giver_of_load(self, floor: ExactScore, pool: Pool) -> Seats | None:
        """One who gives a worker, wherever it is, of what counts against the same bounds."""
        for giver in islice(self._standings.most_fulfilled(), MOST_GIVERS):
            if giver.placed <= least_size(giver.group, floor):
                continue
            nodes = [each for each in giver.counts if self._board.rooms.pool(each) is pool]
            if nodes and any(giver.limits):
                self._giving.take_from(giver, max(nodes))
                return giver
        return None

    def _room_within_load(self, seats: Seats) -> int | None:
        needs, now = (seats.shape, seats.limits), len(self._board.touched)
        # Many that need the same ask one after the other of a cluster that is full.
        if self._full.get(needs) == now:
            return None
        pools = self._load.pools_for(seats)
        node = self._board.rooms.find(seats.shape, pools, self._claims.kept)
        if node is None:
            self._full[needs] = now
        return node

    def _add_servers(self, workers: Seats) -> bool:
        """The servers that go with its workers, as far as there is room; whether that is all."""
        job = self._standings.job_of[workers]
        if job.ps is None:
            return True
        while job.ps.placed < servers_for(job.job, workers.placed):
            node = self._room_within_load(job.ps)
            if node is None:
                return False
            self._board.add(job.ps, node)
        return True

    def _settle(self, job: JobSeats) -> None:
        """The sizes that follow from where the replicas are."""
        if job.is_short and not self._claims.is_begun(job):
            return
        job.workers.size = max(job.workers.group.min, job.workers.placed)
        for seats in job.fixed:
            seats.size = max(seats.group.min, seats.placed)
