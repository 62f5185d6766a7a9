"""A snapshot that can be tried out: replicas are given nodes and taken from them, and taken back.

Everything is gone through in the order of names, so that a plan does not depend on the order in
which a cluster lists its objects. Here is also what a board that was tried out comes to: decisions,
how loaded the nodes are, and what is said of it.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, TypeVar

from elastic.policy.cluster import (
    CPU,
    MEMORY,
    Amounts,
    Cards,
    Decision,
    Group,
    Job,
    JobPhase,
    Placement,
    Pod,
    Snapshot,
)
from elastic.policy.placement.rooms import Pool, Rooms, Shape

BOUNDED: Final = (CPU, MEMORY)
"""The resources of which no more is given out than a part of what there is."""


class Seats:
    """Where the replicas of one group are, and how many there are to be.

    Attributes:
        job: Its job's key.
        size: How many there are to be.
        placed: How many have a node.
        placed_before: How many had one when the snapshot was taken.
        counts: By the number of the node.
        outside: By the names of nodes that take no pods any more.
        cards: By node and card, where they have parts of cards.
        limits: What one counts of `BOUNDED`.
        can_leave: Whether these are workers, of which some may leave.
    """

    __slots__ = (
        "can_leave",
        "cards",
        "counts",
        "group",
        "job",
        "limits",
        "outside",
        "placed",
        "placed_before",
        "shape",
        "size",
    )

    def __init__(self, job: str, group: Group, shape: Shape, *, can_leave: bool = False) -> None:
        self.job, self.group, self.shape = job, group, shape
        self.size = group.replicas
        self.placed = self.placed_before = 0
        self.counts: dict[int, int] = {}
        self.outside: dict[str, int] = {}
        self.cards: dict[int, dict[str, int]] = {}
        self.limits = _bounded(group.limits)
        self.can_leave = can_leave

    @property
    def surplus(self) -> int:
        """How many workers there are above the minimum."""
        return self.placed - self.group.min if self.can_leave else 0


@dataclass(frozen=True, slots=True, eq=False)
class JobSeats:
    """The groups of one job.

    Attributes:
        all: In the order in which they are started.
    """

    job: Job
    workers: Seats
    ps: Seats | None
    others: tuple[Seats, ...]
    all: tuple[Seats, ...]

    @property
    def key(self) -> str:
        """Of its job."""
        return self.workers.job

    @property
    def fixed(self) -> tuple[Seats, ...]:
        """What is started before the workers."""
        return self.all[:-1]

    @property
    def has_some(self) -> bool:
        """Whether any of it has a node."""
        # This and the next are asked of each job many times: a generator would cost more.
        for each in self.all:  # noqa: SIM110
            if each.placed:
                return True
        return False

    @property
    def is_short(self) -> bool:
        """Whether less than its minimum has nodes."""
        for each in self.all:  # noqa: SIM110
            if each.placed < each.group.min:
                return True
        return False


_Move = tuple[Seats | tuple[Seats, ...], int | str, str | None, int]
"""Replicas that were given a node, or that were taken from one: of one group or of each of several;
its number, or the name of one that takes no pods; the card, where they have one; and how many were
given it, below 0 for those that were taken. A plan makes very many, so that it is a plain tuple."""


class Board:
    """The rooms of a cluster and who is in them.

    Attributes:
        jobs: Those that are not over, in the order of their keys.
        residents: By node, the groups that have replicas there.
        loads: By the number of rules, what counts against the nodes that these admit, of `BOUNDED`.
        capacities: By the number of rules, what these nodes have.
        waiting_pods: What belongs to no job and has no node, by what it needs.
        without_jobs: By node, what would be free without any job.
        touched: Who was changed on nodes that take pods, in this order; also what was taken back.
        touched_at: On which of them.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        """Put everything where it is.

        The room of those that leave counts as free: somebody else was told to take it once they
        have gone, and is told so again until it has.
        """
        self.rooms = Rooms(snapshot)
        self.loads = [[0] * len(BOUNDED) for _ in range(self.rooms.num_rules)]
        self.capacities = self._sum_capacities()
        self.residents: list[dict[Seats, None]] = [{} for _ in self.rooms.nodes]
        self.touched: list[Seats] = []
        self.touched_at: list[int] = []
        self._journal: list[_Move] = []
        self.waiting_pods = self._seat_pods(snapshot)
        self.without_jobs = self.rooms.copy()
        jobs = sorted((j for j in snapshot.jobs if j.phase is not JobPhase.OVER), key=job_key)
        self.jobs = [self._seat_job(job) for job in jobs]
        self.rooms.open()

    def find(
        self, shape: Shape, near: Iterable[int] = (), skip: Collection[int] = ()
    ) -> int | None:
        """A node for one more: one of `near` if it can be, else the first; none of `skip`."""
        for node in near:
            if node not in skip and self.allows(shape, node) and self.rooms.fits(shape, node):
                return node
        return self.rooms.find(shape, skip=skip)

    def allows(self, shape: Shape, node: int) -> bool:
        """Whether the rules of such a pod let it run there."""
        return self.rooms.pool_of[node][0] in shape.pools

    def add(self, seats: Seats, node: int, card: str | None = None, count: int = 1) -> None:
        """Put one more on a node, or several without cards."""
        name = self._take(seats, node, card, count)
        self._count(seats, node, name, count)
        self._journal.append((seats, node, name, count))

    def add_to_each(self, alike: Sequence[Seats], node: int) -> None:
        """Put one more of each of several groups that need the same, and no cards, on a node."""
        self.rooms.take(alike[0].shape, node, len(alike))
        self._load(node, alike[0].limits, len(alike))
        for seats in alike:
            seats.placed += 1
            seats.counts[node] = seats.counts.get(node, 0) + 1
        self.residents[node].update(dict.fromkeys(alike))
        self.touched += alike
        self.touched_at += [node] * len(alike)
        self._journal.append((tuple(alike), node, None, 1))

    def remove(self, seats: Seats, node: int) -> None:
        """Take one from a node; of several cards the one that is nearest to being free."""
        card = None
        if seats.group.share is not None:
            card = self.rooms.least_used_card(node, seats.cards[node])
        self._take_off(seats, node, card)
        self._journal.append((seats, node, card, -1))

    def remove_outside(self, seats: Seats) -> None:
        """Take one from a node that takes no pods: its room is nobody's."""
        name = min(seats.outside)
        _add(seats.outside, name, -1)
        seats.placed -= 1
        self._journal.append((seats, name, None, -1))

    def mark(self) -> int:
        """A moment to which `undo` can return."""
        return len(self._journal)

    def changed_since(self, mark: int) -> dict[Seats, int]:
        """How many more each group has since then; without those that have as many."""
        changes: dict[Seats, int] = {}
        for groups, _, _, by in self._journal[mark:]:
            for seats in _each(groups):
                changes[seats] = changes.get(seats, 0) + by
        return {seats: change for seats, change in changes.items() if change}

    def return_needless(self, mark: int) -> None:
        """Put back who has left a node since then and has room there, the last first.

        Who was taken and put back since has not left.
        """
        if self.rooms.part is None and sum(by < 0 for *_, by in self._journal[mark:]) < 2:
            # One alone was taken since somebody had no room without.
            return
        moves = [
            (seats, node, by)
            for groups, node, _, by in self._journal[mark:]
            for seats in _each(groups)
            if isinstance(node, int)
        ]
        left: dict[tuple[Seats, int], int] = {}
        for seats, node, by in moves:
            left[seats, node] = left.get((seats, node), 0) - by
        for seats, node, by in reversed(moves):
            if by < 0 and left[seats, node] > 0 and self.rooms.fits(seats.shape, node):
                self.add(seats, node)
                left[seats, node] -= 1

    def undo(self, mark: int) -> None:
        """Take back all that was added and removed since; sizes are the caller's."""
        while len(self._journal) > mark:
            groups, node, card, by = self._journal.pop()
            for seats in _each(groups):
                self._undo(seats, node, card, by)

    def _undo(self, seats: Seats, node: int | str, card: str | None, by: int) -> None:
        if isinstance(node, str):
            _add(seats.outside, node, 1)
            seats.placed += 1
        elif by > 0:
            self._take_off(seats, node, card, by)
        else:
            self._take(seats, node, card, 1)
            self._count(seats, node, card, 1)

    def placement(self, seats: Seats) -> Placement:
        """By the names of nodes, in their order."""
        nodes = self.rooms.nodes
        named = {nodes[node].name: count for node, count in seats.counts.items()}
        if seats.outside:
            named.update(seats.outside)
        return named if len(named) < 2 else dict(sorted(named.items()))

    def cards(self, seats: Seats) -> Cards:
        """By the names of nodes and of cards, in their order."""
        named = {self.rooms.nodes[node].name: cards for node, cards in seats.cards.items()}
        return {name: dict(sorted(named[name].items())) for name in sorted(named)}

    def _take(self, seats: Seats, node: int, card: str | None, count: int) -> str | None:
        """Use the room of one, or of several without cards; the card."""
        if seats.shape.share is None:
            self.rooms.take(seats.shape, node, count)
            return None
        return self.rooms.take_part(seats.shape, node, _user(seats), card)

    def _take_off(self, seats: Seats, node: int, card: str | None, count: int = 1) -> None:
        self.rooms.give_back(seats.shape, node, card, count)
        self._count(seats, node, card, -count)

    def _count(self, seats: Seats, node: int, card: str | None, by: int) -> None:
        seats.placed += by
        # What `_add` does: this is done for each replica of a plan.
        there = seats.counts.get(node, 0) + by
        if there:
            seats.counts[node] = there
            self.residents[node][seats] = None
        else:
            del seats.counts[node], self.residents[node][seats]
        if card is not None:
            _add(seats.cards.setdefault(node, {}), card, by)
            if not seats.cards[node]:
                del seats.cards[node]
        self._load(node, seats.limits, by)
        self.touched.append(seats)
        self.touched_at.append(node)

    def _load(self, node: int, limits: tuple[int, int], times: int) -> None:
        cpu, memory = limits
        for number in self.rooms.pool_of[node][0].rules:
            load = self.loads[number]
            load[0] += cpu * times
            load[1] += memory * times

    def _sum_capacities(self) -> list[list[int]]:
        totals = [[0] * len(BOUNDED) for _ in range(self.rooms.num_rules)]
        for pool in self.rooms.pools:
            for at, name in enumerate(BOUNDED):
                total = sum(self.rooms.nodes[node].allocatable.get(name, 0) for node in pool.nodes)
                for number in pool.rules:
                    totals[number][at] += total
        return totals

    def _seat_pods(self, snapshot: Snapshot) -> list[Seats]:
        """Hold the room of what belongs to no job, and gather those that have no node."""
        waiting: dict[tuple[Shape, tuple[int, ...]], list[Pod]] = {}
        for pod in sorted(snapshot.pods, key=self._pod_order):
            shape = self.rooms.shape(pod.requests, pod.share, pod.rules)
            limits = _bounded(pod.limits)
            if pod.node is None:
                waiting.setdefault((shape, limits), []).append(pod)
            elif (node := self.rooms.numbers.get(pod.node)) is not None:
                self.rooms.hold(shape, node, 1, pod.card)
                self._load(node, limits, 1)
        return [Seats("", _as_group(pods), shape) for (shape, _), pods in waiting.items()]

    def _pod_order(self, pod: Pod) -> tuple[object, ...]:
        """Pods have no names here; those with parts of unknown cards are packed in this order."""
        share = (pod.share.milli, pod.share.memory_bytes) if pod.share is not None else (0, 0)
        needs, rules = sorted(pod.requests.items()), self.rooms.rules_number(pod.rules)
        return (pod.node or "", pod.card or "~", share, needs, _bounded(pod.limits), rules)

    def _seat_job(self, job: Job) -> JobSeats:
        key = job.key
        seats = [
            self._seat_group(key, group, can_leave=group is job.workers) for group in job.groups
        ]
        num_others = len(job.others)
        ps = seats[num_others] if job.ps is not None else None
        return JobSeats(job, seats[-1], ps, tuple(seats[:num_others]), tuple(seats))

    def _seat_group(self, job: str, group: Group, *, can_leave: bool) -> Seats:
        shape = self.rooms.shape(group.requests, group.share, group.rules)
        seats = Seats(job, group, shape, can_leave=can_leave)
        if not group.placement:
            return seats
        seats.placed = seats.placed_before = group.placed
        for name, count in sorted(group.placement.items()):
            if (node := self.rooms.numbers.get(name)) is None:
                seats.outside[name] = count
                continue
            seats.counts[node] = count
            self.residents[node][seats] = None
            self._load(node, seats.limits, count)
            if group.share is None:
                self.rooms.hold(shape, node, count)
                continue
            for card, users in _cards_of(group, name, count):
                for used in self.rooms.hold(shape, node, users, card):
                    _add(seats.cards.setdefault(node, {}), used, 1)
        return seats


