"""The policy `goodput`: room goes where it shortens completion most for what it costs others.

Jobs are served in the order of the work they have left, the shortest first, since that lets the
most jobs end early; work counts less the older a job is, so that none waits for ever. Each takes
the size for which

    (work left / speed + cost of the change)
        x (1 + PRICE x jobs behind x share of the cluster + jobs that are left with nothing)

is least: its own time to completion, by how much its use of the cluster delays those behind, and
who could run beside it and does not. So a lonely job takes all that makes it faster, and one with
many behind it only what it makes good use of.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from elastic.policy.cluster.amounts import GPU, MILLI, Amounts
from elastic.policy.cluster.carrying_out import carried_out
from elastic.policy.cluster.free_nodes import FreeNodes, cards_in_parts, shapes_of
from elastic.policy.cluster.offers import Offer, Size, better_batch, offer_of, tells_work
from elastic.policy.cluster.placing import place, placed_by_fullness, spread
from elastic.policy.cluster.plan import Decision, Note, Plan
from elastic.policy.cluster.snapshot import Group, Job, JobPhase, Placement, Snapshot

DEFAULT_RESCALE_S: Final = 30.0
"""Where a job does not tell what a change of its size costs: most kinds are started anew."""

PRICE: Final = 2.0
"""Seconds that a second of the whole cluster costs each job behind: above 1, as more jobs come."""

KEEP: Final = 0.1
"""By how much another size has to be better than the one that a job has."""

SETTLED_S: Final = 300.0
"""A change has to pay for itself in as long as a job has kept its size, at the least in this."""

START_SHARES: Final = 1
"""Equal shares of the cluster that a job may start with before anyone has seen how fast it is."""

AGE_S: Final = 24 * 3600.0
"""A job that is so old is served as if it had half the work left."""


@dataclass(frozen=True, slots=True)
class Goodput:
    """See the module.

    Attributes:
        preempts: Whether running jobs may be stopped, or moved to other nodes. Without, a running
            job keeps its smallest size, and what stays of it stays where it is.
        rescale_s: What a change costs a job that does not tell.
    """

    preempts: bool = False
    rescale_s: float = DEFAULT_RESCALE_S

    def plan(self, snapshot: Snapshot) -> Plan:
        """See `Policy.plan`.

        What some leave may serve others better, so it is asked again until nothing changes; as each
        job changes once at a moment, this ends, and the plan, carried out, leaves nothing to do.
        """
        decisions: list[Decision] = []
        rounds = _Rounds()
        now = snapshot
        while True:
            plan = _Planning(self, now, rounds).plan()
            if not plan.decisions:
                break
            decisions.extend(plan.decisions)
            now = carried_out(now, plan)
        placed = {job.key: job.workers.placed for job in snapshot.jobs}
        # What gives room comes before what takes it.
        decisions.sort(key=lambda each: each.replicas >= placed[each.job])
        return Plan(tuple(decisions), plan.notes)


@dataclass(frozen=True, slots=True)
class _Rounds:
    """What the rounds of one plan have in common.

    Attributes:
        vacated: Nodes that some job has left in one of them.
        offers: What was found of jobs, by key; it holds for as long as the job is the same.
    """

    vacated: set[str] = field(default_factory=set)
    offers: dict[str, Offer] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Choice:
    """What a job gets: where its workers are then, and its other groups that had no node."""

    placement: dict[str, int]
    size: Size | None = None
    others: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def replicas(self) -> int:
        return sum(self.placement.values())


@dataclass(frozen=True, slots=True)
class _Price:
    """What replicas of one job cost those behind it, in seconds for each second that it has them.

    Attributes:
        each: For each replica, by what the cluster does in that time.
        spare: Replicas that nobody behind would need for a modest size.
        modest_mean: Replicas of such a size.
    """

    each: float
    spare: int
    modest_mean: float

    def of(self, replicas: int) -> float:
        """Its own second, and those of others."""
        squeezed = min(replicas, max(0, replicas - self.spare)) / self.modest_mean
        return 1 + self.each * replicas + squeezed


class _Behind:
    """The jobs not yet served: how many, and what they need to run at a modest size."""

    def __init__(self, offers: Iterable[Offer]) -> None:
        sizes = [offer.modest for offer in offers]
        self.jobs = len(sizes)
        self.modest = sum(sizes)
        self.modest_mean = max(1.0, self.modest / max(1, self.jobs))

    def leave(self, offer: Offer) -> None:
        """It is this one's turn."""
        self.jobs -= 1
        self.modest -= offer.modest


