"""What runs on a simulated cluster: its jobs, and what is free on its nodes.

Of a job: what it has, how far it is, and what policies see of it. Of the nodes: their room, and a
stand-in for Kubernetes' scheduler.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from elastic.policy.cluster import (
    CPU,
    GPU,
    MEMORY,
    MILLI,
    PODS,
    Amounts,
    Cards,
    Group,
    Job,
    JobPhase,
    Node,
    Placement,
    Rules,
    Share,
    Speed,
    Telling,
)
from elastic.simulation.outcome import JobRun
from elastic.simulation.workload import Constant, Submission, Tells

_UNBOUNDED: Final = 1 << 62
"""How many pods a node runs that tells no bound."""


@dataclass(slots=True)
class _Card:
    """A GPU of which parts are in use."""

    milli: int = 0
    memory_bytes: int = 0
    users: int = 0


class Rooms:
    """Counts what each node has left; never gives out what is not there."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._free = {node.name: {PODS: _UNBOUNDED} | dict(node.allocatable) for node in nodes}
        self._cards: dict[str, dict[str, _Card]] = {node.name: {} for node in nodes}
        self.used: dict[str, int] = {}
        self.cards_in_use = 0
        self.shared_milli = 0
        """Thousandths of those cards that are given out."""

    def take(
        self,
        node: str,
        requests: Amounts,
        count: int,
        share: Share | None = None,
        cards: Mapping[str, int] | None = None,
    ) -> str:
        """Give pods their room.

        Args:
            node: Where they go.
            requests: Of each.
            count: How many.
            share: The part of a GPU that each has.
            cards: How many go on each card, where they have parts.

        Returns:
            Why there is none, which ends a simulation; empty where all have theirs.
        """
        free = self._free.get(node)
        if free is None:
            return "there is no such node"
        for resource, amount in requests.items():
            if amount * count > free.get(resource, 0):
                left = free.get(resource, 0)
                return f"{count} x {amount} {resource} is more than the {left} that are free"
        if share is not None and (lack := self._take_cards(node, share, count, cards or {})):
            return lack
        for resource, amount in requests.items():
            self._count(node, resource, amount * count)
        return ""

    def give_back(
        self,
        node: str,
        requests: Amounts,
        count: int,
        share: Share | None = None,
        cards: Mapping[str, int] | None = None,
    ) -> None:
        """Take pods away again; `cards` says on which they were."""
        for resource, amount in requests.items():
            self._count(node, resource, -amount * count)
        if share is None:
            return
        for name, users in (cards or {}).items():
            card = self._cards[node][name]
            card.milli -= share.milli * users
            card.memory_bytes -= share.memory_bytes * users
            card.users -= users
            self.used[GPU] = self.used.get(GPU, 0) - share.milli * users
            self.shared_milli -= share.milli * users
            if card.users == 0:
                del self._cards[node][name]
                self._free[node][GPU] += MILLI
                self.cards_in_use -= 1

    def card_for(self, node: str, share: Share) -> str | None:
        """The first card in use with so much left, else a new one; None where there is none."""
        most_bytes = self._nodes[node].card_memory_bytes
        cards = self._cards[node]
        for name in sorted(cards):
            if self._fits(cards[name], share, most_bytes):
                return name
        if self._free[node].get(GPU, 0) < MILLI or not self._fits(_Card(), share, most_bytes):
            return None
        return next(f"card-{i}" for i in range(len(cards) + 1) if f"card-{i}" not in cards)

    def best_node(self, requests: Amounts, rules: Rules, share: Share | None) -> str | None:
        """Where Kubernetes would put a pod: on the node that has most left by then.

        Its default scheduler scores by the free parts of CPU and memory.
        """
        best, best_score = None, -1.0
        for name, node in self._nodes.items():
            free = self._free[name]
            if any(amount > free.get(resource, 0) for resource, amount in requests.items()):
                continue
            if not node.is_ready or node.is_unschedulable:
                continue
            if not rules.admit(name, node.labels, node.taints):
                continue
            if share is not None and self.card_for(name, share) is None:
                continue
            score = sum(
                (free.get(each, 0) - requests.get(each, 0)) / max(1, node.allocatable.get(each, 0))
                for each in (CPU, MEMORY)
            )
            if score > best_score:
                best, best_score = name, score
        return best

    def _take_cards(self, node: str, share: Share, count: int, cards: Mapping[str, int]) -> str:
        most_bytes = self._nodes[node].card_memory_bytes
        if sum(cards.values()) != count:
            return f"cards are told for {sum(cards.values())} of {count} pods"
        for name, users in cards.items():
            card = self._cards[node].get(name)
            wanted = Share(share.milli * users, share.memory_bytes * users)
            if not self._fits(card or _Card(), wanted, most_bytes):
                return f"card {name} has no room for {users} x {share.milli / MILLI:g} of it"
            if card is None and self._free[node].get(GPU, 0) < MILLI:
                return f"no GPU is left for card {name}"
            if card is None:
                card = self._cards[node][name] = _Card()
                self._free[node][GPU] -= MILLI
                self.cards_in_use += 1
            card.milli += wanted.milli
            card.memory_bytes += wanted.memory_bytes
            card.users += users
            self.used[GPU] = self.used.get(GPU, 0) + wanted.milli
            self.shared_milli += wanted.milli
        return ""

    @staticmethod
    def _fits(card: _Card, share: Share, most_bytes: int | None) -> bool:
        if card.milli + share.milli > MILLI:
            return False
        return most_bytes is None or card.memory_bytes + share.memory_bytes <= most_bytes

    def _count(self, node: str, resource: str, amount: int) -> None:
        self._free[node][resource] = self._free[node].get(resource, 0) - amount
        self.used[resource] = self.used.get(resource, 0) + amount


