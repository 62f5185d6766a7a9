"""Where the replicas of a job go: few nodes, filled whole, and none moved without need.

What is free on the nodes is found by how much a job needs of one: tightest or roomiest first.

`rooms` finds the first node of one order; this finds the one that is left the fullest, or that has
the most. Nodes with the same free amounts are one class, and classes are kept by the level of the
resource that decides: cards where a pod wants some, else cores. So a search looks at each class
once, however many nodes there are, and what it looked for in vain is remembered.
"""

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from elastic.policy.cluster import CPU, MILLI, Amounts, Node, Placement, Rules, Snapshot, is_gpu

_ANY: Final = Rules()
_UNBOUNDED: Final = 1 << 30
_MOST_KNOWN: Final = 256

_Row = tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Need:
    """What one pod needs of a node.

    Attributes:
        amounts: By column, without those of which it needs nothing.
        leading: The column that decides; None where no node has cards or cores.
        of_leading: How much of that.
        allowed: The nodes where its rules let it run; None for all.
        is_possible: Whether nodes have all the resources that it names.
    """

    amounts: tuple[tuple[int, int], ...]
    leading: int | None
    of_leading: int
    allowed: frozenset[str] | None
    is_possible: bool


class FreeNodes:
    """Free amounts of the nodes that take pods; below 0 where too much was given out.

    First all that is there is taken; from `open` on there are searches.
    """

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._nodes = {
            node.name: node
            for node in sorted(nodes, key=lambda node: node.name)
            if node.is_ready and not node.is_unschedulable
        }
        shapes = {id(node.allocatable): node.allocatable for node in self._nodes.values()}
        names = sorted({name for each in shapes.values() for name in each})
        self._names = tuple(names)
        self._column_of = {name: at for at, name in enumerate(names)}
        cards = [at for name, at in self._column_of.items() if is_gpu(name)]
        self._cards = tuple(cards)
        cores = [at for name, at in self._column_of.items() if name == CPU]
        self._leading = (*cards, *cores)
        self._rows = {
            name: [node.allocatable.get(each, 0) for each in names]
            for name, node in self._nodes.items()
        }
        self._is_tainted = any(node.taints for node in self._nodes.values())
        self._needs: dict[object, Need] = {}
        self._allowed: dict[object, frozenset[str]] = {}
        self._closed: set[str] = set()
        self._classes: dict[_Row, dict[str, None]] = {}
        self._levels: dict[int, dict[int, dict[_Row, None]]] = {}
        self._sorted: dict[int, list[int]] = {}
        """The levels of each column, lowest first."""
        self._in_vain: dict[tuple[Need, int], None] = {}
        self._capacities: dict[str, int] = {}
        self._totals: list[int] = []

    def __contains__(self, name: str) -> bool:
        """Whether a node takes pods."""
        return name in self._rows

    def need(self, requests: Amounts, rules: Rules = _ANY) -> Need:
        """What a pod with such requests needs; the same for the same."""
        amounts = tuple(requests.items())
        is_any = rules is _ANY or not (self._is_tainted or _restricts(rules))
        key = (amounts, None if is_any else _identity(rules))
        found = self._needs.get(key)
        if found is None:
            columns = self._column_of
            known = sorted(
                (columns[name], need) for name, need in amounts if need and name in columns
            )
            leading = self._leading_of(requests)
            found = self._needs[key] = Need(
                tuple(known),
                leading,
                sum(amount for at, amount in known if at == leading),
                None if is_any else self._admitted(rules),
                all(name in columns for name, need in amounts if need),
            )
        return found

    def capacity(self, resource: str) -> int:
        """What all these nodes have together, whoever holds it."""
        if resource not in self._capacities:
            # It is asked for each job, and does not change.
            amounts = [node.allocatable.get(resource, 0) for node in self._nodes.values()]
            self._capacities[resource] = sum(amounts)
        return self._capacities[resource]

    def total(self, resource: str) -> int:
        """What all these nodes have left together, after `open`."""
        at = self._column_of.get(resource)
        return 0 if at is None else self._totals[at]

    def copy(self) -> "FreeNodes":
        """The same, before `open`, to be taken from separately."""
        other = FreeNodes(self._nodes.values())
        other._rows = {name: list(row) for name, row in self._rows.items()}
        return other

    def open(self) -> None:
        """Make what is free searchable."""
        self._totals = [0] * len(self._names)
        for name, row in self._rows.items():
            self._join(name, tuple(row))
            for at, amount in enumerate(row):
                if amount > 0:
                    self._totals[at] += amount

    def close(self, names: Iterable[str]) -> None:
        """Have nobody else come to some nodes."""
        self._closed.update(names)

    def is_closed(self, name: str) -> bool:
        """Whether nobody is to come there."""
        return name in self._closed

    def hold(self, name: str, need: Need, count: int) -> None:
        """Give out room of one node before `open`."""
        row = self._rows.get(name)
        if row is not None:
            for at, amount in need.amounts:
                row[at] -= amount * count

    def take(self, name: str, need: Need, count: int) -> None:
        """Give out room of one node, or take it back where `count` is below 0."""
        row = self._rows.get(name)
        if row is None or not count:
            return
        self._leave(name, tuple(row))
        for at, amount in need.amounts:
            before = row[at]
            row[at] = after = before - amount * count
            self._totals[at] += (after if after > 0 else 0) - (before if before > 0 else 0)
        self._join(name, tuple(row))
        if count < 0 and self._in_vain:
            found = [each for each in self._in_vain if _holds(row, *each)]
            for each in found:
                del self._in_vain[each]

    def take_all(self, placement: Placement, need: Need, sign: int = 1) -> None:
        """Give out the room of a placement, or take it back where `sign` is -1."""
        for name in sorted(placement):
            self.take(name, need, sign * placement[name])

    def fits(self, name: str, need: Need, own: int = 0) -> int:
        """How many pods a node can hold, with so many that are there already counted in."""
        row = self._rows.get(name)
        if row is None or not need.is_possible:
            return 0
        least = _UNBOUNDED
        # Asked for each node that a job comes to: a generator would cost more.
        for at, amount in need.amounts:
            if row[at] < least * amount:
                least = row[at] // amount
        return max(0, least + own)

    def is_over(self, name: str, need: Need) -> bool:
        """Whether more is given out than there is of what such pods need."""
        row = self._rows.get(name)
        return row is not None and any(row[at] < 0 for at, _ in need.amounts)

    def fit_at_most(self, need: Need) -> int:
        """No more pods than this have room on all nodes together; it may be fewer."""
        if not need.is_possible:
            return 0
        most, totals = _UNBOUNDED, self._totals
        for at, amount in need.amounts:
            if totals[at] < most * amount:
                most = totals[at] // amount
        return most

    def tightest(self, need: Need, count: int, without: Collection[str]) -> str | None:
        """A node that holds so many pods and has little more than they need."""
        if (need, count) in self._in_vain:
            return None
        if need.leading is None:
            return self._first(need, count, [0], without)
        least = need.of_leading * count // MILLI
        levels = self._sorted.get(need.leading, [])
        return self._first(need, count, levels[bisect_left(levels, least) :], without)

    def roomiest(self, need: Need, without: Collection[str]) -> str | None:
        """A node of those with the most free that holds at least one pod."""
        if (need, 1) in self._in_vain:
            return None
        if need.leading is None:
            return self._first(need, 1, [0], without)
        return self._first(need, 1, self._sorted.get(need.leading, [])[::-1], without)

    def _first(
        self, need: Need, count: int, levels: Sequence[int], without: Collection[str]
    ) -> str | None:
        if not need.is_possible:
            return None
        by_level = self._levels.get(-1 if need.leading is None else need.leading, {})
        allowed, closed, is_in_vain = need.allowed, self._closed, True
        # The inner loop of a plan.
        for level in levels:
            for row in by_level.get(level, ()):
                if not _holds(row, need, count):
                    continue
                for name in self._classes[row]:
                    if name in closed or not (allowed is None or name in allowed):
                        continue
                    if name not in without:
                        return name
                    is_in_vain = False
        if is_in_vain and len(self._in_vain) < _MOST_KNOWN:
            self._in_vain[need, count] = None
        return None

    def _join(self, name: str, row: _Row) -> None:
        members = self._classes.get(row)
        if members is None:
            members = self._classes[row] = {}
            for column in self._leading or (-1,):
                level = row[column] // MILLI if column >= 0 else 0
                levels = self._levels.setdefault(column, {})
                if level not in levels:
                    levels[level] = {}
                    insort(self._sorted.setdefault(column, []), level)
                levels[level][row] = None
        members[name] = None

    def _leave(self, name: str, row: _Row) -> None:
        members = self._classes[row]
        del members[name]
        if members:
            return
        del self._classes[row]
        for column in self._leading or (-1,):
            levels = self._levels[column]
            level = row[column] // MILLI if column >= 0 else 0
            del levels[level][row]
            if not levels[level]:
                del levels[level]
                self._sorted[column].remove(level)

    def _leading_of(self, requests: Amounts) -> int | None:
        for at in self._cards:
            if requests.get(self._names[at]):
                return at
        return self._column_of.get(CPU, self._leading[0] if self._leading else None)

    def _admitted(self, rules: Rules) -> frozenset[str]:
        key = _identity(rules)
        if key not in self._allowed:
            self._allowed[key] = frozenset(
                name
                for name, node in self._nodes.items()
                if rules.admit(name, node.labels, node.taints)
            )
        return self._allowed[key]