def _each(groups: Seats | tuple[Seats, ...]) -> tuple[Seats, ...]:
    return groups if isinstance(groups, tuple) else (groups,)


K = TypeVar("K")


def job_key(job: Job) -> str:
    """For sorting."""
    return job.key


def _user(seats: Seats) -> str:
    """After whom cards are named."""
    return f"{seats.job}/{seats.group.role}"


def _bounded(limits: Amounts) -> tuple[int, int]:
    return limits.get(CPU, 0), limits.get(MEMORY, 0)


def _as_group(pods: Sequence[Pod]) -> Group:
    """Pods that need the same, and belong to no job."""
    first, count = pods[0], len(pods)
    return Group(
        count,
        count,
        count,
        first.requests,
        first.limits,
        rules=first.rules,
        share=first.share,
        role="pod",
    )


def _cards_of(group: Group, node: str, count: int) -> Iterator[tuple[str | None, int]]:
    """How many replicas on a node are on which card; None for those of which nobody has told."""
    for name, users in sorted(group.cards.get(node, {}).items()):
        yield name, min(users, count)
        count -= min(users, count)
    if count:
        yield None, count


def _add(counts: dict[K, int], key: K, by: int) -> None:
    left = counts.get(key, 0) + by
    if left:
        counts[key] = left
    else:
        del counts[key]


