"""Where pods go: first fit, on one node where one can hold them all. Pure, and replaceable.

Whoever decides otherwise has the same to say: a seat for each pod that has one, and why others have
none.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_lowercase
from typing import Final

from elastic.controller.kinds.rooms import Demand, Room, why_nowhere

_ID_LENGTH: Final = 8
"""Letters of the id of a card; it is unique on its node."""


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
