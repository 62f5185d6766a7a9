"""Who has less than its minimum, and how it comes to it: by room from the most fulfilled jobs.

They give one worker at a time, and never below their minimum.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, islice, permutations
from typing import Final, NamedTuple

from elastic.policy.cluster import Note
from elastic.policy.placement.board import Board, JobSeats, Load, Seats, lacking_text, listed
from elastic.policy.placement.making_room import (
    MayLeave,
    Seating,
    Spare,
    make_room,
    seating_to_keep,
)
from elastic.policy.placement.rooms import MaxTree, Pool, Shape
from elastic.policy.scaling.standings import (
    ExactScore,
    Reasons,
    Standings,
    exact_score,
    least_size,
    needs_gpu,
    servers_for,
    waiting_order,
    waiting_since_s,
)

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
        givers = self._above(floor)
        # Who could give is known at once, and what each node could have free is not.
        first = next(givers, None)
        if first is None or not self._spare.could_hold(shape):
            return None

        def may_leave(seats: Seats, node: int) -> int:
            if seats.surplus <= 0:
                return 0
            return min(seats.counts.get(node, 0), seats.placed - least_size(seats.group, floor))

        for giver in chain((first,), givers):
            for node in self._nodes_of(giver, shape):
                if room := self._made(shape, node, may_leave):
                    return room
        return None

    def _above(self, floor: ExactScore) -> Iterator[Seats]:
        """Who can give one and does not fall below a score, of the most fulfilled ones."""
        for giver in islice(self._standings.most_fulfilled(), MOST_GIVERS):
            if not floor.is_below(exact_score(giver.group, giver.placed)):
                return
            if giver.placed > least_size(giver.group, floor):
                yield giver

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


# Who has less than its minimum, and how it comes to it.


_MOST_ORDERS: Final = 6
"""In how many orders the groups of a job are tried: all of three."""

Missing = tuple[tuple[Shape, int], ...]
"""What a job lacks: pods of a shape, and how many."""


class Claims:
    """Gives minimums to jobs, and nodes to pods of others that have none.

    Attributes:
        kept: Nodes on which nobody is started and nobody grows, but the job that they are kept for.
        seating: How they could hold that job.
    """

    def __init__(
        self,
        board: Board,
        giving: Giving,
        load: Load,
        reasons: Reasons,
        now_s: float,
        starve_after_s: float,
    ) -> None:
        self._board, self._giving, self._load, self._reasons = board, giving, load, reasons
        self._now_s, self._starve_after_s = now_s, starve_after_s
        self.kept: frozenset[int] = frozenset()
        self.seating: Seating = {}
        self._kept_for: JobSeats | None = None
        self._begun = {job for job in board.jobs if job.has_some}
        self._is_one_half_begun = False
        self._too_large: set[Missing] = set()

    def missing(self, job: JobSeats) -> Missing:
        """What it lacks of its minimum."""
        lacking = ((each.shape, each.group.min - each.placed) for each in job.all)
        return tuple((shape, count) for shape, count in lacking if count > 0)

    def is_begun(self, job: JobSeats) -> bool:
        """Whether it has something, or is to be started without having all of its minimum."""
        return job in self._begun

    def serve(self, is_served: Callable[[JobSeats], bool] = lambda _: True) -> None:
        """Give room to all who lack some: pods of others first, then who waits longest.

        Args:
            is_served: Of which jobs; of all by default. For others nodes are kept, no more.
        """
        self.kept, self._kept_for = frozenset(), None
        self._too_large.clear()
        for pods in self._board.waiting_pods:
            self._serve_pods(pods)
        failed: set[Missing] = set()
        waiting = self._waiting()
        self._is_one_half_begun = any(job in self._begun for job in waiting)
        for job in waiting:
            missing = self.missing(job)
            if not is_served(job):
                self._keep_for(job, missing)
                continue
            # Who needs the same as somebody in vain before need not look.
            if missing not in failed:
                givers = self._start(job)
                if givers is not None:
                    if givers:
                        failed.clear()
                    continue
                failed.add(missing)
            self._keep_for(job, missing)
            self._begin(job)

    def reseat_pods(self) -> bool:
        """Put pods without a node where they would go if they came only now; whether any moved.

        Kubernetes has not placed them yet: what was found for them at first, when there was less
        room, binds nobody, and the next plan starts from here.
        """
        mark, pods = self._board.mark(), self._board.waiting_pods
        before = [dict(each.counts) for each in pods]
        for each in pods:
            for node in [node for node, count in each.counts.items() for _ in range(count)]:
                self._board.remove(each, node)
        has_given = [self._serve_pods(each) for each in pods]
        if any(has_given) or [each.counts for each in pods] != before:
            return True
        self._board.undo(mark)
        return False

    def notes(self, is_served: Callable[[JobSeats], bool] = lambda _: True) -> tuple[Note, ...]:
        """On those who still lack some, the one that waits longest first."""
        waiting = filter(is_served, self._waiting())
        return tuple(Note(job.key, self._note(job)) for job in waiting)

    def _waiting(self) -> list[JobSeats]:
        short = (job for job in self._board.jobs if job.is_short)
        return sorted(short, key=lambda job: waiting_order(job.job))

    def _serve_pods(self, pods: Seats) -> bool:
        """Give nodes to pods that have none, as far as there is room; whether a job gave any."""
        has_given = False
        while pods.placed < pods.size:
            room = self._giving.room(pods.shape, frozenset())
            if room is None:
                break
            self._board.add(pods, room.node)
            self._reasons.given_to_pods(room.givers)
            has_given = has_given or bool(room.givers)
        return has_given

    def _start(self, job: JobSeats) -> list[Seats] | None:
        """Give a job all that it lacks; who gave it. None, and nothing changed, without room."""
        lacking = [seats for seats in job.all if seats.placed < seats.group.min]
        # Servers that are first where they can be may take the only node that holds a worker.
        for order in islice(permutations(lacking), _MOST_ORDERS):
            givers = self._start_in_order(job, order)
            if givers is not None:
                return givers
        return None

    def _start_in_order(self, job: JobSeats, order: Sequence[Seats]) -> list[Seats] | None:
        mark, rooms, idle = self._board.mark(), self._board.rooms, ""
        givers: list[Seats] = []
        skip = self._not_for(job)
        for seats in order:
            while seats.placed < seats.group.min:
                room = self._giving.room(seats.shape, skip)
                if room is None:
                    self._board.undo(mark)
                    return None
                idle = idle or self._reasons.idle(seats.shape, room.node)
                most = seats.group.min - seats.placed
                # Where others had to leave there is room for one.
                count = 1 if room.givers else rooms.count(seats.shape, room.node, most)
                self._board.add(seats, room.node, count=count)
                givers += room.givers
        self._reasons.started(job, givers, idle)
        self._begun.add(job)
        return givers

    def _not_for(self, job: JobSeats) -> frozenset[int]:
        return frozenset() if job is self._kept_for else self.kept

    def _keep_for(self, job: JobSeats, missing: Missing) -> None:
        """From now on nobody else is started where this one can be first, if it waits too long."""
        waited_s = self._now_s - waiting_since_s(job.job)
        if self._kept_for is None and waited_s >= self._starve_after_s:
            self.seating = self._seating(missing)
            self.kept = frozenset(node for nodes in self.seating.values() for node in nodes)
            self._kept_for = job if self.kept else None

    def _seating(self, missing: Missing) -> Seating:
        """Where it could be once others have ended; nowhere if it could never be."""
        if missing in self._too_large:
            return {}
        stuck = [job for job in self._waiting() if job.has_some]
        seating = seating_to_keep(self._board, missing, self._giving.may_leave, stuck)
        if not seating:
            self._too_large.add(missing)
        return seating

    @property
    def kept_for(self) -> str | None:
        """The key of the job that nodes are kept for."""
        return self._kept_for.key if self._kept_for is not None else None

    def _begin(self, job: JobSeats) -> None:
        """Start a job that needs no GPU, with as much as has room.

        One at a time: two that are half started could wait for each other for ever. None that could
        never have all of it: it would hold what it has for ever. And each only where the rest can
        join it.
        """
        if not self.is_begun(job) and (self._is_one_half_begun or needs_gpu(job.job)):
            return
        mark = -1
        # Once a part has its place the rest may have a better one.
        while mark != self._board.mark() and (seating := self._seating(self.missing(job))):
            if not self.is_begun(job):
                self._begun.add(job)
                self._is_one_half_begun = True
                self._reasons.begun(job)
            mark = self._board.mark()
            for seats in job.all:
                self._put(seats, seating.get(seats.shape, {}), self._not_for(job))

    def _put(self, seats: Seats, nodes: Mapping[int, int], skip: frozenset[int]) -> None:
        """As many as have room; nobody has to give for what is not enough."""
        for node, count in nodes.items():
            for _ in range(0 if node in skip else count):
                if seats.placed < seats.group.min and self._has_room(seats, node):
                    self._board.add(seats, node)
                    self._too_large.clear()

    def _has_room(self, seats: Seats, node: int) -> bool:
        rooms = self._board.rooms
        return rooms.fits(seats.shape, node) and self._load.has_room(seats, rooms.pool(node))

    def _is_too_large(self, job: JobSeats) -> bool:
        return any(self._is_shape_too_large(shape) for shape, _ in self.missing(job))

    def _is_shape_too_large(self, shape: Shape) -> bool:
        trees = (self._without_jobs[pool] for pool in shape.pools)
        return not any(True for tree in trees for _ in tree.all(shape.needs))

    @cached_property
    def _without_jobs(self) -> dict[Pool, MaxTree]:
        """What nodes could hold if all jobs had ended."""
        rooms, rows = self._board.rooms, self._board.without_jobs
        return {pool: rooms.tree(pool, rows) for pool in rooms.pools}

    def _note(self, job: JobSeats) -> str:
        rooms = self._board.rooms
        missing = self.missing(job)
        waited_s = self._now_s - waiting_since_s(job.job)
        text = f"waits for {waited_s:.0f} s; lacks {lacking_text(rooms, missing)}"
        if self._is_too_large(job):
            return f"{text}: no node could ever hold that, of those where its rules let it run"
        if job is self._kept_for:
            names = sorted(rooms.nodes[node].name for node in self.kept)
            return f"{text}: kept for it as others end: {listed(names)}"
        return f"{text}: not free, and nobody has so much above their minimum"
