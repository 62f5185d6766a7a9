"""Nodes and pods of a cluster as policies see them. Pure: objects in, values out."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pydantic import ValidationError

from elastic.controller.kinds.placing import demand_of, is_allowed, needs_of
from elastic.controller.resources.pod_parts import CARD_ID, PodParts
from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.platforms.kubernetes.pods.states import has_ended
from elastic.policy.cluster.amounts import GPU, given_of, needed
from elastic.policy.cluster.rules import Rules, Taint, Toleration
from elastic.policy.cluster.snapshot import Group, Node, Pod, Share

_CARD_MEMORY: Final = "kubeshare/gpu_info"
"""KubeShare's annotation of nodes: `UUID:MIB,UUID:MIB,`."""

_MIB_BITS: Final = 20


def node_of(node: Manifest) -> Node:
    """A node."""
    status, spec, metadata = node.get("status") or {}, node.get("spec") or {}, node["metadata"]
    conditions = {each.get("type"): each.get("status") for each in status.get("conditions") or ()}
    info = (metadata.get("annotations") or {}).get(_CARD_MEMORY) or ""
    sizes = [each.rpartition(":")[2] for each in info.split(",") if each]
    return Node(
        str(metadata["name"]),
        given_of(status.get("allocatable") or {}),
        is_ready=conditions.get("Ready") == "True",
        is_unschedulable=bool(spec.get("unschedulable")),
        taints=tuple(
            Taint(*(str(taint.get(part) or "") for part in ("key", "value", "effect")))
            for taint in spec.get("taints") or ()
        ),
        labels=metadata.get("labels") or {},
        card_memory_bytes=min(
            (int(size) << _MIB_BITS for size in sizes if size.isdecimal()), default=None
        ),
    )


@dataclass(frozen=True, slots=True)
class Needs:
    """What a pod, or each pod of a template, asks for."""

    requests: Mapping[str, int]
    limits: Mapping[str, int]
    rules: Rules
    share: Share | None


def needs_of_template(template: Manifest, nodes: Sequence[Node]) -> Needs:
    """What each pod of a template asks for; a pod is one of itself.

    Args:
        template: Metadata and spec.
        nodes: All of the cluster: required affinity becomes the names of those that it allows.

    Raises:
        pydantic.ValidationError: The template cannot be read.
    """
    demand = demand_of("", template)
    share = demand.share
    return Needs(
        _amounts(demand.needs),
        _amounts(needs_of(_by_limits(template["spec"]))),
        _rules(demand.parts, nodes),
        None if share is None else Share(needed(GPU, share.request), share.memory_bytes),
    )


def _amounts(nanos: Mapping[str, int]) -> dict[str, int]:
    return {name: needed(name, each) for name, each in nanos.items()}


def _by_limits(spec: Manifest) -> Manifest:
    """The spec as if each container requested its limits, where it has some."""

    def swapped(holder: Manifest) -> Manifest:
        resources = holder.get("resources") or {}
        asked = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
        return {**holder, "resources": {"requests": asked}}

    groups = {
        key: [swapped(each) for each in spec[key]]
        for key in ("containers", "initContainers")
        if spec.get(key)
    }
    return {**(swapped(spec) if spec.get("resources") else spec), **groups}


def _rules(parts: PodParts, nodes: Sequence[Node]) -> Rules:
    spec = parts.spec
    has_affinity = (
        spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution is not None
    )
    names = None
    if has_affinity:
        # The node of a pod that has one is where it is, and no wish.
        wish = spec.model_copy(update={"node_name": ""})
        names = frozenset(n.name for n in nodes if is_allowed(wish, n.name, n.labels))
    tolerations = tuple(
        Toleration(each.key, each.operator, each.value, each.effect) for each in spec.tolerations
    )
    return Rules(tolerations, spec.node_selector, names)


def other_pods(pods: Iterable[Manifest], nodes: Sequence[Node]) -> tuple[Pod, ...]:
    """Pods that belong to no job and are not over.

    Pods by which KubeShare holds cards are left out: the parts that are given out of a card count
    for it. One that cannot be read takes no room, nor does one that may not have a node yet.
    """
    found = []
    for pod in pods:
        labels = pod["metadata"].get("labels") or {}
        is_gated = node_name(pod) is None and bool(pod["spec"].get("schedulingGates"))
        if has_ended(pod) or is_gated or CARD_ID in labels:
            continue
        try:
            needs = needs_of_template(pod, nodes)
        except ValidationError:
            continue
        found.append(
            Pod(
                node_name(pod), needs.requests, needs.limits, needs.rules, needs.share, card_of(pod)
            )
        )
    return tuple(found)


def node_name(pod: Manifest) -> str | None:
    """Where it is."""
    return str(pod["spec"].get("nodeName") or "") or None


def card_of(pod: Manifest) -> str | None:
    """The card of which it has a part."""
    return (pod["metadata"].get("annotations") or {}).get(CARD_ID)


@dataclass(frozen=True, slots=True)
class Role:
    """What a job says of the replicas of one role.

    Attributes:
        name: What the job calls it.
        low: The fewest.
        high: The most.
        wanted: How many there are to be now; 0 where nobody has decided yet.
        asked: With how many its user would like it to start; None where nobody has said.
        first: The name of the pod of replica 0, where replicas have numbers.
        is_as_pods_are: Whether a pod that is there tells better than the template what each needs,
            since somebody may edit them on their way.
        seats: By the names of pods that are about to be made, the node and the card of each.
    """

    name: str
    template: Manifest
    low: int
    high: int
    wanted: int
    asked: int | None = None
    first: str | None = None
    is_as_pods_are: bool = False
    seats: Mapping[str, tuple[str, str | None]] = field(default_factory=dict)


def group_of(role: Role, pods: Iterable[Manifest], nodes: Sequence[Node]) -> Group:
    """The replicas of a role.

    Args:
        role: What the job says of it.
        pods: Those of the role, also those that are over.
        nodes: All of the cluster.

    Raises:
        pydantic.ValidationError: The template cannot be read.
    """
    pods = list(pods)
    example = next((pod for pod in pods if role.is_as_pods_are), role.template)
    needs = needs_of_template(example, nodes)
    placement: dict[str, int] = defaultdict(int)
    leaving: dict[str, int] = defaultdict(int)
    cards: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    first_node = None
    there: dict[str, tuple[str, str | None]] = {}
    for number, pod in enumerate(pods):
        node = node_name(pod)
        if node is None or has_ended(pod):
            continue
        if pod["metadata"].get("deletionTimestamp"):
            leaving[node] += 1
            continue
        there[str(pod["metadata"].get("name") or number)] = node, card_of(pod)
    # What is about to be made is as good as there: nobody else may have its room.
    for name, (node, card) in {**_usable(role.seats, nodes), **there}.items():
        placement[node] += 1
        if card is not None:
            cards[node][card] += 1
        if name == role.first:
            first_node = node
    return Group(
        role.low,
        role.high,
        role.wanted,
        needs.requests,
        needs.limits,
        placement=dict(placement),
        leaving=dict(leaving),
        rules=needs.rules,
        share=needs.share,
        cards={node: dict(each) for node, each in cards.items()},
        first_node=first_node,
        asked=role.asked,
        role=role.name,
    )


def _usable(
    seats: Mapping[str, tuple[str, str | None]], nodes: Sequence[Node]
) -> Mapping[str, tuple[str, str | None]]:
    """Those on nodes that still take pods."""
    able = {node.name for node in nodes if node.is_ready and not node.is_unschedulable}
    return {name: seat for name, seat in seats.items() if seat[0] in able}
