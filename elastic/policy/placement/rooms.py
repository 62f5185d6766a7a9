"""What is free on the nodes of a cluster while it is planned, and which node can hold a pod.

Parts of the GPUs of a node are given out here as well, and the first of many nodes that has so much
of everything is found without looking at all.
"""

import hashlib
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from operator import gt
from string import ascii_lowercase
from typing import Final

from elastic.policy.cluster import (
    CPU,
    GPU,
    MILLI,
    PODS,
    Amounts,
    Node,
    Rules,
    Share,
    Snapshot,
    Toleration,
    is_gpu,
    quantity,
)

Needs = tuple[tuple[int, int], ...]
"""Column and amount, of those that are not 0."""

_MOST_SOUGHT: Final = 32

_NEAR: Final = 4


@dataclass(slots=True)
class _Sought:
    """How far some needs were searched for.

    Attributes:
        end: Rows before this one were looked at.
        able: Those of them that may have so much, in order; no others have.
        seen: So many of the rows that have grown were looked at again.
    """

    end: int
    able: list[int]
    seen: int


class MaxTree:
    """The rows as leaves of a tree whose inner nodes hold the most of each column below them.

    A search descends only where each column has enough somewhere below. Rows may have enough of one
    column here and of another there, so that it can go far in vain. So it is remembered how far
    some needs were searched for, and which rows before had enough or have grown since: who needs
    the same goes on from there, and who needs more starts there.
    """

    def __init__(self, rows: Iterable[Sequence[int]], num_columns: int) -> None:
        """The rows stay the caller's, who tells which of them have changed."""
        self._rows = list(rows)
        self._width = 1 << max(0, len(self._rows) - 1).bit_length()
        self._columns: list[list[int]] = []
        for column in range(num_columns):
            # Nothing needs less than 0, so that a leaf without a row is never found.
            unused = [-1] * (self._width - len(self._rows))
            level = [row[column] for row in self._rows] + unused
            levels = [level]
            while len(level) > 1:
                level = list(map(max, level[::2], level[1::2]))
                levels.append(level)
            most = [0, *chain.from_iterable(reversed(levels))]
            self._columns.append(most)
        self._sought: dict[Needs, _Sought] = {}
        self._grown: list[int] = []
        """Rows of which some amount has grown, in the order of that."""
        self._stale: set[int] = set()
        """Rows that have changed since the last search of the tree."""

    def changed(self, at: int, *, is_more: bool) -> None:
        """A row is not what it was.

        Rows change many times between two searches: what follows waits for the next one.

        Args:
            at: Which one.
            is_more: Whether any of its amounts has grown.
        """
        self._stale.add(at)
        if is_more:
            self._grown.append(at)

    def replace(self, at: int, row: Sequence[int]) -> None:
        """Have another row in the place of one."""
        before, self._rows[at] = self._rows[at], row
        if row != before:
            self.changed(at, is_more=any(map(gt, row, before)))

    def has(self, at: int, needs: Needs) -> bool:
        """Whether one row has all of it."""
        row = self._rows[at]
        # One of the inner loops of a plan: a generator would cost as much as the comparing.
        for column, amount in needs:  # noqa: SIM110
            if row[column] < amount:
                return False
        return True

    def first(self, needs: Needs) -> int | None:
        """The first row that has all of it."""
        sought = self._sought.get(needs)
        if sought is None:
            sought = self._begin(needs)
        if sought.seen < len(self._grown):
            self._look_again(sought, needs)
        able, gone = sought.able, 0
        if not able and sought.end == len(self._rows):
            return None
        # Most pods are like the one before, and go where that one went: no tree is needed.
        for at in able:
            if self.has(at, needs):
                break
            gone += 1
        if gone:
            del able[:gone]
        return able[0] if able else self._go_on(sought, needs)

    def all(self, needs: Needs) -> Iterator[int]:
        """Those rows that have all of it, in order; rows must not change meanwhile."""
        at = self.first(needs)
        sought = self._sought[needs]
        while at is not None:
            yield at
            at = self._next(sought, needs, at)

    def _next(self, sought: _Sought, needs: Needs, last: int) -> int | None:
        able = sought.able
        for place in range(bisect_right(able, last), len(able)):
            if self.has(able[place], needs):
                return able[place]
        return self._go_on(sought, needs)

    def _go_on(self, sought: _Sought, needs: Needs) -> int | None:
        """The first of the rows not looked at before that has all of it."""
        at = self._after(sought.end, needs)
        sought.end = len(self._rows) if at is None else at + 1
        if at is not None:
            sought.able.append(at)
        return at

    def _after(self, first: int, needs: Needs) -> int | None:
        """The first row from one on that has all of it."""
        end = len(self._rows)
        # Neighbours are often alike: of the next few one is found sooner than by the tree.
        near = min(first + _NEAR, end)
        for at in range(first, near):
            if self.has(at, needs):
                return at
        if near == end:
            return None
        self._renew()
        return next(self._from(near, needs), None)

    def _look_again(self, sought: _Sought, needs: Needs) -> None:
        """Learn of all that has grown since somebody asked."""
        able, grown = sought.able, self._grown[sought.seen :]
        sought.seen = len(self._grown)
        for at in set(grown):
            if at < sought.end and self.has(at, needs):
                place = bisect_left(able, at)
                if place == len(able) or able[place] != at:
                    able.insert(place, at)

    def _begin(self, needs: Needs) -> _Sought:
        """Start where less was searched for: rows that have not that have not more either."""
        wanted, least = dict(needs), _Sought(0, [], len(self._grown))
        for known, sought in self._sought.items():
            if sought.end > least.end and _is_within(known, wanted):
                least = sought
        if len(self._sought) == _MOST_SOUGHT:
            # Who was not asked for longest is the first to be forgotten.
            del self._sought[min(self._sought, key=lambda each: self._sought[each].seen)]
        self._sought[needs] = _Sought(least.end, list(least.able), least.seen)
        return self._sought[needs]

    def _renew(self) -> None:
        for row in self._stale:
            amounts, leaf = self._rows[row], row + self._width
            for most, amount in zip(self._columns, amounts, strict=True):
                if most[leaf] != amount:
                    most[leaf] = amount
                    _renew_above(most, leaf)
        self._stale.clear()

    def _from(self, start: int, needs: Needs) -> Iterator[int]:
        wanted = [(self._columns[column], amount) for column, amount in needs]
        # Where all of them together have not enough of something there is nothing to go through.
        if any(most[1] < amount for most, amount in wanted):
            return
        width = self._width
        at = start + width
        while True:
            for most, amount in wanted:
                if most[at] < amount:
                    break
            else:
                if at < width:
                    at *= 2
                    continue
                yield at - width
            # On to the next subtree on the right: up, as long as this is a right child.
            while at & 1:
                at >>= 1
                if not at:
                    return
            at += 1


