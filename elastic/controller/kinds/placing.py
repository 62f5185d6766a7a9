"""Where pods go: what is free on each node, which nodes a pod asks for, and a seat for each. Pure.

Pods count from the moment that they have a node until they are over, those that were asked to be
removed included: nothing is given out twice. Parts of GPUs are KubeShare's: each card in use has an
id, chosen by whoever places the first pod on it, and is held by a pod of KubeShare's own.

Seats are by first fit, on one node where one can hold them all. Whoever decides otherwise has the
same to say: a seat for each pod that has one, and why others have none.
"""

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import is_
from string import ascii_lowercase
from typing import Any, Final

from pydantic import ValidationError

from elastic.controller.resources.common import (
    CARD_ID,
    Annotations,
    NodeTerm,
    Operator,
    PodParts,
    PodSpec,
    Requirement,
    parts_of,
)
from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.platforms.kubernetes.pods import has_ended
from elastic.policy.cluster import Taint, untolerated
from elastic.spec.values import NANO, nanos_of, quantity_shown

_ID_LENGTH: Final = 8
"""Letters of the id of a card; it is unique on its node."""
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


@dataclass(frozen=True, slots=True)
class Seat:
    """Where a pod goes.

    Attributes:
        card: The id of the GPU of which it has a part; None where it has none.
    """

    pod: str
    node: str
    card: str | None = None


@dataclass(frozen=True, slots=True)
class Placement:
    """What was found.

    Attributes:
        seats: In the order of the demands.
        missing: The first pod without a seat, what it needs and what the nodes lack; empty where
            all have one.
    """

    seats: tuple[Seat, ...]
    missing: str = ""


def place(
    required: Sequence[Demand],
    optional: Sequence[Demand],
    rooms: Sequence[Room],
    near: Collection[str] = (),
) -> Placement:
    """Seats for all that is required, or for nothing at all, and for as many others as fit.

    As many as possible come first, then that they are on one node, then nodes in `near`, then the
    names of the nodes: the order of `rooms` means nothing.

    Args:
        required: What only makes sense together.
        optional: What is welcome, the most welcome first; each by itself.
        rooms: The nodes.
        near: Nodes to be preferred, where the rest of the job is.
    """
    ordered = sorted(rooms, key=lambda room: (room.name not in near, room.name))
    spread = _first_fit(required, optional, ordered)
    if len({seat.node for seat in spread.seats}) <= 1:
        return spread
    for room in ordered:
        together = _first_fit(required, optional, [room])
        if len(together.seats) >= len(spread.seats):
            return Placement(together.seats, spread.missing)
    return spread


def take(demands: Sequence[Demand], seats: Mapping[str, Seat], rooms: Sequence[Room]) -> Placement:
    """Those of the seats that somebody has chosen of which the room is there by now.

    Args:
        demands: Pods that are not there.
        seats: By the names of pods; those without one wait until somebody has chosen.
        rooms: The nodes.
    """
    left, taken, missing = {room.name: room for room in rooms}, [], ""
    for demand in demands:
        seat = seats.get(demand.name)
        room = None if seat is None else left.get(seat.node)
        then = None if seat is None or room is None else room.on_card(demand, seat.card)
        if seat is None or then is None:
            where = "for the scheduler" if seat is None else f"for its room on {seat.node}"
            missing = missing or f"{demand.name} waits {where}"
            continue
        left[seat.node] = then
        taken.append(seat)
    return Placement(tuple(taken), missing)


def _first_fit(
    required: Sequence[Demand], optional: Sequence[Demand], rooms: Sequence[Room]
) -> Placement:
    left, seats, missing = list(rooms), [], ""
    for number, demand in enumerate((*required, *optional)):
        at = next((i for i, room in enumerate(left) if not room.why_not(demand)), None)
        if at is not None:
            room, card = left[at].with_pod(demand, _card_id(demand.name, left[at]))
            left[at] = room
            seats.append(Seat(demand.name, room.name, card))
            continue
        missing = missing or why_nowhere(demand, left)
        if number < len(required):
            return Placement((), missing)
    return Placement(tuple(seats), missing)


def _card_id(pod: str, room: Room) -> str:
    """A name for a card that is new to its node; the same for the same pod, however often asked."""
    taken = {card.id for card in room.cards}
    for attempt in range(len(taken) + 1):
        digest = hashlib.sha256(f"{room.name}/{pod}/{attempt}".encode()).digest()
        name = "".join(ascii_lowercase[byte % len(ascii_lowercase)] for byte in digest)[:_ID_LENGTH]
        if name not in taken:
            return name
    raise AssertionError("as many hashes as cards, and one more, are all the same")


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
    needs = ", ".join(f"{k}={quantity_shown(v)}" for k, v in demand.needs.items() if k != _PODS)
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


def is_allowed(spec: PodSpec, name: str, labels: Mapping[str, str]) -> bool:
    """Whether a node of that name and with these labels is one that the pod asks for."""
    if spec.node_name not in {"", name}:
        return False
    if not spec.node_selector.items() <= labels.items():
        return False
    required = spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution
    return required is None or any(
        _holds(term, name, labels) for term in required.node_selector_terms
    )


def _holds(term: NodeTerm, name: str, labels: Mapping[str, str]) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    # The name is the only field that Kubernetes knows here.
    fields = {"metadata.name": name}
    return all(_meets(each, labels) for each in term.match_expressions) and all(
        _meets(each, fields) for each in term.match_fields
    )


def _meets(requirement: Requirement, values: Mapping[str, str]) -> bool:
    found, wanted = values.get(requirement.key), requirement.values
    match requirement.operator:
        case Operator.IN:
            return found in wanted
        case Operator.NOT_IN:
            return found not in wanted
        case Operator.EXISTS:
            return found is not None
        case Operator.DOES_NOT_EXIST:
            return found is None
        case Operator.GREATER:
            return _is_more(found, wanted, 1)
        case Operator.LESS:
            return _is_more(found, wanted, -1)


def _is_more(found: str | None, wanted: Sequence[str], sign: int) -> bool:
    """Whether a label is a number beyond the only one that is given, in the sign's direction."""
    try:
        [limit] = wanted
        return sign * int(found or "") > sign * int(limit)
    except ValueError:
        return False