@dataclass(slots=True)
class Replicas:
    """The replicas of one role.

    Attributes:
        wanted: How many there are to be.
        placement: How many each node has; without nodes that have none.
        cards: On which cards they are, where they have parts.
        first_node: Where replica 0 is.
    """

    group: Group
    wanted: int = 0
    placement: dict[str, int] = field(default_factory=dict)
    cards: dict[str, dict[str, int]] = field(default_factory=dict)
    first_node: str | None = None

    @property
    def placed(self) -> int:
        """How many have a node."""
        return sum(self.placement.values())

    def view(self) -> Group:
        """As policies see it."""
        return replace(
            self.group,
            replicas=self.wanted,
            placement=dict(self.placement),
            cards={node: dict(each) for node, each in self.cards.items()},
            first_node=self.first_node,
        )

    def place(self, rooms: Rooms, placement: Placement, cards: Cards | None) -> str:
        """Be where somebody has decided; what goes gives its room to what comes.

        Returns:
            What is wrong with it; empty where it was done.
        """
        group = self.group
        for node, count in list(self.placement.items()):
            if (fewer := placement.get(node, 0)) < count:
                self._leave(rooms, node, count - fewer, (cards or {}).get(node))
        for node, count in placement.items():
            if (more := count - self.placement.get(node, 0)) <= 0:
                continue
            on = self._new_cards(rooms, node, more, (cards or {}).get(node))
            if lack := rooms.take(node, group.requests, more, group.share, on):
                return f"{more} {group.role} on {node}: {lack}"
            self._come(node, more, on)
        return ""

    def put(self, rooms: Rooms, node: str) -> None:
        """Have one more replica on a node that has room for it."""
        on = self._new_cards(rooms, node, 1, None)
        lack = rooms.take(node, self.group.requests, 1, self.group.share, on)
        assert not lack, lack
        self._come(node, 1, on)

    def shrink(self, rooms: Rooms, wanted: int) -> None:
        """Have no more than so many: who waits for a node goes first, then who is with the fewest.

        Replica 0 is the last to go.
        """
        self.wanted = wanted
        while self.placed > wanted:
            node = min(
                self.placement,
                key=lambda name: (name == self.first_node, self.placement[name], name),
            )
            self._leave(rooms, node, 1, None)

    def _come(self, node: str, count: int, on: Mapping[str, int]) -> None:
        self.placement[node] = self.placement.get(node, 0) + count
        if self.first_node is None:
            self.first_node = node
        for card, users in on.items():
            here = self.cards.setdefault(node, {})
            here[card] = here.get(card, 0) + users

    def _leave(
        self, rooms: Rooms, node: str, count: int, staying: Mapping[str, int] | None
    ) -> None:
        off: dict[str, int] = {}
        if self.group.share is not None:
            off = self._left_cards(node, count, staying)
        rooms.give_back(node, self.group.requests, count, self.group.share, off)
        for card, users in off.items():
            self.cards[node][card] -= users
            if not self.cards[node][card]:
                del self.cards[node][card]
        self.placement[node] -= count
        if not self.placement[node]:
            del self.placement[node]
            self.cards.pop(node, None)
            if node == self.first_node:
                self.first_node = min(self.placement, default=None)

    def _left_cards(
        self, node: str, count: int, staying: Mapping[str, int] | None
    ) -> dict[str, int]:
        """Which cards are left: those that are not told, or else the last by their names."""
        off: dict[str, int] = {}
        here = self.cards[node]
        for card in sorted(here, reverse=True):
            keep = 0 if staying is None else staying.get(card, 0)
            gone = min(count - sum(off.values()), max(0, here[card] - keep))
            if gone:
                off[card] = gone
        return off

    def _new_cards(
        self, rooms: Rooms, node: str, count: int, told: Mapping[str, int] | None
    ) -> dict[str, int]:
        """Which cards are taken in addition: those that are told, or else by first fit.

        First fit is asked for one replica: more of them at once are told by their policy.
        """
        share = self.group.share
        if share is None:
            return {}
        here = self.cards.get(node, {})
        if told is not None:
            more = {card: users - here.get(card, 0) for card, users in told.items()}
            return {card: users for card, users in more.items() if users > 0}
        card = rooms.card_for(node, share)
        return {card: count} if card is not None else {}


