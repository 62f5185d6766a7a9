"""What is free on each node: what it can give, less what its pods ask for. Pure.

Pods count from the moment that they have a node until they are over, those that were asked to be
removed included: nothing is given out twice. Parts of GPUs are KubeShare's: each card in use has an
id, chosen by whoever places the first pod on it, and is held by a pod of KubeShare's own.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import is_
from typing import Any, Final

from pydantic import ValidationError

from elastic.controller.kinds.fitting import is_allowed
from elastic.controller.resources.pod_parts import CARD_ID, Annotations, PodParts, parts_of
from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.platforms.kubernetes.pods.states import has_ended
from elastic.policy.cluster.rules import Taint, untolerated
from elastic.spec.quantities import NANO, nanos_of, shown

GPU: Final = "nvidia.com/gpu"

_PODS: Final = "pods"
"""Nodes bound how many pods they run, as one more resource."""

_CARD_MEMORY: Final = "kubeshare/gpu_info"
"""KubeShare's annotation of nodes: `UUID:MIB,UUID:MIB,`."""


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a GPU: nano-cards, and bytes of its memory."""

    request: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Demand:
    """What one pod needs.

    Attributes:
        name: Of the pod.
        parts: Its template, for the rules by which it chooses nodes.
        needs: Nano-units by resource.
        share: None for a pod without a part of a GPU.
    """

    name: str
    parts: PodParts
    needs: Mapping[str, int]
    share: Share | None


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU of which parts are given out, and what of it is in use."""

    id: str
    request: int = 0
    memory_bytes: int = 0

    def with_share(self, share: Share) -> "Card":
        """The same card with one more user."""
        return Card(self.id, self.request + share.request, self.memory_bytes + share.memory_bytes)


@dataclass(frozen=True, slots=True)
class Room:
    """One node, and what is free there.

    Attributes:
        closed: Why it takes no pods at all; empty where it does.
        free: Nano-units by resource; below 0 where too much was given out. Cards that are given out
            in parts are not free as whole ones.
        cards: Those given out in parts, by id.
        card_memory_bytes: Of its smallest card; None where nobody has told.
    """

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    closed: str
    free: Mapping[str, int]
    cards: tuple[Card, ...] = ()
    card_memory_bytes: int | None = None

    def why_not(self, demand: Demand) -> str:
        """Why a pod cannot run here, in few words; empty where it can."""
        if self.closed:
            return self.closed
        if not is_allowed(demand.parts.spec, self.name, self.labels):
            return "not chosen by nodeSelector or affinity"
        if taint := untolerated(demand.parts.spec.tolerations, self.taints):
            return f"taint {taint.key}:{taint.effect} not tolerated"
        for resource, need in demand.needs.items():
            if need > max(0, self.free.get(resource, 0)):
                return f"too little {resource}"
        if demand.share is not None and self._card_for(demand.share) is None:
            return "no GPU with so much left"
        return ""

    def on_card(self, demand: Demand, card: str | None) -> "Room | None":
        """The node once a pod runs here with a part of one card; None where that cannot be.

        Args:
            demand: What the pod needs.
            card: The id of the card, of which nothing may have been given out before; None for a
                pod without a part of any.
        """
        if self.why_not(demand) or (card is None) != (demand.share is None):
            return None
        if demand.share is None:
            return self.with_pod(demand, "")[0]
        known = next((each for each in self.cards if each.id == card), None)
        # Other cards are put aside, so that there is one to be chosen, or a new one.
        alone = replace(self, cards=() if known is None else (known,))
        if known is not None:
            alone = replace(alone, free={**self.free, GPU: 0})
        if alone.why_not(demand):
            return None
        taken, _ = alone.with_pod(demand, card or "")
        others = tuple(each for each in self.cards if each.id != card)
        cards = tuple(sorted((*others, *taken.cards), key=lambda each: each.id))
        return replace(
            taken,
            cards=cards,
            free=taken.free if known is None else {**taken.free, GPU: self.free.get(GPU, 0)},
        )

    def with_pod(self, demand: Demand, new_card: str) -> tuple["Room", str | None]:
        """The node once a pod runs here for which there is room, and the card of its share.

        Args:
            demand: What the pod needs.
            new_card: The id for a card of which nothing was given out before.
        """
        free = dict(self.free)
        for resource, need in demand.needs.items():
            free[resource] = free.get(resource, 0) - need
        if demand.share is None:
            return replace(self, free=free), None
        card = self._card_for(demand.share)
        assert card is not None, f"{demand.name} has no room on {self.name}"
        if not card.id:
            free[GPU] -= NANO
            card = Card(new_card)
        others = (each for each in self.cards if each.id != card.id)
        cards = tuple(sorted((*others, card.with_share(demand.share)), key=lambda each: each.id))
        return replace(self, free=free, cards=cards), card.id

    def _card_for(self, share: Share) -> Card | None:
        """The first card in use with so much left, else one that nobody uses, without an id."""
        unused = (Card(""),) if self.free.get(GPU, 0) >= NANO else ()
        most_bytes = self.card_memory_bytes
        candidates: tuple[Card, ...] = (*self.cards, *unused)
        for card in candidates:
            used = card.with_share(share)
            if used.request <= NANO and (most_bytes is None or used.memory_bytes <= most_bytes):
                return card
        return None