def _holds(row: Sequence[int], need: Need, count: int) -> bool:
    # The inner loop of a search.
    for at, amount in need.amounts:  # noqa: SIM110
        if row[at] < amount * count:
            return False
    return True


def _restricts(rules: Rules) -> bool:
    return bool(rules.node_selector) or rules.nodes is not None


def _identity(rules: Rules) -> object:
    return rules.tolerations, tuple(sorted(rules.node_selector.items())), rules.nodes


def shapes_of(nodes: Iterable[Node]) -> list[dict[str, int]]:
    """The different amounts that nodes have when empty."""
    shapes = {id(node.allocatable): node.allocatable for node in nodes}
    return [dict(shape) for shape in sorted({tuple(sorted(s.items())) for s in shapes.values()})]


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


# Where the replicas of a job go: few nodes, filled whole, and none moved without need.


def placed_by_fullness(placement: Placement, replicas: int) -> dict[str, int]:
    """So many of the replicas of a placement, from the nodes that hold most of them."""
    kept: dict[str, int] = {}
    left = replicas
    for node, count in sorted(placement.items(), key=lambda each: (-each[1], each[0])):
        if left > 0:
            kept[node] = min(left, count)
            left -= kept[node]
    return kept


def place(
    placement: Placement,
    need: Need,
    replicas: int,
    per_node: int,
    indices: Sequence[FreeNodes],
    own: Mapping[str, int],
    *,
    may_move: bool,
) -> dict[str, int] | None:
    """Find room for a size of a group, some of which may run already.

    Args:
        placement: Of those that run.
        need: Of one.
        replicas: All of them, those that run included.
        per_node: How many an empty node holds.
        indices: Where to look for more room, the better first.
        own: How many it may have on each node that it is on.
        may_move: Whether those that run may be moved, to have the group on few nodes.

    Returns:
        The whole placement; None where there is no room.
    """
    if not placement:
        return spread(need, replicas, indices, per_node=per_node)
    there = {node: min(count, own[node]) for node, count in placement.items()}
    stay = {node: count for node, count in there.items() if count > 0}
    staying = sum(stay.values())
    if staying >= replicas:
        return placed_by_fullness(stay, replicas)
    if may_move:
        kept = _whole_nodes(placement, replicas, per_node, own)
    elif staying < sum(placement.values()):
        # Who has to give way cannot have the same again elsewhere.
        return None
    else:
        kept = _topped_up(stay, replicas, own)
    return spread(need, replicas - sum(kept.values()), indices, kept, per_node)


