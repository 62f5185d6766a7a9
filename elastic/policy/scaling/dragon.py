"""The policy `dragon`: first come, first served where it fits; room for who starves; growth."""

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Final

from elastic.policy.cluster import Note, Plan, Snapshot, uncollected
from elastic.policy.placement.board import (
    REPLACED,
    Board,
    JobSeats,
    Seats,
    changed_text,
    decisions_of,
    lacking_text,
    listed,
    name_of,
    nodes_text,
)
from elastic.policy.placement.making_room import (
    FreeRoom,
    Spare,
    Starter,
    Wanted,
    lacking,
    make_room,
    near_servers,
    sum_of,
)
from elastic.policy.placement.rooms import Needs, Pool
from elastic.policy.scaling.standings import Standings, Turns, waiting_order, waiting_since_s


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


_Starving = tuple[JobSeats, Wanted, object]
"""Who starves, what it lacks of its minimum, and the same for those that lack the same."""

_MOST_SHAPES: Final = 16
"""Of how many different pods it is looked up what they could use: of those that wait longest."""


class SharedRoom:
    """What is free beyond what all who starve at one moment lack of their minimum.

    The first of them would else take it all, and the next ones have theirs from somebody who runs.
    """

    def __init__(self, board: Board, starving: Sequence[_Starving]) -> None:
        """Keep for each what it lacks, as far as there is so much.

        Args:
            board: The cluster.
            starving: In the order in which they are served.
        """
        wanted_by = {need: wanted for _, wanted, need in starving}
        shapes = dict.fromkeys(seats.shape for wanted in wanted_by.values() for seats, _ in wanted)
        # Who needs what none of these does has its minimum at first, and has nothing kept for it.
        self._beyond = board.rooms.usable(list(islice(shapes, _MOST_SHAPES)))
        # Many need the same.
        sums = {need: sum_of(board, wanted) for need, wanted in wanted_by.items()}
        for _, _, need in starving:
            if all(self._beyond[column] >= amount for column, amount in sums[need]):
                self._use(sums[need], 1)

    def most(self, workers: Seats, wish: int) -> int:
        """How many of those that were asked for a job may have, so that the others keep theirs."""
        least, beyond = workers.group.min, self._beyond
        more = wish - least
        for column, need in workers.shape.needs:
            if beyond[column] < need * more:
                more = beyond[column] // need
        return least + max(0, more)

    def took(self, workers: Seats) -> None:
        """A job has what was kept for it, and maybe more."""
        had = max(workers.group.min, workers.placed_before)
        self._use(workers.shape.needs, max(0, workers.placed - had))

    def _use(self, needs: Needs, times: int) -> None:
        for column, need in needs:
            self._beyond[column] -= need * times


# The DRAGON scheduler: first come, first served where it fits; room for who starves; then growth.
#
# 1. Waiting jobs are tried in the order in which they came. One that does not fit is passed over. A
#    job starts with as many workers as fit between its minimum and what its user asked for, on one
#    node if one can hold all.
# 2. A job that has waited for `starve_after_s`, the one that waits longest first, gets room that
#    running jobs give: workers away from their servers first, then others; never a server, never
#    worker 0, never below the minimum; all that is needed, or nothing. Those that starve at the
#    same time leave each other their minimum of what is free before any of them has more.
# 3. When nothing was started or scaled for `grow_after_s`, running jobs grow, next to their servers
#    first.


@dataclass(frozen=True, slots=True)
class Dragon:
    """See the module.

    Attributes:
        starve_after_s: How long a job waits before others give it room.
        grow_after_s: How long nothing must have changed before jobs grow.
    """

    starve_after_s: float = 30.0
    grow_after_s: float = 60.0

    @uncollected
    def plan(self, snapshot: Snapshot) -> Plan:
        """What is to change now."""
        return _Planning(self, snapshot).plan()


