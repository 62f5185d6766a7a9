"""GPUs of one node that are given out in parts."""

import hashlib
from collections.abc import Collection, Iterable
from string import ascii_lowercase
from typing import Final

from elastic.policy.cluster.amounts import MILLI
from elastic.policy.cluster.snapshot import Share

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
        return max((MILLI - used for used, _, _ in self._used.values()), default=0)

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