# The decisions that lead from a snapshot to a board that was tried out.


def decisions_of(board: Board, reasons: Mapping[str, str]) -> tuple[Decision, ...]:
    """One for each job that has changed, by `Seats.size` and by where its replicas are.

    Args:
        reasons: By the key of the job, for people.
    """
    touched = set(board.touched)
    seats_of = ((job, seats) for job in board.jobs for seats in job.all)
    # Most are as they were, which is seen without looking where they are.
    able = [(job, each) for job, each in seats_of if each in touched or _has_other_size(each)]
    after = {each: board.placement(each) for _, each in able}
    moved = {each for each in after if _has_other_size(each) or _is_elsewhere(each, after[each])}
    changed = list(dict.fromkeys(job for job, each in able if each in moved))
    left = {name for job in board.jobs for seats in job.all for name in seats.group.leaving}
    left.update(name for each in moved for name in _lost(each, after[each]))
    decisions = []
    for job in changed:
        found = {each: after[each] for each in job.all if each in moved}
        waits = bool(left) and not left.isdisjoint(_gained(found))
        decisions.append(_decision(board, job, reasons.get(job.key, ""), found, waits=waits))
    gives = {job.key: job.workers.placed <= job.workers.placed_before for job in changed}
    # What gives room comes before what takes it.
    return tuple(sorted(decisions, key=lambda each: (not gives[each.job], each.job)))


