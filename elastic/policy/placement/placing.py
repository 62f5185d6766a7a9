"""Where the replicas of a job go: few nodes, filled whole, and none moved without need."""

from collections.abc import Mapping, Sequence

from elastic.policy.cluster.snapshot import Placement
from elastic.policy.placement.free_nodes import FreeNodes, Need


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