def _renew_above(most: list[int], leaf: int) -> None:
    at = leaf >> 1
    while at:
        left, right = most[2 * at], most[2 * at + 1]
        new = left if left > right else right
        if most[at] == new:
            break
        most[at] = new
        at >>= 1


def _is_within(needs: Needs, wanted: dict[int, int]) -> bool:
    """Whether some needs are part of others."""
    # Another inner loop.
    for column, amount in needs:  # noqa: SIM110
        if wanted.get(column, 0) < amount:
            return False
    return True


# GPUs of one node that are given out in parts.


_ID_LENGTH: Final = 8
"""Letters of the id of a card; it is unique on its node."""


def card_id(node: str, user: str, taken: Collection[str]) -> str:
    """A name for a card that is new to its node; always the same for the same user."""
    for attempt in range(len(taken) + 1):
        digest = hashlib.sha256(f"{node}/{user}/{attempt}".encode()).digest()
        name = "".join(ascii_lowercase[byte % len(ascii_lowercase)] for byte in digest)[:_ID_LENGTH]
        if name not in taken:
            return name
    raise AssertionError("as many hashes as cards, and one more, are all the same")


class NodeCards:
    """What is in use of each card of a node of which parts are given out."""

    def __init__(self, node: str, memory_bytes: int | None) -> None:
        self._node, self._memory_bytes = node, memory_bytes
        self._used: dict[str, tuple[int, int, int]] = {}

    def largest_part(self) -> int:
        """Thousandths that are free on the card in use that has most of them; 0 without cards."""
        if not self._used:
            # So it is on most nodes.
            return 0
        return max(MILLI - used for used, _, _ in self._used.values())

    def least_used(self, ids: Iterable[str]) -> str:
        """Of these cards the one that is nearest to being free."""
        return min(ids, key=lambda each: (self._used[each][0], each))

    def card_for(self, share: Share) -> str | None:
        """Of the cards in use with so much left the fullest: the others keep more together."""
        able = [
            (-used, name)
            for name, (used, used_bytes, _) in self._used.items()
            if used + share.milli <= MILLI and self._has_memory(used_bytes + share.memory_bytes)
        ]
        return min(able)[1] if able else None

    def can_open(self, share: Share) -> bool:
        """Whether a card of which nothing is in use is large enough."""
        return share.milli <= MILLI and self._has_memory(share.memory_bytes)

    def new_id(self, user: str) -> str:
        """A name for one more card."""
        return card_id(self._node, user, self._used)

    def add(self, name: str, share: Share) -> bool:
        """Count one more user of a card; whether it is the card's first."""
        used, used_bytes, users = self._used.get(name, (0, 0, 0))
        self._used[name] = (used + share.milli, used_bytes + share.memory_bytes, users + 1)
        return users == 0

    def remove(self, name: str, share: Share) -> bool:
        """Count one user less; whether it was the last."""
        used, used_bytes, users = self._used.pop(name)
        if users > 1:
            left = (used - share.milli, used_bytes - share.memory_bytes, users - 1)
            self._used[name] = left
        return users == 1

    def _has_memory(self, used_bytes: int) -> bool:
        return self._memory_bytes is None or used_bytes <= self._memory_bytes