def _decision(
    board: Board, job: JobSeats, reason: str, moved: Mapping[Seats, Placement], *, waits: bool
) -> Decision:
    workers, ps = job.workers, job.ps if job.ps in moved else None
    return Decision(
        job.key,
        workers.size,
        reason,
        placement=moved[workers] if workers in moved else board.placement(workers),
        ps_replicas=ps.size if ps is not None else None,
        ps_placement=moved[ps] if ps is not None else None,
        other_placements={each.group.role: moved[each] for each in job.others if each in moved},
        cards={
            each.group.role: board.cards(each) for each in job.all if each.group.share is not None
        },
        is_after_others=waits,
    )


def _has_other_size(seats: Seats) -> bool:
    return seats.size != seats.group.replicas or seats.placed != seats.placed_before


def _is_elsewhere(seats: Seats, after: Placement) -> bool:
    return after != {name: count for name, count in seats.group.placement.items() if count}


def _gained(moved: Mapping[Seats, Placement]) -> Iterator[str]:
    for seats, after in moved.items():
        before = seats.group.placement
        yield from (name for name, count in after.items() if count > before.get(name, 0))


def _lost(seats: Seats, after: Placement) -> Iterator[str]:
    before = seats.group.placement
    return (name for name, count in before.items() if count > after.get(name, 0))