def demand_of(name: str, template: Manifest) -> Demand:
    """What a pod of a template needs.

    Raises:
        pydantic.ValidationError: The template cannot be read.
    """
    parts = parts_of(template)
    written = parts.metadata.annotations
    share = None
    if written.request is not None and written.memory_bytes is not None:
        share = Share(written.request, written.memory_bytes)
    return Demand(name, parts, needs_of(template["spec"]), share)


def needs_of(spec: Mapping[str, Any]) -> dict[str, int]:
    """Nano-units by resource, as Kubernetes counts a pod: what is 0 is left out.

    Containers that prepare the pod run one after the other, before the others and beside those
    that were started to stay. A cluster has many pods, so that they are read as they are.
    """
    staying: dict[str, int] = defaultdict(int)
    most: dict[str, int] = defaultdict(int)
    for container in spec.get("initContainers") or ():
        asked = _asked(container)
        if container.get("restartPolicy") == "Always":
            _add(staying, asked)
            continue
        for resource, need in asked.items():
            most[resource] = max(most[resource], staying[resource] + need)
    for container in spec["containers"]:
        _add(staying, _asked(container))
    needs = {name: max(most[name], staying[name]) for name in {*most, *staying}}
    # What is asked for the pod as a whole stands for what is asked by its containers.
    needs |= _asked(spec)
    for resource, written in (spec.get("overhead") or {}).items():
        needs[resource] = needs.get(resource, 0) + nanos_of(written)
    return {name: need for name, need in sorted(needs.items()) if need} | {_PODS: NANO}


def _asked(holder: Mapping[str, Any]) -> Mapping[str, int]:
    """What a container, or a pod as a whole, requests; its limits where it requests nothing."""
    resources = holder.get("resources")
    if not resources:
        return {}
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    return _nanos_asked(tuple(limits.items()), tuple(requests.items()))


@lru_cache(maxsize=4096)
def _nanos_asked(
    limits: tuple[tuple[str, Any], ...], requests: tuple[tuple[str, Any], ...]
) -> Mapping[str, int]:
    """In nano-units: of thousands of pods most ask for what others ask for too."""
    asked = dict((*limits, *requests)).items()
    return {name: nanos_of(written) for name, written in asked if written is not None}


def rooms_of(nodes: Sequence[Manifest], pods: Iterable[Manifest]) -> tuple[Room, ...]:
    """What is free on each node, by name.

    Args:
        nodes: Of the cluster, in any order.
        pods: Of the cluster, in any order, and SharePods that have no pod yet.
    """
    return Rooms().of(nodes, pods)