def spread(
    need: Need,
    replicas: int,
    indices: Sequence[FreeNodes],
    kept: Mapping[str, int] | None = None,
    per_node: int | None = None,
) -> dict[str, int] | None:
    """Add replicas on nodes of their own: whole nodes, then the tightest that holds the rest.

    Where no node holds a part it is divided among those with the most room.
    """
    placement = dict(kept or {})
    left = replicas
    while left > 0:
        part = left if per_node is None else min(left, per_node)
        node = _tightest(indices, need, part, placement)
        if node is None:
            found = _roomiest(indices, need, placement)
            if found is None:
                return None
            node, most = found
            part = min(part, most)
        placement[node] = part
        left -= part
    return placement


def _tightest(
    indices: Sequence[FreeNodes], need: Need, count: int, without: Mapping[str, int]
) -> str | None:
    for index in indices:
        if (node := index.tightest(need, count, without)) is not None:
            return node
    return None


def _roomiest(
    indices: Sequence[FreeNodes], need: Need, without: Mapping[str, int]
) -> tuple[str, int] | None:
    """A node, and how many it holds."""
    for index in indices:
        if (node := index.roomiest(need, without)) is not None:
            return node, index.fits(node, need)
    return None


def _topped_up(stay: Mapping[str, int], replicas: int, own: Mapping[str, int]) -> dict[str, int]:
    """Those that stay, and more on the same nodes."""
    placement = dict(stay)
    left = replicas - sum(stay.values())
    for node, count in sorted(stay.items(), key=lambda each: (-each[1], each[0])):
        more = max(0, min(left, own[node] - count))
        placement[node] += more
        left -= more
    return placement


def _whole_nodes(
    placement: Placement, replicas: int, per_node: int, own: Mapping[str, int]
) -> dict[str, int]:
    """Nodes of the group that it can fill, and one that holds all the rest."""
    nodes = sorted(placement, key=lambda node: (-placement[node], node))
    kept: dict[str, int] = {}
    left = replicas
    for node in nodes:
        if left >= per_node and own[node] >= per_node:
            kept[node] = per_node
            left -= per_node
    for node in nodes:
        if 0 < left < per_node and node not in kept and own[node] >= left:
            kept[node] = left
            left = 0
    return kept