# How much of CPU and memory may be given out, by the nodes on which pods may run.


class Load:
    """The bounds of a board's loads.

    GPUs have none: they are given out whole.
    """

    def __init__(self, board: Board, max_load: float) -> None:
        self._board = board
        most = Fraction(str(max_load))
        self._bounds = [
            [math.floor(most * amount) for amount in amounts] for amounts in board.capacities
        ]

    def has_room(self, seats: Seats, pool: Pool) -> bool:
        """Whether one more on these nodes stays within all bounds that it counts against."""
        for number in pool.rules:
            load, bounds = self._board.loads[number], self._bounds[number]
            for at, limit in enumerate(seats.limits):
                if limit and load[at] + limit > bounds[at]:
                    return False
        return True

    def count(self, seats: Seats, pool: Pool, most: int) -> int:
        """How many more on these nodes stay within them, of at most so many."""
        for number in pool.rules:
            load, bounds = self._board.loads[number], self._bounds[number]
            for at, limit in enumerate(seats.limits):
                if limit:
                    most = min(most, (bounds[at] - load[at]) // limit)
        return most

    def pools_for(self, seats: Seats) -> list[Pool]:
        """Where one more stays within the bounds."""
        return [pool for pool in seats.shape.pools if self.has_room(seats, pool)]

    def excesses(self) -> Iterator[tuple[int, int]]:
        """Rules and the place in `BOUNDED` of which too much is given out, as long as it is so."""
        for number, bounds in enumerate(self._bounds):
            for at in range(len(BOUNDED)):
                while self._board.loads[number][at] > bounds[at]:
                    before = self._board.loads[number][at]
                    yield number, at
                    if self._board.loads[number][at] == before:
                        break

    def shown(self, number: int, at: int) -> str:
        """A load for people: `98% of CPU`."""
        load, capacity = self._board.loads[number][at], self._board.capacities[number][at]
        name = {"cpu": "CPU"}.get(BOUNDED[at], BOUNDED[at])
        return f"{100 * load / max(capacity, 1):.1f}% of {name} is given out"


# What is said of jobs and their changes.


REPLACED: Final = "what was lost has a node again"

_MANY: Final = 4


def listed(names: Iterable[str]) -> str:
    """The first of many, each once."""
    unique = list(dict.fromkeys(names))
    more = f" and {len(unique) - _MANY} more" if len(unique) > _MANY else ""
    return ", ".join(unique[:_MANY]) + more


def name_of(seats: Seats) -> str:
    """Of its job, without kind and namespace."""
    return seats.job.rpartition("/")[2]


def nodes_text(board: Board, job: JobSeats) -> str:
    """Where a job is."""
    nodes, names = board.rooms.nodes, set[str]()
    for each in job.all:
        names.update([nodes[node].name for node in each.counts], each.outside)
    return listed(sorted(names)) if len(names) > 1 else "".join(names)


def change_of(workers: Seats) -> int:
    """How many more workers a job is to have; a job that had none had none to have either."""
    group = workers.group
    return workers.size - (group.replicas if workers.placed_before else 0)


def changed_text(workers: Seats, why: str) -> str:
    """A change and its reason: `+2: …`; without a number where it is none."""
    change = change_of(workers)
    return f"{change:+d}: {why}" if change else why


def lacking_text(rooms: Rooms, lacking: Sequence[tuple[Shape, int]]) -> str:
    """What a job lacks: `2 x (1 CPU, 1 GPU)`."""
    return ", ".join(f"{count} x ({rooms.needs_shown(shape)})" for shape, count in lacking)