class RunningJob:
    """A job from its submission to its end."""

    def __init__(self, submission: Submission, rescale_s: float) -> None:
        job = submission.job
        self.submission = submission
        self.key = job.key
        self.workers = Replicas(job.workers)
        self.ps = None if job.ps is None else Replicas(job.ps)
        self.others = [Replicas(each) for each in job.others]
        self.started_s: float | None = None
        self.ended_s: float | None = None
        self.last_scaled_s: float | None = None
        self.waiting_since_s: float | None = job.submitted_s
        self.scale_actions = 0
        self.sizes: list[tuple[float, int]] = []
        self.version = 0
        """Of what it has: an end that was foreseen for another is none."""
        self._rescale_s = 0.0 if isinstance(submission.work.speed, Constant) else rescale_s
        self._done_s = 0.0
        self._pause_s = 0.0
        self._since_s = job.submitted_s
        self._rate = 0.0
        self._seen: dict[tuple[int, int], float] = {}
        self._base = submission.work.speed.at(submission.asked, 1)
        self._view: Job | None = job

    @property
    def groups(self) -> Iterator[Replicas]:
        """All roles, in the order in which they are started."""
        yield from self.others
        if self.ps is not None:
            yield self.ps
        yield self.workers

    @property
    def is_whole(self) -> bool:
        """Whether its smallest size has nodes."""
        return all(each.placed >= each.group.min for each in self.groups)

    @property
    def is_at_most(self) -> bool:
        """Whether it runs and can have no more."""
        return self.is_whole and all(each.placed >= each.group.max for each in self.groups)

    def changed(self, now_s: float) -> None:
        """What it has is another by now: get on at another speed, or begin, or wait."""
        self._advance(now_s)
        self._view = None
        self.version += 1
        size = self.workers.placed
        before = self.sizes[-1][1] if self.sizes else 0
        if size != before:
            self._resized(now_s, size)
        nodes = len(self.workers.placement)
        work = self.submission.work
        self._rate = work.speed.at(size, nodes) / self._base if self.is_whole else 0.0
        if self._rate and not isinstance(work.speed, Constant):
            self._seen[size, nodes] = self._rate * work.samples_per_s
        if self.is_whole:
            self.started_s = now_s if self.started_s is None else self.started_s
            self.waiting_since_s = None
        elif self.waiting_since_s is None:
            self.waiting_since_s = now_s

    def _resized(self, now_s: float, size: int) -> None:
        self.sizes.append((now_s, size))
        if self.started_s is not None:
            self.scale_actions += 1
            self.last_scaled_s = now_s
            self._pause_s = self._rescale_s

    def end_s(self, now_s: float) -> float | None:
        """When its work is done if nothing changes; None while it does not get on."""
        if not self._rate:
            return None
        left_s = self.submission.work.seconds - self._done_s
        return now_s + self._pause_s + max(0.0, left_s) / self._rate

    def finish(self, rooms: Rooms, now_s: float) -> None:
        """Give back all that it has."""
        self._advance(now_s)
        self.ended_s = now_s
        for each in self.groups:
            each.shrink(rooms, 0)
        self.sizes.append((now_s, 0))
        self.version += 1

    def _advance(self, now_s: float) -> None:
        passed_s = now_s - self._since_s
        self._since_s = now_s
        paused_s = min(self._pause_s, passed_s)
        self._pause_s -= paused_s
        self._done_s += (passed_s - paused_s) * self._rate

    def view(self, now_s: float) -> Job:
        """As policies see it."""
        job = self.submission.job
        if self._view is None:
            is_begun = any(each.wanted for each in self.groups)
            self._view = replace(
                job,
                workers=self.workers.view() if is_begun else job.workers,
                ps=job.ps if self.ps is None or not is_begun else self.ps.view(),
                others=tuple(each.view() for each in self.others) if is_begun else job.others,
                phase=JobPhase.RUNNING if self.is_whole else JobPhase.WAITING,
                last_scaled_s=self.last_scaled_s,
                waiting_since_s=self.waiting_since_s,
            )
        if self.submission.work.tells is not Tells.NOTHING:
            # How much remains is another number at each moment.
            self._view = replace(self._view, telling=self._telling(now_s))
        return self._view

    def _telling(self, now_s: float) -> Telling:
        self._advance(now_s)
        work, told = self.submission.work, self.submission.job.telling
        speeds = tuple(Speed(*size, speed) for size, speed in sorted(self._seen.items()))
        told = replace(told, speeds=told.speeds + speeds, rescale_s=self._rescale_s)
        if work.tells is Tells.SPEED:
            return told
        return replace(
            told,
            remaining_samples=max(0.0, work.seconds - self._done_s) * work.samples_per_s,
            total_samples=work.seconds * work.samples_per_s,
        )

    def run(self) -> JobRun:
        """What became of it."""
        job = self.submission.job
        fixed: dict[str, int] = {}
        for group in (*job.others, *((job.ps,) if job.ps else ())):
            for resource, amount in group.requests.items():
                fixed[resource] = fixed.get(resource, 0) + amount * group.min
        amounts = dict(job.workers.requests)
        if job.workers.share is not None:
            amounts["nvidia.com/gpu"] = amounts.get("nvidia.com/gpu", 0) + job.workers.share.milli
        return JobRun(
            self.key,
            job.workers.min,
            job.workers.max,
            self.submission.asked,
            job.submitted_s,
            self.started_s,
            self.ended_s,
            tuple(self.sizes),
            self.scale_actions,
            amounts,
            fixed,
        )
