"""What places pods with parts of cards: DRAGON, and two plain ways to compare it with."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, Protocol

from elastic.policy.cluster import CPU, GPU, MEMORY, MILLI, Job, Node, Snapshot, carried_out
from elastic.policy.scaling.dragon import Dragon


class Column(Protocol):
    """Places pods one after the other; who finds no room goes away."""

    def come(self, pods: Sequence[Job]) -> set[str]:
        """Give pods nodes, in this order; the names of those that have one now."""
        ...

    def leave(self, names: Collection[str]) -> None:
        """Some have ended."""
        ...


class ByDragon:
    """The policy `dragon`, of which nobody gives anything: a pod has one worker."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._policy = Dragon(starve_after_s=math.inf)
        self._now = Snapshot(0.0, tuple(nodes), ())

    def come(self, pods: Sequence[Job]) -> set[str]:
        """See `Column`."""
        before = self._now
        there = Snapshot(before.now_s + 1, before.nodes, (*before.jobs, *pods))
        after = carried_out(there, self._policy.plan(there))
        jobs = tuple(each for each in after.jobs if not each.is_waiting)
        self._now = Snapshot(after.now_s, after.nodes, jobs)
        return {each.name for each in jobs} & {each.name for each in pods}

    def leave(self, names: Collection[str]) -> None:
        """See `Column`."""
        now = self._now
        jobs = tuple(each for each in now.jobs if each.name not in names)
        self._now = Snapshot(now.now_s, now.nodes, jobs)


@dataclass(slots=True)
class _Room:
    """What is free on one node; of each card so many thousandths."""

    cpu: int
    memory: int
    cards: list[int]

    def take(self, pod: Job, cards: Sequence[int], sign: int = 1) -> None:
        """Give a pod its room, or take it back where `sign` is -1."""
        workers = pod.workers
        self.cpu -= sign * workers.requests.get(CPU, 0)
        self.memory -= sign * workers.requests.get(MEMORY, 0)
        milli = workers.share.milli if workers.share is not None else MILLI
        for card in cards:
            self.cards[card] -= sign * milli


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a pod could be: which cards of which node, and what is left beside it."""

    room: _Room
    cards: Sequence[int]
    left: int


class Fit:
    """Nodes and their cards in the order in which they are listed, of which one is chosen."""

    def __init__(
        self, nodes: Sequence[Node], choose: Callable[[Iterator[_Place]], _Place | None]
    ) -> None:
        self._choose = choose
        self._there: dict[str, tuple[Job, _Place]] = {}
        self._rooms = [
            _Room(
                node.allocatable[CPU],
                node.allocatable[MEMORY],
                [MILLI] * (node.allocatable[GPU] // MILLI),
            )
            for node in nodes
        ]

    def come(self, pods: Sequence[Job]) -> set[str]:
        """See `Column`."""
        for pod in pods:
            place = self._choose(self._places(pod))
            if place is not None:
                place.room.take(pod, place.cards)
                self._there[pod.name] = pod, place
        return self._there.keys() & {pod.name for pod in pods}

    def leave(self, names: Collection[str]) -> None:
        """See `Column`."""
        for name in names:
            pod, place = self._there.pop(name)
            place.room.take(pod, place.cards, -1)

    def _places(self, pod: Job) -> Iterator[_Place]:
        workers = pod.workers
        cpu, memory = workers.requests.get(CPU, 0), workers.requests.get(MEMORY, 0)
        count, share = workers.requests.get(GPU, 0) // MILLI, workers.share
        for room in self._rooms:
            if room.cpu < cpu or room.memory < memory:
                continue
            if share is not None:
                for card, free in enumerate(room.cards):
                    if free >= share.milli:
                        yield _Place(room, (card,), free - share.milli)
                continue
            whole = [card for card, free in enumerate(room.cards) if free == MILLI]
            if len(whole) >= count:
                yield _Place(room, whole[:count], len(whole) - count)


def _first(places: Iterator[_Place]) -> _Place | None:
    return next(places, None)


def _best(places: Iterator[_Place]) -> _Place | None:
    return min(places, key=attrgetter("left"), default=None)


COLUMNS: Final[Mapping[str, Callable[[Sequence[Node]], Column]]] = {
    "dragon": ByDragon,
    "first fit": lambda nodes: Fit(nodes, _first),
    "best fit": lambda nodes: Fit(nodes, _best),
}
"""Best fit leaves the least of a card, or the fewest whole ones on a node."""
