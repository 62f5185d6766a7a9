"""What is stored of a row's values: float32 as they are, or fewer bits in the same words.

Rounding is stochastic: up or down by chance, so that the mean is the number itself. To the nearest
one would lose each update that is smaller than half a step, and steps are as large as 1/128 of a
number in bfloat16, and 1/127 of the row's largest in int8. Chance follows from table, id and
update alone: a job that goes back to a cut rounds as it would have.

Slots of the optimizer and notes stay as they are, behind the values.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from elastic.rows.base import WORD_BYTES, Ids, Table, Values
from elastic.rows.ids import random_words
from elastic.rows.store import Change, TableForm

Draws: TypeAlias = NDArray[np.uint16]
"""Random bits for each number, of the shape of the numbers."""

_BITS: Final = 16
_DRAWS_A_WORD: Final = 4
_NAN: Final = np.uint32(0x7FC00000)
_LARGEST: Final = 127
"""Of int8: as many steps up as down."""


def unpacked(table: Table, stored: Values) -> Values:
    """The values of stored rows, of shape (rows, dim).

    Args:
        table: Of which they are.
        stored: Of as many words as the values have, or of more, which are left out.
    """
    words = np.ascontiguousarray(stored[:, : table.num_words])
    return _UNPACK[table.row_dtype](words, table.dim)


def packed(table: Table, values: Values, ids: Ids, step: int) -> Values:
    """Values as they are stored, of shape (rows, num_words).

    Args:
        table: Of which they are.
        values: Of shape (rows, dim).
        ids: Of the rows.
        step: Number of the update that leaves them.
    """
    if table.row_dtype == "float32":
        return values
    words = random_words(f"{table.name}/{step}", ids, -(-table.dim // _DRAWS_A_WORD))
    draws = words.astype("<u8", copy=False).view("<u2")[:, : table.dim]
    stored = np.zeros((len(values), table.num_words), np.float32)
    _PACK[table.row_dtype](stored, np.ascontiguousarray(values), draws)
    return stored


def repacked(table: Table, was: Table, part: Change, step: int) -> Values:
    """Stored values, of rows that were stored as those of another table; bit by bit if alike.

    Args:
        table: Of which they are now.
        was: Of which they were.
        part: The rows, whatever stands behind the values.
        step: See `packed`.
    """
    if table.row_dtype == was.row_dtype:
        return part.values[:, : was.num_words]
    return packed(table, unpacked(was, part.values), part.ids, step)


def numbers_of(form: TableForm, stored: Values) -> Values:
    """Values and slots of stored rows, of shape (rows, dim * (1 + slots)); of float32 a view."""
    first, end = form.table.num_words, form.width - form.num_notes
    if form.table.row_dtype == "float32":
        return stored[:, :end]
    return np.concatenate([unpacked(form.table, stored), stored[:, first:end]], axis=1)


def put_numbers(form: TableForm, stored: Values, numbers: Values, ids: Ids, step: int) -> None:
    """Have in stored rows what an update has made of their `numbers_of`."""
    table = form.table
    if table.row_dtype == "float32":
        # They are the same memory.
        return
    stored[:, : table.num_words] = packed(table, numbers[:, : table.dim], ids, step)
    stored[:, table.num_words : form.width - form.num_notes] = numbers[:, table.dim :]


def _as_they_are(words: Values, _: int) -> Values:
    return words


def _from_bfloat16(words: Values, dim: int) -> Values:
    halves = words.view(np.uint16)[:, :dim]
    return np.left_shift(halves, _BITS, dtype=np.uint32).view(np.float32)


def _to_bfloat16(stored: Values, values: Values, draws: Draws) -> None:
    """Add chance below the bits that stay: what they hold already has nothing to be carried."""
    bits = np.where(np.isnan(values), _NAN, values.view(np.uint32) + draws)
    stored.view(np.uint16)[:, : values.shape[1]] = bits >> np.uint32(_BITS)


def _from_int8(words: Values, dim: int) -> Values:
    numbers = words.view(np.int8)[:, WORD_BYTES : WORD_BYTES + dim]
    # A row that had something infinite is NaN.
    with np.errstate(invalid="ignore"):
        return numbers.astype(np.float32) * words[:, :1]


def _to_int8(stored: Values, values: Values, draws: Draws) -> None:
    scales = np.abs(values).max(axis=1, keepdims=True) / np.float32(_LARGEST)
    with np.errstate(all="ignore"):
        # A row of zeros has the scale 0.
        steps = np.nan_to_num(values / scales, nan=0.0)
    chance = (draws + np.float32(0.5)) / np.float32(1 << _BITS)
    numbers = np.clip(np.floor(steps + chance), -_LARGEST, _LARGEST)
    stored.view(np.int8)[:, WORD_BYTES : WORD_BYTES + values.shape[1]] = numbers
    stored[:, :1] = scales


_UNPACK: Final[Mapping[str, Callable[[Values, int], Values]]] = {
    "float32": _as_they_are,
    "bfloat16": _from_bfloat16,
    "int8": _from_int8,
}
_PACK: Final[Mapping[str, Callable[[Values, Values, Draws], None]]] = {
    "bfloat16": _to_bfloat16,
    "int8": _to_int8,
}
