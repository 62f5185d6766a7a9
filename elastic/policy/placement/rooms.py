"""What is free on the nodes of a cluster while it is planned, and which node can hold a pod.

Nodes are searched in one order: those with the fewest GPUs first, so that pods without GPUs leave
the others alone, then by name. Only nodes that take pods are here.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from elastic.policy.cluster.amounts import CPU, GPU, MILLI, PODS, Amounts, is_gpu, quantity
from elastic.policy.cluster.rules import Rules, Toleration
from elastic.policy.cluster.snapshot import Node, Share, Snapshot
from elastic.policy.placement.cards import NodeCards
from elastic.policy.placement.search import MaxTree, Needs

PART: Final = "part of a GPU"
"""A column of its own: the largest part of one card that is free."""

_USED_PART: Final = "part of a GPU in use"
"""Likewise, of the cards of which somebody has a part already."""

_UNBOUNDED: Final = 1 << 62
"""How many pods a node runs that tells no bound."""


class Pool:
    """Nodes that the same pods may run on.

    Attributes:
        rules: The numbers of the rules that admit these nodes.
        nodes: Their numbers.
        tree: What is free there.
    """

    __slots__ = ("nodes", "rules", "tree")

    def __init__(self, rules: tuple[int, ...], nodes: Sequence[int]) -> None:
        self.rules, self.nodes = rules, nodes
        self.tree = MaxTree((), 0)


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """What a pod needs of a node; pods that need the same have one shape.

    Attributes:
        needs: By column of `Rooms.columns`, without those of which it needs nothing.
        share: Its part of a card; None without.
        pools: Where its rules let it run.
    """

    needs: Needs
    share: Share | None
    pools: tuple[Pool, ...]


class Rooms:
    """Free amounts by node, kept while pods are added and removed.

    First all that is there is held; from `open` on there are searches.

    Attributes:
        columns: The resources that are counted.
        gpu: The column of the cards of which parts can be given out.
        part: That of the largest part of one card that is free; None where nobody has parts.
        nodes: Those that take pods, in the order of the search.
        numbers: Of the nodes, by name.
        free: By node, a row of amounts by column; below 0 where too much was given out.
        totals: By column, what all nodes have together.
        pool_of: By node, its pool and its place there.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        demands = _demands(snapshot)
        has_parts = any(share is not None for _, share, _ in demands)
        names = sorted({PODS, GPU}.union(*(requests for requests, _, _ in demands)))
        self.columns = [*names, *((PART, _USED_PART) if has_parts else ())]
        self._column_of = {name: at for at, name in enumerate(self.columns)}
        self.gpu, self.part = self._column_of[GPU], self._column_of.get(PART)
        self._used_part = self._column_of.get(_USED_PART)
        self.nodes = sorted(
            (node for node in snapshot.nodes if node.is_ready and not node.is_unschedulable),
            key=lambda node: (_num_gpus(node), node.name),
        )
        self.numbers = {node.name: number for number, node in enumerate(self.nodes)}
        self.free = [_row(node, self.columns) for node in self.nodes]
        self.totals = [sum(row[at] for row in self.free) for at in range(len(self.columns))]
        self._cards = [NodeCards(node.name, node.card_memory_bytes) for node in self.nodes]
        unique = {_identity(rules): rules for _, _, rules in demands}
        in_order = sorted(unique, key=_written)
        self._rules = {identity: number for number, identity in enumerate(in_order)}
        self.pools = self._make_pools([unique[identity] for identity in in_order])
        self.pool_of = {
            node: (pool, at) for pool in self.pools for at, node in enumerate(pool.nodes)
        }
        self._shapes: dict[object, Shape] = {}

    @property
    def num_rules(self) -> int:
        """How many different rules pods have."""
        return len(self._rules)

    def rules_number(self, rules: Rules) -> int:
        """Of rules that some pod of the snapshot has."""
        return self._rules[_identity(rules)]

    def shape(self, requests: Amounts, share: Share | None, rules: Rules) -> Shape:
        """What a pod of the snapshot needs."""
        number = self.rules_number(rules)
        key = (tuple(sorted(requests.items())), share, number)
        found = self._shapes.get(key)
        if found is None:
            needs = {PODS: 1} | dict(requests) | ({PART: share.milli} if share else {})
            columns = sorted((self._column_of[name], need) for name, need in needs.items() if need)
            pools = tuple(pool for pool in self.pools if number in pool.rules)
            found = self._shapes[key] = Shape(tuple(columns), share, pools)
        return found

    def hold(self, shape: Shape, node: int, count: int, card: str | None = None) -> list[str]:
        """Use room for those that are there, before `open`; the cards of those with parts."""
        row = self.free[node]
        for column, need in shape.needs:
            row[column] -= need * count
        if shape.share is None:
            return []
        return [self._use_card(shape.share, node, "here", card) for _ in range(count)]

    def copy(self) -> list[list[int]]:
        """What is free now, by node and column."""
        self._set_all_parts()
        return [list(row) for row in self.free]

    def open(self) -> None:
        """Make what is free searchable."""
        self._set_all_parts()
        for pool in self.pools:
            pool.tree = self.tree(pool, self.free)

    def tree(self, pool: Pool, rows: Sequence[Sequence[int]]) -> MaxTree:
        """The rows of the nodes of a pool, searchable."""
        return MaxTree([rows[node] for node in pool.nodes], len(self.columns))

    def _set_all_parts(self) -> None:
        if self.part is not None and self._used_part is not None:
            for node, row in enumerate(self.free):
                row[self.part], row[self._used_part] = self._parts(node)

    def fits(self, shape: Shape, node: int) -> bool:
        """Whether a node on which it may run has room for one more."""
        row = self.free[node]
        for column, need in shape.needs:
            if row[column] < need:
                return False
        return shape.share is None or self._has_card(shape.share, node)

    def count(self, shape: Shape, node: int, most: int) -> int:
        """How many more a node holds for which it has room for one; cards are given out singly."""
        if shape.share is not None:
            return 1
        row = self.free[node]
        for column, need in shape.needs:
            if row[column] < need * most:
                most = row[column] // need
        return most

    def find(
        self, shape: Shape, pools: Sequence[Pool] | None = None, skip: Collection[int] = ()
    ) -> int | None:
        """The first node with room for one more.

        Args:
            pools: Where to look; None for all where such pods may run.
            skip: Nodes that are not to be taken.
        """
        pools = shape.pools if pools is None else pools
        if not skip and shape.share is None:
            return self._first(shape, pools)
        if shape.share is not None:
            # No new card is opened while one that is in use will do, wherever it is.
            used = self._find(shape, pools, skip, self._needs_of_used_card(shape))
            if used is not None:
                return used
        return self._find(shape, pools, skip, shape.needs)

    def nodes_with(self, needs: Needs, pools: Iterable[Pool]) -> Iterator[int]:
        """Those that have so much free, in the order of the search."""
        for pool in pools:
            for at in pool.tree.all(needs):
                yield pool.nodes[at]

    def pool(self, node: int) -> Pool:
        """Of a node."""
        return self.pool_of[node][0]

    def take(self, shape: Shape, node: int, count: int = 1) -> None:
        """Use room for more, also where there is none; of cards in parts see `take_part`."""
        row, part = self.free[node], self.part
        for column, need in shape.needs:
            if column != part:
                row[column] -= need * count
        pool, at = self.pool_of[node]
        pool.tree.changed(at, is_more=count < 0)
        if part is not None:
            self._set_part(node)

    def take_part(self, shape: Shape, node: int, user: str, card: str | None = None) -> str:
        """Use room for one that has a part of a card, also where there is none; the card.

        Args:
            shape: What it needs.
            node: Where.
            user: After whom a card is named of which nothing was given out before.
            card: That it has; None where one is to be chosen.
        """
        assert shape.share is not None, "others have whole cards"
        self.take(shape, node)
        # A card that was opened leaves fewer whole ones: that is told with what its parts are.
        name = self._use_card(shape.share, node, user, card)
        self._set_part(node)
        return name

    def give_back(self, shape: Shape, node: int, card: str | None, count: int = 1) -> None:
        """Free the room of one, or of several without cards."""
        if shape.share is not None:
            assert card is not None, "who has a part of a GPU has it of one card"
            if self._cards[node].remove(card, shape.share):
                self._set(node, self.gpu, self.free[node][self.gpu] + MILLI)
        self.take(shape, node, -count)

    def least_used_card(self, node: int, ids: Iterable[str]) -> str:
        """Of these cards the one that is nearest to being free."""
        return self._cards[node].least_used(ids)

    def shown(self, node: int, shape: Shape) -> str:
        """What is free there of what a shape needs, for people: `6 CPU, 8Gi memory idle on n3`."""
        free = self.free[node]
        amounts = [(column, max(0, free[column])) for column, _ in shape.needs]
        return f"{self._texts(amounts)} idle on {self.nodes[node].name}"

    def needs_shown(self, shape: Shape) -> str:
        """What a pod needs, for people."""
        return self._texts(shape.needs)

    @staticmethod
    def _first(shape: Shape, pools: Sequence[Pool]) -> int | None:
        for pool in pools:
            at = pool.tree.first(shape.needs)
            if at is not None:
                return pool.nodes[at]
        return None

    def _find(
        self, shape: Shape, pools: Sequence[Pool], skip: Collection[int], needs: Needs
    ) -> int | None:
        for pool in pools:
            for at in pool.tree.all(needs):
                node = pool.nodes[at]
                if node not in skip and (shape.share is None or self._has_card(shape.share, node)):
                    return node
        return None

    def _needs_of_used_card(self, shape: Shape) -> Needs:
        """The needs of a shape with a part, of which a card that is in use has to have it."""
        assert self._used_part is not None, "somebody has parts"
        return tuple(
            (self._used_part if column == self.part else column, need)
            for column, need in shape.needs
        )

    def _texts(self, amounts: Iterable[tuple[int, int]]) -> str:
        texts = [shown(self.columns[column], amount) for column, amount in amounts]
        return ", ".join(text for text in texts if text) or "room"

    def _has_card(self, share: Share, node: int) -> bool:
        cards = self._cards[node]
        if cards.card_for(share) is not None:
            return True
        return self.free[node][self.gpu] >= MILLI and cards.can_open(share)

    def _use_card(self, share: Share, node: int, user: str, card: str | None) -> str:
        cards = self._cards[node]
        name = card or cards.card_for(share) or cards.new_id(user)
        if cards.add(name, share):
            self.free[node][self.gpu] -= MILLI
        return name

    def _set(self, node: int, column: int, amount: int) -> None:
        row = self.free[node]
        is_more, row[column] = amount > row[column], amount
        pool, at = self.pool_of[node]
        pool.tree.changed(at, is_more=is_more)

    def _set_part(self, node: int) -> None:
        if self.part is not None and self._used_part is not None:
            largest, used = self._parts(node)
            self._set(node, self.part, largest)
            self._set(node, self._used_part, used)

    def _parts(self, node: int) -> tuple[int, int]:
        """The largest free part of any card, and of those that are in use."""
        used = self._cards[node].largest_part()
        return max(MILLI if self.free[node][self.gpu] >= MILLI else 0, used), used

    def _make_pools(self, rules: Sequence[Rules]) -> tuple[Pool, ...]:
        selected = sorted({key for each in rules for key in each.node_selector})
        admitted: dict[object, tuple[int, ...]] = {}
        members: dict[tuple[int, ...], list[int]] = {}
        for number, node in enumerate(self.nodes):
            alike = (node.taints, tuple(node.labels.get(key) for key in selected))
            if alike not in admitted:
                admitted[alike] = _admitting(rules, node)
            by_name = tuple(
                at
                for at in admitted[alike]
                if rules[at].nodes is None or node.name in (rules[at].nodes or ())
            )
            members.setdefault(by_name, []).append(number)
        return tuple(Pool(by, nodes) for by, nodes in members.items())


