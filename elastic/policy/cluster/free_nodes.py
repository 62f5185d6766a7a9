"""What is free on the nodes, found by how much a job needs of one: tightest or roomiest first.

Nodes are kept by the level of what they have free of the resource that decides: cards where a pod
wants some, else cores. So a search looks at the few nodes that are nearly right, not at all.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from elastic.policy.cluster.amounts import CPU, MILLI, Amounts, is_gpu
from elastic.policy.cluster.rules import Rules, untolerated
from elastic.policy.cluster.snapshot import Node, Placement, Snapshot

_ANY: Final = Rules()
_UNBOUNDED: Final = 1 << 30


class FreeNodes:
    """Free amounts of the nodes that take pods; below 0 where too much was given out.

    Attributes:
        totals: What is free on all nodes together, by resource.
    """

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._nodes = {
            node.name: node
            for node in sorted(nodes, key=lambda node: node.name)
            if node.is_ready and not node.is_unschedulable
        }
        self._free = {name: dict(node.allocatable) for name, node in self._nodes.items()}
        self._has_taints = any(node.taints for node in self._nodes.values())
        self._levels: dict[str, dict[int, dict[str, None]]] = {}
        self._allowed: dict[object, frozenset[str]] = {}
        self.totals: dict[str, int] = {}
        for free in self._free.values():
            for resource, amount in free.items():
                self.totals[resource] = self.totals.get(resource, 0) + amount
        resources = self.totals
        self._leading = tuple(sorted(name for name in resources if name == CPU or is_gpu(name)))
        self._cards = tuple(name for name in self._leading if is_gpu(name))
        for resource in self._leading:
            levels = self._levels[resource] = {}
            for name, free in self._free.items():
                levels.setdefault(free.get(resource, 0) // MILLI, {})[name] = None

    def take(self, name: str, requests: Amounts, count: int) -> None:
        """Give out room of one node, or take it back where `count` is below 0."""
        free = self._free.get(name)
        if free is None:
            return
        for resource, amount in requests.items():
            before = free.get(resource, 0)
            free[resource] = after = before - amount * count
            self.totals[resource] = self.totals.get(resource, 0) + max(0, after) - max(0, before)
            if resource in self._levels and before // MILLI != after // MILLI:
                levels = self._levels[resource]
                levels[before // MILLI].pop(name, None)
                levels.setdefault(after // MILLI, {})[name] = None

    def take_all(self, placement: Placement, requests: Amounts, sign: int = 1) -> None:
        """Give out the room of a placement, or take it back where `sign` is -1."""
        for name, count in sorted(placement.items()):
            self.take(name, requests, sign * count)

    def fits(self, name: str, requests: Amounts) -> int:
        """How many pods more a node can hold."""
        free = self._free.get(name)
        if free is None:
            return 0
        return max(
            0,
            min(
                (free.get(each, 0) // need for each, need in requests.items() if need),
                default=_UNBOUNDED,
            ),
        )

    def tightest(
        self, requests: Amounts, count: int, rules: Rules, without: Mapping[str, int]
    ) -> str | None:
        """A node that holds so many pods and has little more than they need."""
        resource = self._leading_of(requests)
        levels = self._levels.get(resource, {})
        least = requests.get(resource, 0) * count // MILLI
        for level in sorted(each for each in levels if each >= least):
            for name in levels[level]:
                if (
                    name not in without
                    and self.fits(name, requests) >= count
                    and self._allows(rules, name)
                ):
                    return name
        return None

    def roomiest(self, requests: Amounts, rules: Rules, without: Mapping[str, int]) -> str | None:
        """A node of those with the most free that holds at least one pod."""
        levels = self._levels.get(self._leading_of(requests), {})
        for level in sorted(levels, reverse=True):
            for name in levels[level]:
                if (
                    name not in without
                    and self.fits(name, requests) > 0
                    and self._allows(rules, name)
                ):
                    return name
        return None

    def fit_at_most(self, requests: Amounts) -> int:
        """No more pods than this have room on all nodes together; it may be fewer."""
        return min(
            (self.totals.get(each, 0) // need for each, need in requests.items() if need),
            default=_UNBOUNDED,
        )

    def _leading_of(self, requests: Amounts) -> str:
        return next((name for name in self._cards if requests.get(name)), CPU)

    def _allows(self, rules: Rules, name: str) -> bool:
        if not self._has_taints and rules == _ANY:
            return True
        key = (rules.tolerations, tuple(sorted(rules.node_selector.items())), rules.nodes)
        if key not in self._allowed:
            self._allowed[key] = frozenset(
                each for each, node in self._nodes.items() if _admits(rules, node)
            )
        return name in self._allowed[key]


def _admits(rules: Rules, node: Node) -> bool:
    return (
        (rules.nodes is None or node.name in rules.nodes)
        and rules.node_selector.items() <= node.labels.items()
        and untolerated(rules.tolerations, node.taints) is None
    )


def shapes_of(nodes: Sequence[Node]) -> list[dict[str, int]]:
    """The different amounts that nodes have when empty."""
    return [dict(shape) for shape in sorted({tuple(sorted(n.allocatable.items())) for n in nodes})]


def cards_in_parts(snapshot: Snapshot) -> dict[str, int]:
    """GPUs of which parts are given out, by node: as whole ones they are not free.

    Who is not told to be on a card is taken to have one to itself.
    """
    known: dict[str, set[str]] = {}
    unknown: dict[str, int] = {}
    for pod in snapshot.pods:
        if pod.node is not None and pod.share is not None:
            if pod.card is None:
                unknown[pod.node] = unknown.get(pod.node, 0) + 1
            else:
                known.setdefault(pod.node, set()).add(pod.card)
    groups = [group for job in snapshot.jobs for group in job.groups if group.share is not None]
    for group in groups:
        for node, count in (*group.placement.items(), *group.leaving.items()):
            users = group.cards.get(node, {})
            known.setdefault(node, set()).update(users)
            lost = max(0, count - sum(users.values()))
            unknown[node] = unknown.get(node, 0) + lost
    return {
        node: len(known.get(node, ())) + unknown.get(node, 0) for node in sorted({*known, *unknown})
    }
