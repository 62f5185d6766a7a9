"""Which ids get a row, and which rows go again: decided by counts that are stored with them.

Nothing else is looked at, so that a job that goes back to a cut decides as it would have.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from elastic.rows.base import Ids, Life, Values
from elastic.rows.store import Change, Noted, Notes, no_ids

NOTES: Final = ("count", "seen")
"""Of a row: in how many updates it was, and the number of the last one."""

PARTS: Final = 8
"""A look at all rows comes so often in the time after which they expire, and makes room for so
many of `max_rows`: often enough, and rare enough to cost little."""


@dataclass(frozen=True, slots=True)
class Gone:
    """How many rows of a table have gone.

    Attributes:
        expired: Not trained for too long.
        evicted: To make room.
    """

    expired: int = 0
    evicted: int = 0

    def __add__(self, other: "Gone") -> "Gone":
        return Gone(self.expired + other.expired, self.evicted + other.evicted)


@dataclass(frozen=True, slots=True)
class Leaving:
    """Ids of rows that go, each once, in no order.

    Attributes:
        expired: Not trained for too long.
        evicted: To make room.
    """

    expired: Ids
    evicted: Ids

    @property
    def num(self) -> Gone:
        """How many they are."""
        return Gone(len(self.expired), len(self.evicted))

    @property
    def ids(self) -> Ids:
        """All of them, ascending."""
        return np.sort(np.concatenate([self.expired, self.evicted]))


def is_due(life: Life, step: int, num_rows: int) -> bool:
    """Whether an update looks which rows go.

    Args:
        life: Of the table.
        step: Number of the update.
        num_rows: That there would be after it.
    """
    if life.max_rows is not None and num_rows > life.max_rows:
        return True
    return life.expire_after is not None and step % max(1, life.expire_after // PARTS) == 0


def leaving(life: Life, notes: Notes, step: int) -> Leaving:
    """Which rows go with an update.

    Args:
        life: Of the table.
        notes: Of all rows, as this update leaves them.
        step: Its number.
    """
    counts, seen = notes.numbers.T.astype(np.int64)
    is_old = np.zeros(len(counts), np.bool_)
    if life.expire_after is not None:
        is_old = seen <= step - life.expire_after
    expired, ids = notes.ids[is_old], notes.ids[~is_old]
    if life.max_rows is None or len(ids) <= life.max_rows:
        return Leaving(expired, no_ids())
    surplus = len(ids) - (life.max_rows - life.max_rows // PARTS)
    ranks = (counts << 32 | seen)[~is_old]
    return Leaving(expired, _least(ids, ranks, surplus))


def noted(values: Values) -> Noted:
    """The notes in stored rows, as a view that can be changed."""
    return values[:, values.shape[1] - len(NOTES) :].view(np.int32)


def note(values: Values, step: int) -> None:
    """Note in stored rows that an update of this number has them."""
    notes = noted(values)
    notes[:, 0] += 1
    notes[:, 1] = step


def notes_after(notes: Notes, change: Change) -> Notes:
    """The notes of all rows, as a change leaves them."""
    touched = np.sort(np.concatenate([change.ids, change.removed]))
    stays = ~_among(notes.ids, touched)
    return Notes(
        np.concatenate([notes.ids[stays], change.ids]),
        np.concatenate([notes.numbers[stays], noted(change.values)]),
    )


def without(change: Change, ids: Ids) -> Change:
    """The same change, which removes these rows instead of writing them.

    Args:
        change: Which removes others.
        ids: Ascending.
    """
    stays = ~_among(change.ids, ids)
    removed = np.sort(np.concatenate([change.removed, ids]))
    return Change(change.ids[stays], change.values[stays], removed)


def _among(ids: Ids, ascending: Ids) -> NDArray[np.bool_]:
    """Of each id, whether it is one of these: in a tenth of the time that `isin` takes."""
    if not len(ascending):
        return np.zeros(len(ids), np.bool_)
    places = np.searchsorted(ascending[:-1], ids)
    is_among: NDArray[np.bool_] = ascending[places] == ids
    return is_among


def _least(ids: Ids, ranks: NDArray[np.int64], number: int) -> Ids:
    """So many ids of the least ranks; of equal ranks the least ids, wherever they are stored."""
    edge = np.partition(ranks, number - 1)[number - 1]
    below = ids[ranks < edge]
    return np.concatenate([below, np.sort(ids[ranks == edge])[: number - len(below)]])