# What is free on the nodes of a cluster while it is planned, and which node can hold a pod.
#
# Nodes are searched in one order: those with the fewest GPUs first, so that pods without GPUs leave
# the others alone, then by name. Only nodes that take pods are here.


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
        nodes = [each for each in snapshot.nodes if each.is_ready and not each.is_unschedulable]
        cards = sorted(filter(is_gpu, set().union(*(node.allocatable for node in nodes))))
        self.nodes = sorted(nodes, key=lambda node: (_num_cards(node, cards), node.name))
        self.numbers = {node.name: number for number, node in enumerate(self.nodes)}
        unless_told = [(name, _UNBOUNDED if name == PODS else 0) for name in self.columns]
        self.free = [
            [node.allocatable.get(name, amount) for name, amount in unless_told]
            for node in self.nodes
        ]
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
        key = (frozenset(requests.items()), share, number)
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

    def usable(self, shapes: Collection[Shape]) -> list[int]:
        """By column, no less than pods of these shapes could use of what is free.

        What is free where something else is lacking is of no use.
        """
        usable = [0] * len(self.columns)
        for row, num_nodes in Counter(map(tuple, self.free)).items():
            most = [0] * len(row)
            for shape in shapes:
                count = min([row[column] // need for column, need in shape.needs])
                if count > 0:
                    for column, need in shape.needs:
                        most[column] = max(most[column], count * need)
            for column, amount in enumerate(most):
                usable[column] += amount * num_nodes
        return usable

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
        are_any_named = any(each.nodes is not None for each in rules)
        for number, node in enumerate(self.nodes):
            alike = (node.taints, tuple([node.labels.get(key) for key in selected]))
            if alike not in admitted:
                admitted[alike] = _admitting(rules, node)
            by = admitted[alike]
            if are_any_named:
                by = tuple(at for at in by if _is_named(node, rules[at]))
            members.setdefault(by, []).append(number)
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


def _is_named(node: Node, rules: Rules) -> bool:
    return rules.nodes is None or node.name in rules.nodes


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


def _num_cards(node: Node, names: Iterable[str]) -> int:
    return sum([node.allocatable.get(name, 0) for name in names])