class Rooms:
    """What is free on each node, worked out anew only where something about a node has changed.

    A pass changes a few nodes of many, and to add up what all pods of a cluster ask for would take
    most of the time of a controller of a thousand jobs. Objects are told apart by identity: copies
    of what an API server has are replaced and never changed. Not thread-safe.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[Manifest, list[Manifest], Room]] = {}

    def of(self, nodes: Sequence[Manifest], pods: Iterable[Manifest]) -> tuple[Room, ...]:
        """See `rooms_of`."""
        on_node: dict[str, list[Manifest]] = defaultdict(list)
        for pod in pods:
            if not has_ended(pod):
                on_node[pod["spec"].get("nodeName") or ""].append(pod)
        known, self._known = self._known, {}
        for node in sorted(nodes, key=lambda node: str(node["metadata"]["name"])):
            name = str(node["metadata"]["name"])
            self._known[name] = self._looked_at(node, on_node[name], known.get(name))
        return tuple(room for _, _, room in self._known.values())

    def _looked_at(
        self,
        node: Manifest,
        pods: list[Manifest],
        known: tuple[Manifest, list[Manifest], Room] | None,
    ) -> tuple[Manifest, list[Manifest], Room]:
        if known is not None:
            known_node, known_pods, _ = known
            is_same = len(pods) == len(known_pods) and all(map(is_, pods, known_pods))
            if known_node is node and is_same:
                return known
        return node, pods, _room(node, pods)


def why_nowhere(demand: Demand, rooms: Sequence[Room]) -> str:
    """Why a pod has no place, for people: what it needs, and what each node lacks."""
    counts: dict[str, int] = defaultdict(int)
    for room in rooms:
        counts[room.why_not(demand)] += 1
    needs = ", ".join(f"{k}={shown(v)}" for k, v in demand.needs.items() if k != _PODS)
    found = ", ".join(f"{count} {reason}" for reason, count in sorted(counts.items()) if reason)
    share = "" if demand.share is None else f", {demand.share.request / NANO:g} of a GPU"
    return f"{demand.name} needs {needs or 'nothing'}{share}; {len(rooms)} nodes: {found or 'none'}"


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for resource, need in more.items():
        total[resource] += need


def _room(node: Manifest, pods: Sequence[Manifest]) -> Room:
    status, spec, metadata = node.get("status") or {}, node.get("spec") or {}, node["metadata"]
    free = {k: nanos_of(v) for k, v in (status.get("allocatable") or {}).items()}
    held: set[str] = set()
    cards: dict[str, Card] = {}
    for pod in pods:
        for resource, need in needs_of(pod["spec"]).items():
            free[resource] = free.get(resource, 0) - need
        if card_id := (pod["metadata"].get("labels") or {}).get(CARD_ID):
            held.add(card_id)
            cards.setdefault(card_id, Card(card_id))
        elif card_id := (pod["metadata"].get("annotations") or {}).get(CARD_ID):
            card = cards.get(card_id, Card(card_id))
            cards[card_id] = card.with_share(_share_in_use(pod["metadata"]["annotations"]))
    # What holds a card for KubeShare asks for a whole one, once it is there.
    free[GPU] = free.get(GPU, 0) - NANO * len(cards.keys() - held)
    return Room(
        str(metadata["name"]),
        metadata.get("labels") or {},
        tuple(_taint(each) for each in spec.get("taints") or ()),
        _closed(spec, status),
        free,
        tuple(sorted(cards.values(), key=lambda card: card.id)),
        _card_memory_bytes((metadata.get("annotations") or {}).get(_CARD_MEMORY) or ""),
    )


def _share_in_use(annotations: Mapping[str, str]) -> Share:
    """What a pod has of its card; nothing where KubeShare could not read it either."""
    try:
        written = Annotations.model_validate(annotations)
    except ValidationError:
        return Share(0, 0)
    return Share(written.request or 0, written.memory_bytes or 0)


def _closed(spec: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    if spec.get("unschedulable"):
        return "unschedulable"
    conditions = {c.get("type"): c.get("status") for c in status.get("conditions") or ()}
    return "" if conditions.get("Ready") == "True" else "not ready"


def _taint(written: Mapping[str, Any]) -> Taint:
    return Taint(*(str(written.get(part) or "") for part in ("key", "value", "effect")))


def _card_memory_bytes(text: str) -> int | None:
    sizes = [each.rpartition(":")[2] for each in text.split(",") if each]
    return min((int(size) << 20 for size in sizes if size.isdecimal()), default=None)
