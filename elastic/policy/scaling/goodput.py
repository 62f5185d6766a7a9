"""The policy `goodput`: room goes where it shortens completion most for what it costs others.

Jobs are served in the order of the work they have left, the shortest first, since that lets the
most jobs end early; work counts less the older a job is, and who has waited for very long comes
first, so that none waits for ever. A running job keeps its smallest size where it is, unless it may
be stopped, and moved, and tells of its work. Each takes the size for which

    (work left / speed + cost of the change)
        x (1 + PRICE x jobs behind x share of the cluster + jobs that are left with nothing)

is least: its own time to completion, by how much its use of the cluster delays those behind, and,
where the work it has left is a guess, who could run beside it and does not. So a lonely job takes
all that makes it faster, and one with many behind it only what it makes good use of. PRICE is
above 1 since more jobs are to come. To one that chooses its batch, which makes good use of more, it
is below as far as those behind have room without it; but it counts who would not have even its
least.

Some room it gives without weighing: to jobs with parts of GPUs, and to pods of others. Nobody
learns how fast a job is on parts of cards, so it gets its smallest size, as the fulfillment policy
gives it: who waits longest comes first, others give what they have above their smallest size, and
after a while nodes are kept for it. Pods of no job that have no node yet are given room in the same
way.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Final

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
    Behind,
    Costs,
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


# One plan of the policy `goodput`: jobs are served in turn, those to come kept in mind.
#
# The room that jobs hold is looked at in two ways: `free` is what the jobs served so far have left,
# less what those to come are sure to keep; `idle` is less all that those to come hold. Who takes
# what is free and not idle has others give way.


START_SHARES: Final = 1
"""Equal shares of the cluster that a job may start with before anyone has seen how fast it is."""


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
        others: By role, where more of its other groups are then.
    """

    placement: dict[str, int]
    size: Size | None = None
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
        self._shares: dict[Need, float] = {}
        self._per_node: dict[Need, int] = {}
        self._notes: list[Note] = []
        self._left: set[str] = set()
        """Nodes that some job has left by this plan."""
        self._hold_pods(snapshot, given)
        for job in jobs:
            self._hold(job)
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

    def plan(self) -> Plan:
        """Serve one job after the other."""
        now_s = self._now_s
        needs = [self._need(job.workers) for job in self._weighed]
        per_node = list(map(self._replicas_a_node, self._weighed, needs))
        offers = offers_of(self._weighed, per_node, now_s, self._alike)
        ranked = sorted(
            (rank(offer, self._share(offer.job, need), now_s), offer, self._may_change(offer.job))
            for offer, need in zip(offers, needs, strict=True)
        )
        behind = Behind(offer for _, offer, may_change in ranked if may_change)
        first = self._given.kept_for
        if first is not None:
            ranked.sort(key=lambda each: each[1].job.key != first)
        if not ranked or ranked[0][1].job.key != first:
            self._close()
        served = []
        for _, offer, may_change in ranked:
            if may_change:
                behind.leave(offer)
            is_first = first is not None and offer.job.key == first
            served.append(self._serve(offer, behind, is_first=is_first))
            if is_first and served[-1].is_short:
                self._note_kept(offer.job)
                self._close()
        for each in reversed(served):
            self._restore(each)
        decisions = (self._decision(each) for each in served)
        return Plan(tuple(each for each in decisions if each is not None), tuple(self._notes))

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

    def _may_change(self, job: Job) -> bool:
        """Whether a job could have more than it has, or lose some of it."""
        return sum(self._kept(job).values()) < job.workers.max

    # What a job is worth.

    def _share(self, job: Job, need: Need) -> float:
        """The part of the cluster that one replica takes, of the resource it takes most of."""
        if need not in self._shares:
            parts = [
                amount / capacity
                for name, amount in job.workers.requests.items()
                if (capacity := self._free.capacity(name))
            ]
            self._shares[need] = max(parts, default=0.0)
        return self._shares[need]

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

    def _serve(self, offer: Offer, behind: Behind, *, is_first: bool) -> _Served:
        job = offer.job
        others = self._place_others(job)
        choice = None if others is None else self._choose(offer, behind)
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

    def _choose(self, offer: Offer, behind: Behind) -> Choice | None:
        """The best size that there is room for; None where there is not even room for the least."""
        if not offer.is_seen:
            return self._first_size(offer.job)
        job, need = offer.job, self._need(offer.job.workers)
        placed, now_placed = job.workers.placed, job.workers.placement
        # Most that wait find none: this comes before all else.
        if not now_placed and not self._has_room(need):
            return None
        per_node, own = self._replicas_a_node(job, need), self._own(job, need)
        at_most = self._free.fit_at_most(need)
        if placed:
            at_most += sum(self._kept(job).values())
            at_most += sum(count for node, count in now_placed.items() if node not in self._free)
        is_guess = job.telling.remaining_samples is None
        share, chooses_batch = self._share(job, need), offer.elastic is not None
        price = behind.price(share, at_most, is_guess=is_guess, chooses_batch=chooses_batch)
        costs = Costs.of(offer, price, self._terms.rescale_of(job), self._now_s)
        sizes, unchanged, changed = offer.sizes, costs.unchanged, costs.changed
        options = costs.expected(sizes, placed, at_most)
        options.sort()
        best: tuple[float, Choice] | None = None
        for expected, replicas, at in options:
            if best is not None and best[0] <= expected:
                break
            placement = self._place(job, need, replicas, own)
            if placement is None:
                continue
            if len(placement) == -(-replicas // per_node):
                real = sizes.at(at)
            else:
                real = offer.speed_at(replicas, len(placement))
            weigh = unchanged if placement == now_placed else changed
            cost = weigh(replicas, real.samples_per_s)
            if best is None or cost < best[0]:
                best = (cost, Choice(placement, real))
        return None if best is None else best[1]

    def _has_room(self, need: Need) -> bool:
        """Whether any node has room for one more."""
        # Asked of all that wait: a generator would cost more.
        for view in self._views:  # noqa: SIM110
            if view.roomiest(need, ()) is not None:
                return True
        return False

    def _first_size(self, job: Job) -> Choice | None:
        """Without a speed a job keeps what it has; one that starts gets what its user would like.

        That is the best guess there is, but no more than an equal share: nobody knows its work.
        """
        workers, need = job.workers, self._need(job.workers)
        if workers.placed:
            wanted = [workers.placed]
        else:
            per_node = self._replicas_a_node(job, need)
            equal = int(START_SHARES / (self._num_jobs * self._share(job, need) or 1.0))
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
