"""The policy `goodput`: room goes where it shortens completion most for what it costs others.

Who has less work left comes before others, since that lets the most jobs end early; work counts
less the older a job is, and who has waited for very long comes first, so that none waits for ever.
By that order each job has sizes that are worth most to all of them together (`sharing`): a lonely
job takes all that makes it faster, of several the first to end gets the most, and one with many
behind it only what it makes good use of. A running job keeps its smallest size where it is, unless
it may be stopped, and moved, and tells of its work.

Some room it gives without weighing: to jobs with parts of GPUs, and to pods of others. Nobody
learns how fast a job is on parts of cards, so it gets its smallest size, as the fulfillment policy
gives it: who waits longest comes first, others give what they have above their smallest size, and
after a while nodes are kept for it. Pods of no job that have no node yet are given room in the same
way.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Final, NamedTuple

from elastic.policy.cluster import (
    GPU,
    MILLI,
    Amounts,
    Decision,
    Group,
    Job,
    JobPhase,
    Note,
    Placement,
    Plan,
    Snapshot,
    carried_out,
    is_gpu,
    uncollected,
)
from elastic.policy.placement.board import Board, JobSeats, Load, decisions_of, listed
from elastic.policy.placement.placing import (
    FreeNodes,
    Need,
    cards_in_parts,
    place,
    placed_by_fullness,
    shapes_of,
    spread,
)
from elastic.policy.scaling.claims import Claims, Giving
from elastic.policy.scaling.offers import (
    Offer,
    Size,
    alike_of,
    better_batch,
    is_in_parts,
    may_be_moved,
    may_be_stopped,
    offers_of,
    rank,
)
from elastic.policy.scaling.sharing import SETTLED_S, Sharer, Target, targets_of
from elastic.policy.scaling.standings import Reasons, Standings, waiting_since_s

_ALL: Final = 1.0
"""All of CPU and memory may be given out."""


@dataclass(frozen=True, slots=True)
class Given:
    """What came of it.

    Attributes:
        held: Nodes to which pods are to come: what one needs, and how many.
        kept_for: Who has waited longest of those that waited too long; also one that is weighed.
        kept: Nodes to which nobody else comes.
        seats: By role, how these nodes could hold what that job lacks.
    """

    decisions: tuple[Decision, ...] = ()
    notes: tuple[Note, ...] = ()
    held: tuple[tuple[str, Amounts, int], ...] = ()
    kept_for: str | None = None
    kept: frozenset[str] = frozenset()
    seats: Mapping[str, Placement] = field(default_factory=dict)


def give_minimums(snapshot: Snapshot, starve_after_s: float) -> Given:
    """Give room to all who lack some and are not weighed.

    Args:
        snapshot: The cluster.
        starve_after_s: How long a job waits, weighed or not, before nodes are kept for it.
    """
    has_to = any(
        job.is_waiting and job.phase is not JobPhase.OVER
        for job in snapshot.jobs
        if snapshot.now_s - waiting_since_s(job) >= starve_after_s or is_in_parts(job)
    )
    if not has_to and all(pod.node is not None for pod in snapshot.pods):
        return Given()
    board = Board(snapshot)
    standings = Standings(board)
    reasons, load = Reasons(board, standings), Load(board, _ALL)
    giving = Giving(board, standings)
    claims = Claims(board, giving, load, reasons, snapshot.now_s, starve_after_s)
    claims.serve(_is_served)
    for seats in (seats for job in board.jobs for seats in job.all):
        if seats.placed != seats.group.placed:
            seats.size = max(seats.group.min, seats.placed)
    return Given(
        decisions_of(board, reasons.texts()),
        claims.notes(_is_served),
        tuple(_held(board)),
        claims.kept_for,
        frozenset(board.rooms.nodes[node].name for node in claims.kept),
        _seats(board, claims),
    )


def _seats(board: Board, claims: Claims) -> dict[str, dict[str, int]]:
    """By role, how the kept nodes could hold what is lacking."""
    seats: dict[str, dict[str, int]] = {}
    left = {shape: dict(nodes) for shape, nodes in claims.seating.items()}
    job = next((each for each in board.jobs if each.key == claims.kept_for), None)
    for group in () if job is None else job.all:
        lacking = group.group.min - group.placed
        for node, count in left.get(group.shape, {}).items():
            here = min(count, max(0, lacking))
            lacking -= here
            left[group.shape][node] -= here
            if here:
                seats.setdefault(group.group.role, {})[board.rooms.nodes[node].name] = here
    return seats


def _held(board: Board) -> Iterator[tuple[str, Amounts, int]]:
    for pods in board.waiting_pods:
        requests = dict(pods.group.requests)
        if pods.group.share is not None:
            # Which card it will be on nobody knows yet: one to itself is enough for sure.
            requests[GPU] = requests.get(GPU, 0) + MILLI
        for node, count in pods.counts.items():
            yield board.rooms.nodes[node].name, requests, count


def _is_served(job: JobSeats) -> bool:
    return is_in_parts(job.job)


# One plan of the policy `goodput`: what each job is to have is known before any gets its nodes.
#
# The room that jobs hold is looked at in two ways: `free` is what the jobs served so far have left,
# less what those to come are sure to keep; `idle` is less all that those to come hold. Who takes
# what is free and not idle has others give way.


START_SHARES: Final = 1
"""Equal shares of the cluster that a job may start with before anyone has seen how fast it is."""


SHORT: Final = 0.003
"""What jobs got is worth so much less than what they were to have: they are served once more."""

ROUNDS: Final = 4
"""So often at most who found less room than it was to have leaves the rest to others."""

_NO_BOUND: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Terms:
    """See `Goodput`.

    Attributes:
        rescale_by_kind_s: What a change costs jobs of a kind, where some of it tell that.
    """

    rescale_s: float
    starve_after_s: float
    rescale_by_kind_s: Mapping[str, float] = field(default_factory=dict)

    def rescale_of(self, job: Job) -> float:
        """What a change costs a job: as it tells, else as others of its kind do."""
        if job.telling.rescale_s is not None:
            return job.telling.rescale_s
        return self.rescale_by_kind_s.get(job.kind, self.rescale_s)


@dataclass(frozen=True, slots=True)
class Choice:
    """What a job gets.

    Attributes:
        placement: Where its workers are then.
        value: See `Target`; 0 where it was not weighed.
        others: By role, where more of its other groups are then.
    """

    placement: dict[str, int]
    size: Size | None = None
    value: float = 0.0
    others: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def replicas(self) -> int:
        """All its workers."""
        return sum(self.placement.values())


@dataclass(slots=True)
class _Served:
    """A job whose turn it was, and what it got."""

    offer: Offer
    choice: Choice
    is_after_others: bool
    is_short: bool


class _Ranked(NamedTuple):
    """A job in its order.

    Attributes:
        share: The part of the cluster that one worker takes, of what it takes most of.
        resource: What that is; None where a worker needs nothing.
    """

    rank: tuple[float, float, str]
    offer: Offer
    share: float
    resource: str | None


class _Weighed(NamedTuple):
    """A job as it shares room, what it is to have of that, and how many replicas that is."""

    sharer: Sharer
    target: Target
    replicas: int


class _Limit(NamedTuple):
    """What a job was found to have room for, None for all it was to have, and `Target.worth_s`."""

    replicas: int | None
    worth_s: float


@dataclass(slots=True)
class _Attempt:
    """Jobs that were served.

    Attributes:
        value: What that is worth: see `Target`.
        views: What is left: idle, and free.
    """

    served: list[_Served]
    notes: list[Note]
    value: float
    views: tuple[FreeNodes, FreeNodes]


class Serving:
    """One plan in the making."""

    def __init__(self, terms: Terms, snapshot: Snapshot, given: Given) -> None:
        self._terms, self._given, self._now_s = terms, given, snapshot.now_s
        # Which of two equal nodes is found first must not depend on how things are listed.
        jobs = sorted(
            (job for job in snapshot.jobs if job.phase is not JobPhase.OVER),
            key=lambda job: job.key,
        )
        self._alike = alike_of(snapshot.jobs, snapshot.shown)
        self._weighed = [job for job in jobs if not self._stays(job)]
        self._num_jobs = len(jobs)
        self._free = FreeNodes(snapshot.nodes)
        self._shapes = shapes_of(snapshot.nodes)
        self._needs: dict[int, Need] = {}
        self._kept_of: dict[int, Mapping[str, int]] = {}
        self._scarcest: dict[Need, tuple[float, str | None]] = {}
        self._per_node: dict[Need, int] = {}
        self._notes: list[Note] = []
        self._left: set[str] = set()
        """Nodes that some job has left by this plan."""
        self._weighed_of: dict[str, _Weighed] = {}
        self._limits: dict[str, _Limit] = {}
        self._hold_pods(snapshot, given)
        for job in jobs:
            self._hold(job)
        self._held = self._free

    def plan(self) -> Plan:
        """Serve all, and again where there was less room than there seemed to be."""
        now_s = self._now_s
        needs = [self._need(job.workers) for job in self._weighed]
        per_node = list(map(self._replicas_a_node, self._weighed, needs))
        offers = offers_of(self._weighed, per_node, now_s, self._alike)
        scarce = map(self._scarce, self._weighed, needs)
        ranked = [
            _Ranked(rank(offer, share, now_s), offer, share, resource)
            for offer, (share, resource) in zip(offers, scarce, strict=True)
        ]
        ranked.sort()
        best = self._best(ranked)
        if not any(map(_begins, best.served)):
            best = max(best, self._standing(ranked, best.notes), key=_value)
        decisions = (self._decision(each) for each in best.served)
        return Plan(tuple(each for each in decisions if each is not None), tuple(best.notes))

    def _best(self, ranked: Sequence[_Ranked]) -> _Attempt:
        """Of a few attempts."""
        best = self._attempt(ranked, self._turn_of_those_that_stay)
        enough = (1 - SHORT) * sum(each.target.value for each in self._weighed_of.values())
        if best.value < enough:
            best = max(best, self._attempt(ranked, self._turn_by_rank), key=_value)
        last = best
        for _ in range(ROUNDS):
            is_enough = best.value >= enough and not self._is_idle(best)
            if is_enough or not self._limit(last):
                break
            last = self._attempt(ranked, self._turn_of_those_that_stay)
            best = max(best, last, key=_value)
        return best

    def _attempt(self, ranked: Sequence[_Ranked], turn: Callable[[_Ranked], int]) -> _Attempt:
        """Serve one job after the other."""
        self._open()
        first, served = self._given.kept_for, list[_Served]()
        starving = [each for each in ranked if each.offer.job.key == first]
        for each in starving:
            served.append(self._serve(each.offer, is_first=True))
            if served[-1].is_short:
                self._note_kept(each.offer.job)
        if not starving or served[-1].is_short:
            self._close()
        others = [each for each in ranked if each.offer.job.key != first] if starving else ranked
        served += [self._serve(each.offer) for each in others if not each.offer.is_seen]
        seen = [each for each in others if each.offer.is_seen]
        self._weigh(seen)
        turns = {resource: turn for turn, resource in enumerate(_in_order(seen))}
        seen.sort(key=lambda each: (turn(each), turns[each.resource]))
        served += [self._serve(each.offer) for each in seen]
        value = sum(each.choice.value for each in served)
        for done in reversed(served):
            self._restore(done)
        return _Attempt(served, self._notes, value, (self._idle, self._free))

    def _is_idle(self, attempt: _Attempt) -> bool:
        """Whether there seems to be room for who is left with nothing."""
        waiting: dict[Need, int] = {}
        for workers in (each.offer.job.workers for each in attempt.served if each.is_short):
            need = self._need(workers)
            waiting[need] = min(workers.min, waiting.get(need, workers.min))
        view = attempt.views[0]
        return any(
            view.fit_at_most(need) >= least and view.roomiest(need, ()) is not None
            for need, least in waiting.items()
        )

    def _standing(self, ranked: Sequence[_Ranked], notes: list[Note]) -> _Attempt:
        """All have what they have; worth nothing where that may not be.

        What is changed is worth more than this, so that nothing goes back and forth.
        """
        served, value = list[_Served](), 0.0
        self._open()
        for each in ranked:
            offer, workers = each.offer, each.offer.job.workers
            weighed = self._weighed_of.get(offer.job.key)
            need, size = self._need(workers), None
            is_over = any(self._idle.is_over(node, need) for node in workers.placement)
            lacks = workers.placed and any(group.placed < group.min for group in offer.job.groups)
            is_given = weighed is None and offer.is_seen
            if workers.placed > workers.max or is_over or lacks or is_given:
                return _Attempt([], notes, -1.0, (self._idle, self._free))
            if workers.placed and weighed is not None:
                size = offer.speed_at(workers.placed, len(workers.placement))
                value += weighed.target.value_of(weighed.sharer, size.samples_per_s, stays=True)
            choice = Choice(dict(workers.placement), size)
            served.append(_Served(offer, choice, is_after_others=False, is_short=False))
        return _Attempt(served, notes, value, (self._idle, self._free))

    def _open(self) -> None:
        """Have all that jobs hold as it was before any was served."""
        self._free, self._notes, self._left = self._held.copy(), [], set()
        # Where none of them runs both are the same, and looking twice finds nothing more.
        runs = any(job.workers.placement for job in self._weighed)
        self._idle = self._free.copy() if runs else self._free
        self._views = (self._idle, self._free) if runs else (self._free,)
        for job in self._weighed if runs else ():
            need, kept = self._need(job.workers), self._kept(job)
            for node, count in job.workers.placement.items():
                self._idle.hold(node, need, count)
            for node, count in kept.items():
                self._free.hold(node, need, count)
        for view in self._views:
            view.open()

    def _turn_of_those_that_stay(self, each: _Ranked) -> int:
        """Who keeps nodes, or gives some of them, comes before who takes more.

        So none moves because another came to nodes that were its own.
        """
        placed, replicas = each.offer.job.workers.placed, self._to_have(each)
        if placed and replicas <= placed:
            return 0
        return 1 if replicas else 2

    def _turn_by_rank(self, each: _Ranked) -> int:
        """Who ends first may come to the nodes of others, and have them move."""
        return 1 if self._to_have(each) else 2

    def _to_have(self, each: _Ranked) -> int:
        return self._weighed_of[each.offer.job.key].replicas

    # What is held.

    def _hold_pods(self, snapshot: Snapshot, given: Given) -> None:
        """What belongs to no job, and what has parts of cards."""
        pods = [(pod.node, pod.requests, 1) for pod in snapshot.pods if pod.node is not None]
        for node, requests, count in (*pods, *given.held):
            self._free.hold(node, self._free.need(requests), count)
        for node, cards in cards_in_parts(snapshot).items():
            self._free.hold(node, self._free.need({GPU: MILLI}), cards)

    def _hold(self, job: Job) -> None:
        """What a job is not asked about."""
        for group in job.groups:
            if not (group.placement or group.leaving):
                continue
            need = self._need(group)
            for node, count in group.leaving.items():
                self._free.hold(node, need, count)
            if group is not job.workers or self._stays(job):
                for node, count in group.placement.items():
                    self._free.hold(node, need, count)

    def _need(self, group: Group) -> Need:
        # Groups live as long as the snapshot, and looking at what they request takes longer.
        found = self._needs.get(id(group))
        if found is None:
            found = self._needs[id(group)] = self._free.need(group.requests, group.rules)
        return found

    def _stays(self, job: Job) -> bool:
        """Whether a job is not weighed: it was changed at this very moment, or has parts of cards.

        Which card has how much left is for others (`give_minimums`).
        """
        is_new = job.last_scaled_s is not None and job.last_scaled_s >= self._now_s
        return is_new or is_in_parts(job)

    def _kept(self, job: Job) -> Mapping[str, int]:
        """What nobody can take from a job: its smallest size, on the nodes that hold most of it.

        But one that may be stopped keeps nothing.
        """
        workers = job.workers
        if not workers.placement or may_be_stopped(job):
            return {}
        kept = self._kept_of.get(id(job))
        if kept is None:
            is_least = workers.placed <= workers.min
            all_of_it = workers.placement
            kept = all_of_it if is_least else placed_by_fullness(all_of_it, workers.min)
            self._kept_of[id(job)] = kept
        return kept

    # What a job is worth.

    def _scarce(self, job: Job, need: Need) -> tuple[float, str | None]:
        """Of what a replica takes the largest part of the cluster's: the part, and of what."""
        found = self._scarcest.get(need)
        if found is None:
            parts = [
                (amount / capacity, name)
                for name, amount in job.workers.requests.items()
                if amount and (capacity := self._free.capacity(name))
            ]
            found = self._scarcest[need] = max(parts, default=(0.0, None))
        return found

    def _weigh(self, ranked: Sequence[_Ranked]) -> None:
        """What each job is to have, of what is free or theirs.

        Jobs share what is scarcest to them. Those that want cards come first, and what they take
        beside cards the others have no more.
        """
        if self._weighed_of:
            return
        taken: dict[str, float] = {}
        for resource in _in_order(ranked):
            some = [each for each in ranked if each.resource == resource]
            owned = [self._owned(each.offer.job) for each in some]
            sharers = [self._sharer(each) for each in some]
            room = 1.0
            if resource is not None:
                free = self._free.total(resource) - taken.get(resource, 0.0)
                room = free / self._free.capacity(resource)
                room += sum(each.share * held for each, held in zip(some, owned, strict=True))
            worths_s = None
            if self._limits:
                worths_s = [self._limits[each.offer.job.key].worth_s for each in some]
            targets = targets_of(sharers, room, worths_s)
            for each, held, sharer, target in zip(some, owned, sharers, targets, strict=True):
                workers = each.offer.job.workers
                replicas = 0 if target.place is None else sharer.sizes.replicas[target.place]
                self._weighed_of[each.offer.job.key] = _Weighed(sharer, target, replicas)
                for name, amount in workers.requests.items() if replicas > held else ():
                    taken[name] = taken.get(name, 0.0) + amount * (replicas - held)

    def _limit(self, attempt: _Attempt) -> bool:
        """Have those for which there was less room than they were to have ask for no more."""
        found = False
        for each in attempt.served:
            weighed = self._weighed_of.pop(each.offer.job.key, None)
            if weighed is not None:
                key = each.offer.job.key
                before = self._limits.get(key)
                most = None if before is None else before.replicas
                if each.choice.replicas < weighed.replicas:
                    most, found = each.choice.replicas, True
                self._limits[key] = _Limit(most, weighed.target.worth_s)
        return found

    def _owned(self, job: Job) -> int:
        """How many of its replicas hold what is in no total: those it keeps, or on lost nodes."""
        placement = job.workers.placement
        if not placement:
            return 0
        kept = self._kept(job)
        return sum(
            kept.get(node, 0) if node in self._free else count for node, count in placement.items()
        )

    def _sharer(self, each: _Ranked) -> Sharer:
        offer, workers, resource = each.offer, each.offer.job.workers, each.resource
        settled_s = math.inf
        if workers.placed and offer.job.last_scaled_s is not None:
            settled_s = max(SETTLED_S, self._now_s - offer.job.last_scaled_s)
        beside = 0.0
        if resource is not None and len(offer.job.groups) > 1:
            lacks = (
                group.requests.get(resource, 0) * max(0, group.min - group.placed)
                for group in offer.job.groups[:-1]
            )
            beside = sum(lacks) / self._free.capacity(resource)
        sizes, limit = offer.sizes, self._limits.get(offer.job.key)
        if limit is not None and limit.replicas is not None:
            sizes = sizes.up_to(limit.replicas)
        return Sharer(
            sizes,
            each.share,
            beside,
            workers.placed,
            offer.remaining_samples,
            self._terms.rescale_of(offer.job),
            settled_s,
            may_wait=not self._kept(offer.job),
        )

    def _replicas_a_node(self, job: Job, need: Need) -> int:
        if need not in self._per_node:
            requests = [(each, count) for each, count in job.workers.requests.items() if count]
            held = [
                min((shape.get(each, 0) // count for each, count in requests), default=1)
                for shape in self._shapes
            ]
            self._per_node[need] = max([1, *held])
        return self._per_node[need]

    # Serving one job.

    def _serve(self, offer: Offer, *, is_first: bool = False) -> _Served:
        job = offer.job
        others, choice = self._place_others(job), None
        if others is not None:
            # Who waited too long has its smallest size at once, and is weighed by the next plan.
            is_given = is_first or not offer.is_seen
            choice = self._given_size(job, is_first=is_first) if is_given else self._choose(offer)
        if choice is None and is_first:
            for role, placement in (others or {}).items():
                self._take(placement, self._need(_group(job, role)), -1)
            others, choice = self._as_kept(job)
        is_short = choice is None and job.is_waiting
        if choice is None:
            choice = Choice(dict(self._kept(job)))
            if is_short:
                text = f"no room for {job.workers.min} {job.workers.role}, of its smallest size"
                self._notes.append(Note(job.key, text))
        for role, placement in (others or {}).items():
            if choice.replicas:
                choice.others[role] = placement
            else:
                self._take(placement, self._need(_group(job, role)), -1)
        return self._settle(offer, choice, is_short=is_short)

    def _as_kept(self, job: Job) -> tuple[dict[str, dict[str, int]] | None, Choice | None]:
        """Its smallest size where nodes are kept for it, if they have the room now."""
        others = {role: dict(each) for role, each in self._given.seats.items()}
        workers = others.pop(job.workers.role, {})
        for role, placement in others.items():
            self._take(placement, self._need(_group(job, role)))
        need = self._need(job.workers)
        has_room = all(self._free.fits(node, need) >= count for node, count in workers.items())
        fixed = (self._need(_group(job, role)) for role in others)
        is_over = any(self._free.is_over(node, each) for each in fixed for node in self._given.kept)
        if has_room and not is_over and self._given.seats:
            return others, Choice(_whole(job.workers, workers))
        for role, placement in others.items():
            self._take(placement, self._need(_group(job, role)), -1)
        return None, None

    def _close(self) -> None:
        """Have nobody come to the nodes that are kept."""
        for view in self._views:
            view.close(self._given.kept)

    def _note_kept(self, job: Job) -> None:
        nodes = listed(sorted(self._given.kept))
        self._notes.append(
            Note(job.key, f"{self._notes.pop().text}; kept for it as others end: {nodes}")
        )

    def _take(self, placement: Placement, need: Need, sign: int = 1) -> None:
        for view in self._views:
            view.take_all(placement, need, sign)

    def _place_others(self, job: Job) -> dict[str, dict[str, int]] | None:
        """Take room for what a job needs beside its workers and lacks; None where there is none."""
        found: dict[str, dict[str, int]] = {}
        if job.ps is None and not job.others:
            return found
        for group in job.groups[:-1]:
            missing = group.min - group.placed
            if missing <= 0:
                continue
            need = self._need(group)
            added = spread(need, missing, self._views)
            if added is None:
                for role, placement in found.items():
                    self._take(placement, self._need(_group(job, role)), -1)
                return None
            self._take(added, need)
            found[group.role] = added
        return found

    def _choose(self, offer: Offer) -> Choice | None:
        """What it is to have, else the best that there is room for; None without any.

        One that was to have nothing may start with what is left if it can be stopped again. What
        others have for good is not there for shorter ones, which are to come.
        """
        job, need = offer.job, self._need(offer.job.workers)
        placed, now_placed = job.workers.placed, job.workers.placement
        # Most that wait find none: this comes before all else.
        if not now_placed and not self._has_room(need):
            return None
        sharer, target, replicas = self._weighed_of[job.key]
        if target.place is None and (placed or not may_be_stopped(job)):
            return None
        per_node, own, sizes = self._replicas_a_node(job, need), self._own(job, need), offer.sizes
        if target.place is not None:
            placement = self._place(job, need, replicas, own)
            if placement is not None and len(placement) == -(-replicas // per_node):
                return Choice(placement, sizes.at(target.place), target.value)
        at_most = self._free.fit_at_most(need) + self._owned(job)
        options = []
        for at, (replicas, rate) in enumerate(
            zip(sizes.replicas, sizes.samples_per_s, strict=True)
        ):
            if replicas > at_most:
                break
            value = target.value_of(sharer, rate, stays=replicas == placed)
            options.append((target.price * replicas - value, replicas, at))
        most, best = math.inf, None
        for expected, replicas, at in sorted(options):
            if most <= expected:
                break
            placement = self._place(job, need, replicas, own)
            if placement is None:
                continue
            if len(placement) == -(-replicas // per_node):
                real = sizes.at(at)
            else:
                real = offer.speed_at(replicas, len(placement))
            stays = placement == now_placed
            value = target.value_of(sharer, real.samples_per_s, stays=stays)
            cost = target.price * replicas - value
            if cost < most:
                most, best = cost, Choice(placement, real, value)
        return best

    def _has_room(self, need: Need) -> bool:
        """Whether any node has room for one more."""
        # Asked of all that wait: a generator would cost more.
        for view in self._views:  # noqa: SIM110
            if view.roomiest(need, ()) is not None:
                return True
        return False

    def _given_size(self, job: Job, *, is_first: bool) -> Choice | None:
        """Without a speed a job keeps what it has; one that starts gets what its user would like.

        That is the best guess there is, but no more than an equal share: nobody knows its work.
        """
        workers, need = job.workers, self._need(job.workers)
        if is_first:
            wanted = [max(workers.min, workers.placed)]
        elif workers.placed:
            wanted = [workers.placed]
        else:
            per_node = self._replicas_a_node(job, need)
            share = self._scarce(job, need)[0]
            equal = int(START_SHARES / (self._num_jobs * share or 1.0))
            if equal > per_node:
                equal -= equal % per_node
            wanted = [min(workers.size_at_start, max(workers.min, equal)), workers.min]
        own = self._own(job, need)
        for replicas in wanted:
            placement = self._place(job, need, replicas, own)
            if placement is not None:
                return Choice(placement)
        return None

    def _own(self, job: Job, need: Need) -> dict[str, int]:
        """How many a job may have on each of its nodes."""
        kept = self._kept(job)
        own: dict[str, int] = {}
        for node, count in job.workers.placement.items():
            if node not in self._free:
                # What is on nodes that take no pods stays there: its room is nobody's.
                own[node] = count
            else:
                most = self._free.fits(node, need, kept.get(node, 0))
                own[node] = min(most, count) if self._free.is_closed(node) else most
        return own

    def _place(
        self, job: Job, need: Need, replicas: int, own: Mapping[str, int]
    ) -> dict[str, int] | None:
        return place(
            job.workers.placement,
            need,
            replicas,
            self._replicas_a_node(job, need),
            self._views,
            own,
            may_move=may_be_moved(job),
        )

    # What comes of it.

    def _settle(self, offer: Offer, choice: Choice, *, is_short: bool) -> _Served:
        workers, need = offer.job.workers, self._need(offer.job.workers)
        before, after = workers.placement, choice.placement
        is_after_others = False
        for node, count in after.items():
            had = before.get(node, 0)
            if count > had and (node in self._left or self._idle.fits(node, need, had) < count):
                is_after_others = True
        # Of one that does not run nothing is held in either.
        for view, held in zip(self._views, (before, self._kept(offer.job)), strict=False):
            self._exchange(view, held, after, need)
        self._left.update(node for node, count in before.items() if after.get(node, 0) < count)
        return _Served(offer, choice, is_after_others, is_short)

    @staticmethod
    def _exchange(index: FreeNodes, before: Placement, after: Placement, need: Need) -> None:
        for node in sorted({*before, *after}) if before else sorted(after):
            index.take(node, need, after.get(node, 0) - before.get(node, 0))

    def _restore(self, served: _Served) -> None:
        """Let a job keep what it would give and nobody has taken, unless it is faster without."""
        offer, choice = served.offer, served.choice
        workers = offer.job.workers
        if not workers.placement or choice.replicas >= min(workers.placed, workers.max):
            return
        need, back = self._need(workers), dict(choice.placement)
        for node, count in sorted(workers.placement.items()):
            lost = count - back.get(node, 0)
            if lost > 0 and (room := min(lost, self._room(node, need))):
                back[node] = back.get(node, 0) + room
        replicas = sum(back.values())
        # One that lacks some of its smallest size keeps what it has, or nothing.
        if replicas == choice.replicas or replicas < min(workers.min, workers.placed):
            return
        size = offer.speed_at(replicas, len(back)) if offer.is_seen else None
        is_slower = size and choice.size and size.samples_per_s <= choice.size.samples_per_s
        if not is_slower:
            for view in self._views:
                self._exchange(view, choice.placement, back, need)
            served.choice = replace(choice, placement=back, size=size)

    def _room(self, node: str, need: Need) -> int:
        """How many more a job may have on a node that it has left."""
        return self._free.fits(node, need) if node in self._free else _NO_BOUND

    def _decision(self, served: _Served) -> Decision | None:
        offer, choice = served.offer, served.choice
        job, workers = offer.job, offer.job.workers
        batch = None if choice.size is None else better_batch(offer, choice.size, choice.placement)
        stays = choice.placement == workers.placement
        if stays and batch is None and not choice.others:
            return None
        if not choice.replicas and not workers.placed:
            return None
        others = {role: _whole(_group(job, role), more) for role, more in choice.others.items()}
        ps = others.pop(job.ps.role, None) if job.ps is not None else None
        return Decision(
            job=job.key,
            replicas=choice.replicas,
            reason=_reason(offer, choice, batch),
            placement=choice.placement,
            ps_replicas=None if ps is None or job.ps is None else job.ps.min,
            ps_placement=ps,
            other_placements=others,
            is_after_others=served.is_after_others,
            global_batch_size=batch,
        )


def _begins(served: _Served) -> bool:
    """Whether a job is started that will not be stopped for others again."""
    job = served.offer.job
    is_started = served.choice.replicas and not job.workers.placed
    return bool(is_started) and not (served.offer.is_seen and may_be_stopped(job))


def _value(attempt: _Attempt) -> float:
    return attempt.value


def _in_order(ranked: Iterable[_Ranked]) -> list[str | None]:
    """What they want most of, cards first: who wants these has no other nodes."""
    resources = {each.resource for each in ranked}
    return sorted(resources, key=lambda each: (not is_gpu(each or ""), each or ""))


def _group(job: Job, role: str) -> Group:
    return next(group for group in job.groups if group.role == role)


def _whole(group: Group, more: Placement) -> dict[str, int]:
    """Those of a group that have nodes, and more."""
    nodes = sorted({*group.placement, *more})
    return {node: group.placement.get(node, 0) + more.get(node, 0) for node in nodes}


def _reason(offer: Offer, choice: Choice, batch: int | None) -> str:
    """Why, for people."""
    before, after = offer.job.workers.placed, choice.replicas
    if not after:
        return f"-{before}: its room goes to jobs with less work left"
    if choice.size is None:
        return f"+{after - before}: starts, to be seen at work" if after > before else "gives way"
    left_s = offer.remaining_samples / choice.size.samples_per_s
    ends = f"ends in about {left_s:,.0f} s"
    if not before:
        return f"+{after}: starts, {ends}"
    was = offer.speed_at(before, len(offer.job.workers.placement)).samples_per_s
    if after > before:
        return f"+{after - before}: {ends} instead of {offer.remaining_samples / was:,.0f} s"
    if after < before and choice.size.samples_per_s >= was:
        return f"-{before - after}: no slower without, {ends}"
    if after < before:
        return f"-{before - after}: others make more of the room, {ends}"
    if batch is not None:
        return f"batch {batch}: {ends}"
    return f"moves to {len(choice.placement)} nodes: {ends}"


DEFAULT_RESCALE_S: Final = 30.0
"""Where a job does not tell what a change of its size costs: most kinds are started anew."""

DEFAULT_STARVE_AFTER_S: Final = 24 * 3600.0
"""What waits counts more and more; this is for what does not get its turn by that."""


@dataclass(frozen=True, slots=True)
class Goodput:
    """See the module.

    Attributes:
        rescale_s: What a change costs a job that does not tell, nor any other of its kind.
        starve_after_s: How long a job waits before it is served first, and nodes are kept for it,
            to which nobody else comes.
    """

    rescale_s: float = DEFAULT_RESCALE_S
    starve_after_s: float = DEFAULT_STARVE_AFTER_S

    @uncollected
    def plan(self, snapshot: Snapshot) -> Plan:
        """See `Policy.plan`.

        A moment has one plan: sizes that were changed at this very moment were changed by it.
        """
        if any(job.last_scaled_s == snapshot.now_s for job in snapshot.jobs):
            return Plan()
        given = give_minimums(snapshot, self.starve_after_s)
        now = carried_out(snapshot, Plan(given.decisions))
        by_kind = _rescale_by_kind(snapshot.jobs)
        terms = Terms(self.rescale_s, self.starve_after_s, by_kind)
        served = Serving(terms, now, given).plan()
        decisions = [*given.decisions, *served.decisions]
        placed = {job.key: job.workers.placed for job in snapshot.jobs}
        # What gives room comes before what takes it.
        decisions.sort(key=lambda each: each.replicas >= placed[each.job])
        return Plan(tuple(decisions), (*given.notes, *served.notes))


def _rescale_by_kind(jobs: Iterable[Job]) -> dict[str, float]:
    """What changes cost the jobs of each kind that tell it, in the mean."""
    told: dict[str, list[float]] = {}
    for job in jobs:
        if job.telling.rescale_s is not None:
            told.setdefault(job.kind, []).append(job.telling.rescale_s)
    return {kind: fmean(costs) for kind, costs in told.items()}
