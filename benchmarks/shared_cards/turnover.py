"""The experiments: a cluster that is filled, and one whose pods come and go."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.shared_cards.columns import Column
from benchmarks.shared_cards.pods import Cards, arriving, asked
from elastic.policy.cluster import Job

ASKED: Final = 1.1
"""The cards that pods ask for, as a part of those that there are."""

LEAVING: Final = 0.05
"""The part of the pods that ends in each turn."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Who comes at a time: pods, and in how many turns each of them ends."""

    pods: Sequence[Job]
    stays: Sequence[int]


def turns_of(cards: Cards, num_turns: int, seed: int) -> list[Turn]:
    """First as many as ask for more than there is, then as many as end.

    They are the same whoever places them.
    """
    draw, number = random.Random(seed), 0
    turns = []
    for turn in range(num_turns + 1):
        part = ASKED * (LEAVING if turn else 1.0)
        pods = []
        for pod in cards.drawn(draw, part * cards.capacity):
            pods.append(arriving(pod, number))
            number += 1
        turns.append(Turn(pods, [_turns_until_end(draw) for _ in pods]))
    return turns


def _turns_until_end(draw: random.Random) -> int:
    stays = 1
    while draw.random() >= LEAVING:
        stays += 1
    return stays


def given_out(column: Column, cards: Cards, turns: Sequence[Turn]) -> list[float]:
    """After each turn, the part of all cards that is given out."""
    ends: dict[str, tuple[int, int]] = {}
    parts = []
    for now, turn in enumerate(turns):
        over = {name for name, (at, _) in ends.items() if at <= now}
        column.leave(over)
        placed = column.come(turn.pods)
        ends = {name: ends[name] for name in ends if name not in over}
        for pod, stays in zip(turn.pods, turn.stays, strict=True):
            if pod.name in placed:
                ends[pod.name] = now + stays, asked(pod)
        parts.append(sum(milli for _, milli in ends.values()) / cards.capacity)
    return parts


def recorded(cards: Cards) -> list[Turn]:
    """All pods in the order in which they came, and none ends."""
    pods = [arriving(pod, number) for number, pod in enumerate(cards.pods)]
    return [Turn(pods, [1] * len(pods))]