class _Planning:
    """One plan in the making.

    `_free` is what the jobs served so far have left, less what those to come are sure to keep;
    `_idle` is less all that those to come hold. Who takes what is free and not idle has others give
    way.
    """

    def __init__(self, policy: Goodput, snapshot: Snapshot, rounds: "_Rounds") -> None:
        self._policy = policy
        self._now_s = snapshot.now_s
        # Which of two equal nodes is found first must not depend on how things are listed.
        self._jobs = sorted(
            (job for job in snapshot.jobs if job.phase is not JobPhase.OVER),
            key=lambda job: job.key,
        )
        self._free = FreeNodes(snapshot.nodes)
        self._idle = FreeNodes(snapshot.nodes)
        self._shapes = shapes_of(snapshot.nodes)
        self._capacity = dict(self._free.totals)
        self._shares: dict[tuple[tuple[str, int], ...], float] = {}
        self._per_node: dict[tuple[tuple[str, int], ...], int] = {}
        self._rounds = rounds
        self._notes: list[Note] = []
        pods = [(pod.node, sorted(pod.requests.items())) for pod in snapshot.pods if pod.node]
        for node, requests in sorted(pods):
            self._take({node: 1}, dict(requests))
        for node, cards in cards_in_parts(snapshot).items():
            self._take({node: cards}, {GPU: MILLI})
        for job in self._jobs:
            self._hold(job)

    def plan(self) -> Plan:
        """Serve one job after the other."""
        offers = [self._offer(job) for job in self._jobs if not self._stays(job)]
        ranked = sorted((self._rank(offer), offer) for offer in offers)
        behind = _Behind(offer for _, offer in ranked)
        decisions = []
        for _, offer in ranked:
            behind.leave(offer)
            decision = self._serve(offer, behind)
            if decision is not None:
                decisions.append(decision)
        return Plan(tuple(decisions), tuple(self._notes))

    def _offer(self, job: Job) -> Offer:
        known = self._rounds.offers.get(job.key)
        if known is None or known.job is not job:
            known = offer_of(job, self._replicas_a_node(job.workers.requests), self._now_s)
            self._rounds.offers[job.key] = known
        return known

    # What is held.

    def _take(self, placement: Placement, requests: Amounts, sign: int = 1) -> None:
        self._free.take_all(placement, requests, sign)
        self._idle.take_all(placement, requests, sign)

    def _hold(self, job: Job) -> None:
        for group in job.groups:
            self._take(group.leaving, group.requests)
            if group is not job.workers or self._stays(job):
                self._take(group.placement, group.requests)
        if not self._stays(job):
            self._idle.take_all(job.workers.placement, job.workers.requests)
            self._free.take_all(self._kept(job), job.workers.requests)

    def _stays(self, job: Job) -> bool:
        """Whether a job is not weighed: it was changed at this very moment, or has parts of cards.

        Which card has how much left is for other policies.
        """
        is_new = job.last_scaled_s is not None and job.last_scaled_s >= self._now_s
        return is_new or any(group.share is not None for group in job.groups)

    def _kept(self, job: Job) -> dict[str, int]:
        """What nobody can take from a job: its smallest size, on the nodes that hold most of it.

        Who tells nothing of its work is never stopped: stopped, it would seem to be new.
        """
        if self._policy.preempts and tells_work(job):
            return {}
        return placed_by_fullness(job.workers.placement, job.workers.min)

    # What a job is worth.

    def _rank(self, offer: Offer) -> tuple[float, float, str]:
        job = offer.job
        age = max(0.0, self._now_s - job.submitted_s)
        work = offer.work_s * self._share(job.workers.requests)
        return (work / (1 + age / AGE_S), job.submitted_s, job.key)

    def _share(self, requests: Amounts) -> float:
        """The part of the cluster that one replica takes, of the resource it takes most of."""
        key = tuple(requests.items())
        if key not in self._shares:
            parts = [
                amount / self._capacity[name] for name, amount in key if self._capacity.get(name)
            ]
            self._shares[key] = max(parts, default=0.0)
        return self._shares[key]

    def _replicas_a_node(self, requests: Amounts) -> int:
        key = tuple(requests.items())
        if key not in self._per_node:
            held = [
                min((shape.get(each, 0) // need for each, need in key if need), default=1)
                for shape in self._shapes
            ]
            self._per_node[key] = max([1, *held])
        return self._per_node[key]

    def _cost(self, offer: Offer, size: Size, price: "_Price", is_change: bool) -> float:
        workers = offer.job.workers
        seconds = offer.remaining_samples / size.samples_per_s
        if is_change:
            told = offer.job.telling.rescale_s
            rescale_s = self._policy.rescale_s if told is None else told
            if workers.placed and offer.job.last_scaled_s is not None:
                settled_s = max(SETTLED_S, self._now_s - offer.job.last_scaled_s)
                rescale_s *= max(1.0, seconds / settled_s)
            seconds += rescale_s
        cost = seconds * price.of(size.replicas)
        return cost if is_change else cost * (1 - KEEP)

    # Serving one job.

    def _serve(self, offer: Offer, behind: "_Behind") -> Decision | None:
        job = offer.job
        kept = self._kept(job)
        self._free.take_all(kept, job.workers.requests, -1)
        others = self._place_others(job)
        choice = None
        if others is not None:
            choice = self._choose(offer, behind)
        if choice is None:
            choice = _Choice(kept)
            if job.is_waiting:
                text = f"no room for {job.workers.min} {job.workers.role}, of its smallest size"
                self._notes.append(Note(job.key, text))
        for role, placement in (others or {}).items():
            if choice.replicas:
                choice.others[role] = placement
            else:
                self._take(placement, _group(job, role).requests, -1)
        return self._settle(offer, choice)

    def _place_others(self, job: Job) -> dict[str, dict[str, int]] | None:
        """Take room for what a job needs beside its workers and lacks; None where there is none."""
        found: dict[str, dict[str, int]] = {}
        for group in job.groups[:-1]:
            missing = group.min - group.placed
            if missing <= 0:
                continue
            added = spread(group, missing, (self._idle, self._free))
            if added is None:
                for role, placement in found.items():
                    self._take(placement, _group(job, role).requests, -1)
                return None
            self._take(added, group.requests)
            found[group.role] = added
        return found

    def _choose(self, offer: Offer, behind: "_Behind") -> _Choice | None:
        """The best size that there is room for; None where there is not even room for the least."""
        if offer.model is None:
            return self._first_size(offer.job)
        job = offer.job
        now_placed = dict(job.workers.placement)
        per_node = self._replicas_a_node(job.workers.requests)
        at_most = self._free.fit_at_most(job.workers.requests)
        price = _Price(
            PRICE * behind.jobs * self._share(job.workers.requests),
            at_most - behind.modest,
            behind.modest_mean,
        )
        options = sorted(
            (
                self._cost(offer, size, price, size.replicas != job.workers.placed),
                size.replicas,
                size,
            )
            for size in offer.sizes
            if size.replicas <= at_most
        )
        best: tuple[float, _Choice] | None = None
        for expected, _, size in options:
            if best is not None and best[0] <= expected:
                break
            placement = self._place(job, size.replicas, per_node)
            if placement is None:
                continue
            real = size
            if len(placement) != -(-size.replicas // per_node):
                real = offer.speed_at(size.replicas, len(placement))
            cost = self._cost(offer, real, price, placement != now_placed)
            if best is None or cost < best[0]:
                best = (cost, _Choice(placement, real))
        return None if best is None else best[1]

    def _first_size(self, job: Job) -> _Choice | None:
        """Without a speed a job keeps what it has; one that starts gets what its user would like.

        That is the best guess there is, but no more than an equal share: nobody knows its work.
        """
        workers = job.workers
        per_node = self._replicas_a_node(workers.requests)
        if workers.placed:
            wanted = [workers.placed]
        else:
            liked = workers.size_at_start
            equal = int(START_SHARES / (len(self._jobs) * self._share(workers.requests) or 1.0))
            if equal > per_node:
                equal -= equal % per_node
            wanted = [min(liked, max(workers.min, equal)), workers.min]
        for replicas in wanted:
            placement = self._place(job, replicas, per_node)
            if placement is not None:
                return _Choice(placement)
        return None

    def _place(self, job: Job, replicas: int, per_node: int) -> dict[str, int] | None:
        indices = (self._idle, self._free)
        return place(job.workers, replicas, per_node, indices, self._free, self._policy.preempts)

    # What comes of it.

    def _settle(self, offer: Offer, choice: _Choice) -> Decision | None:
        job, workers = offer.job, offer.job.workers
        added = {
            node: count - workers.placement.get(node, 0)
            for node, count in choice.placement.items()
            if count > workers.placement.get(node, 0)
        }
        self._idle.take_all(workers.placement, workers.requests, -1)
        is_after_others = any(
            node in self._rounds.vacated
            or self._idle.fits(node, workers.requests) < choice.placement[node]
            for node in added
        )
        self._take(choice.placement, workers.requests)
        self._rounds.vacated.update(
            node
            for node, count in workers.placement.items()
            if choice.placement.get(node, 0) < count
        )
        batch = None if choice.size is None else better_batch(offer, choice.size, choice.placement)
        stays = choice.placement == dict(workers.placement)
        if stays and batch is None and not choice.others:
            return None
        if not choice.replicas and not workers.placed:
            return None
        ps = choice.others.pop(job.ps.role, None) if job.ps is not None else None
        return Decision(
            job=job.key,
            replicas=choice.replicas,
            reason=_reason(offer, choice, batch),
            placement=choice.placement,
            ps_replicas=None if ps is None or job.ps is None else job.ps.min,
            ps_placement=ps,
            other_placements=choice.others,
            is_after_others=is_after_others,
            global_batch_size=batch,
        )


def _group(job: Job, role: str) -> Group:
    return next(group for group in job.groups if group.role == role)


def _reason(offer: Offer, choice: _Choice, batch: int | None) -> str:
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
    if after < before:
        return f"-{before - after}: others make more of the room, {ends}"
    if batch is not None:
        return f"batch {batch}: {ends}"
    return f"moves to {len(choice.placement)} nodes: {ends}"