_GIB: Final = 2**30


@lru_cache(maxsize=1024)
def shown(resource: str, amount: int) -> str:
    """An amount for people: `6 CPU`, `8Gi memory`, `2 GPU`; empty for numbers of pods."""
    if resource in {PODS, _USED_PART}:
        return ""
    if resource == PART:
        return f"{amount / MILLI:g} of a GPU"
    name = "GPU" if is_gpu(resource) else {CPU: "CPU"}.get(resource, resource)
    text = quantity(resource, amount)
    # Nodes tell theirs to the last page: 23647796Ki is for files.
    if text.endswith("Ki") and amount >= _GIB:
        text = f"{amount / _GIB:.1f}Gi"
    return f"{text} {name}"


def _admitting(rules: Sequence[Rules], node: Node) -> tuple[int, ...]:
    """Which rules admit a node, its name aside."""
    return tuple(
        number for number, each in enumerate(rules) if each.admit_alike(node.labels, node.taints)
    )


def _demands(snapshot: Snapshot) -> list[tuple[Amounts, Share | None, Rules]]:
    groups = (group for job in snapshot.jobs for group in job.groups)
    demands = [(each.requests, each.share, each.rules) for each in groups]
    return demands + [(each.requests, each.share, each.rules) for each in snapshot.pods]


_Identity = tuple[tuple[Toleration, ...], tuple[tuple[str, str], ...], frozenset[str] | None]


def _identity(rules: Rules) -> _Identity:
    selector = rules.node_selector
    return rules.tolerations, tuple(sorted(selector.items())) if selector else (), rules.nodes


def _written(identity: _Identity) -> str:
    """For sorting; sets have no order of their own."""
    tolerations, selector, nodes = identity
    return repr((tolerations, selector, nodes if nodes is None else sorted(nodes)))


def _num_gpus(node: Node) -> int:
    return sum(amount for name, amount in node.allocatable.items() if is_gpu(name))


def _row(node: Node, columns: Sequence[str]) -> list[int]:
    return [node.allocatable.get(name, _UNBOUNDED if name == PODS else 0) for name in columns]
