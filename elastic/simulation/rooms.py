"""What is free on the nodes of a simulated cluster, and a stand-in for Kubernetes' scheduler."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from elastic.policy.cluster.amounts import CPU, GPU, MEMORY, MILLI, PODS, Amounts
from elastic.policy.cluster.rules import Rules
from elastic.policy.cluster.snapshot import Node, Share

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