class _Planning:
    def __init__(self, policy: Dragon, snapshot: Snapshot) -> None:
        self._policy, self._snapshot = policy, snapshot
        self._board = Board(snapshot)
        self._standings = Standings(self._board)
        self._free = FreeRoom(self._board)
        self._starter = Starter(self._board, self._free)
        self._sources = [
            YieldedRoom(self._board, self._free, self._standings, only_lonely=only)
            for only in (True, False)
        ]
        self._by_age = sorted(self._board.jobs, key=lambda job: (job.job.submitted_s, job.key))
        self._why: dict[Seats, str] = {}

    def plan(self) -> Plan:
        for job in self._board.jobs:
            self._trim(job)
        self._serve_all()
        if not self._board.mark() and self._is_time_to_grow():
            self._grow()
            # Who has grown on one node may leave another, where somebody waits.
            self._serve_all()
        reasons = {seats.job: self._reason(seats, why) for seats, why in self._why.items()}
        return Plan(decisions_of(self._board, reasons), self._notes())

    def _serve_all(self) -> None:
        before = -1
        while before != self._board.mark():
            before = self._board.mark()
            # Who starves comes before those that came later take what is free.
            self._serve_starving()
            self._start_waiting()

    def _trim(self, job: JobSeats) -> None:
        """Down to a maximum that was lowered, lonely workers first."""
        workers = job.workers
        while workers.placed > workers.group.max:
            if workers.outside:
                self._board.remove_outside(workers)
            else:
                node = max(workers.counts, key=lambda each: (is_lonely(job, each), each))
                self._board.remove(workers, node)
            self._resize(workers, f"max is {workers.group.max}")

    def _start_waiting(self) -> None:
        failed: set[object] = set()
        for job in self._by_age:
            if not job.has_some:
                # Who needs the same as somebody before in vain need not look.
                wanted = _least(job)
                need = _need(wanted)
                most = job.workers.group.size_at_start
                if need not in failed and not self._start(job, wanted, most):
                    failed.add(need)
            elif self._starter.replace_lost(job):
                self._why.setdefault(job.workers, REPLACED)

    def _start(self, job: JobSeats, wanted: Wanted, most: int) -> bool:
        if not self._starter.start(job, wanted, most):
            return False
        self._started(job, _THERE_IS_ROOM)
        return True

    def _serve_starving(self) -> None:
        starving = [
            (job, wanted, _need(wanted))
            for job in self._waiting()
            if self._waited_s(job) >= self._policy.starve_after_s
            for wanted in (_least(job),)
        ]
        if not starving:
            return
        shared, served, failed = SharedRoom(self._board, starving), [], set[object]()
        for each in starving:
            job, workers = each[0], each[0].workers
            wish = workers.group.size_at_start
            if self._start_or_serve(each, shared.most(workers, wish), failed):
                shared.took(workers)
                served.append((job, wish))
        # What was kept was not of use to all for whom it was.
        for job, wish in served:
            if job.workers.placed < wish:
                self._starter.add_more(job, wish)
                job.workers.size = job.workers.placed

    def _start_or_serve(self, starving: _Starving, most: int, failed: set[object]) -> bool:
        job, wanted, need = starving
        is_new = not job.has_some
        # Who needs the same as somebody before in vain need not look.
        if is_new and need in failed:
            return False
        if is_new and self._start(job, wanted, most):
            return True
        if self._serve(job, wanted, most):
            failed.clear()
            return True
        if is_new:
            failed.add(need)
        return False

    def _serve(self, job: JobSeats, wanted: Wanted, most: int) -> bool:
        mark = self._board.mark()
        for source in self._sources:
            if not source.could_hold(wanted):
                continue
            if self._starter.squeeze_in(job, wanted, source, most):
                changes = self._board.changed_since(mark)
                givers = [each for each, change in changes.items() if change < 0]
                self._note_served(job, givers, self._waited_s(job))
                return True
        return False

    def _note_served(self, job: JobSeats, givers: list[Seats], waited_s: float) -> None:
        for giver in givers:
            giver.size = giver.placed
            # Most were started by this plan, which is why they have what they have.
            if giver not in self._why:
                self._why[giver] = f"{name_of(job.workers)} has waited for {waited_s:.0f} s"
        source = f"room from {listed(map(name_of, givers))}" if givers else "there is room"
        self._started(job, f"waited for {waited_s:.0f} s, {source}")

    def _grow(self) -> None:
        """One worker at a time to who has the least of its range, next to servers first."""
        free = self._free

        def add_next_to_servers(job: JobSeats) -> bool:
            return any(free.add_on(job.workers, node) for node in near_servers(job))

        def add_anywhere(job: JobSeats) -> bool:
            return bool(free.add(job.workers, near_servers(job)))

        self._grow_by(add_next_to_servers, "next to its servers")
        self._grow_by(add_anywhere, "the cluster has been idle")

    def _grow_by(self, add: Callable[[JobSeats], bool], why: str) -> None:
        able = (job.workers for job in self._board.jobs if not job.is_short)
        turns = Turns(self._standings, able)
        for workers in turns:
            if add(self._standings.job_of[workers]):
                self._resize(workers, why)
                turns.add((workers,))

    def _is_time_to_grow(self) -> bool:
        """Whether nothing has changed for long enough, as far as anybody has told."""
        told = [each.last_scaled_s for each in self._snapshot.jobs]
        changes = [at for at in (self._snapshot.last_change_s, *told) if at is not None]
        return self._snapshot.now_s - max(changes, default=-math.inf) >= self._policy.grow_after_s

    def _started(self, job: JobSeats, why: str) -> None:
        self._resize(job.workers, why)
        for seats in job.fixed:
            seats.size = seats.placed

    def _resize(self, workers: Seats, why: str) -> None:
        workers.size = workers.placed
        self._why.setdefault(workers, why)

    def _reason(self, workers: Seats, why: str) -> str:
        if why == _THERE_IS_ROOM:
            why = f"{why} on {nodes_text(self._board, self._standings.job_of[workers])}"
        return changed_text(workers, why)

    def _waiting(self) -> list[JobSeats]:
        """Who has less than its minimum, the one that waits longest first."""
        short = (job for job in self._board.jobs if job.is_short)
        return sorted(short, key=lambda job: waiting_order(job.job))

    def _waited_s(self, job: JobSeats) -> float:
        return self._snapshot.now_s - waiting_since_s(job.job)

    def _notes(self) -> tuple[Note, ...]:
        return tuple(Note(job.key, self._note(job)) for job in self._waiting())

    def _note(self, job: JobSeats) -> str:
        missing = [(each.shape, count) for each, count in _least(job)]
        waited_s = self._waited_s(job)
        text = f"waits for {waited_s:.0f} s; lacks {lacking_text(self._board.rooms, missing)}"
        left_s = self._policy.starve_after_s - waited_s
        if left_s > 0:
            return f"{text}: not free; others make room in {left_s:.0f} s if they can"
        return f"{text}: not free, and nobody can make room for all of it"


_THERE_IS_ROOM: Final = "there is room"
"""Where it is is added once all have their places."""


def _least(job: JobSeats) -> Wanted:
    """What a job lacks of its minimum."""
    return lacking(job, job.workers.group.min)


def _need(wanted: Wanted) -> object:
    """The same for jobs that need the same."""
    return tuple([(each.shape, count) for each, count in wanted])
