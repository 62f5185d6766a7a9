"""How a row begins: a pure function of its table, its id and the initializer, the same everywhere.

Only operations that every processor rounds alike are used: no logarithm or cosine, which NumPy
computes by other instructions on other machines.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias

import numpy as np

from elastic.errors import ModelDefError
from elastic.rows.base import Ids, Table, Values
from elastic.rows.ids import Words, random_words

_FORM: Final = re.compile(r"\s*(\w+)\s*(?:\(\s*([^()]*?)\s*\))?\s*")
_LANES: Final = 3
"""Words of which a normal number is made, four pieces of 16 bits each."""

Draw: TypeAlias = Callable[[int], Words]
"""Gives so many random words for each number of the rows, of shape (rows, dim * words)."""

Rule: TypeAlias = Callable[[Draw, int, int, float], Values]
"""Makes the numbers of some rows, of `dim` each, with the number in the brackets."""


@dataclass(frozen=True, slots=True)
class Initializer:
    """What the text of one says.

    Attributes:
        kind: A word of `RULES`.
        number: What stands in the brackets.
    """

    kind: str
    number: float


@lru_cache(maxsize=256)
def parse(text: str) -> Initializer:
    """Read `uniform(0.05)`, `normal(0.01)`, `constant(0.1)`, `zeros` or `ones`.

    Raises:
        ModelDefError: It is none of these.
    """
    found = _FORM.fullmatch(text)
    kind, number = (found[1], found[2]) if found else (text, None)
    if kind in _DEFAULTS and not (number and kind in _WITHOUT_NUMBER):
        value = _number(number) if number else _DEFAULTS[kind]
        if value is not None:
            return Initializer(kind, value)
    raise ModelDefError(
        f"there is no initializer {text!r} of an embedding: take uniform(0.05), which draws from "
        "-0.05 to 0.05, normal(0.01) with that standard deviation, constant(0.1), zeros or ones"
    )


def first_rows(table: Table, ids: Ids) -> Values:
    """The rows with which these ids begin, of shape (ids, dim); whatever ids come together."""
    initializer = parse(table.initializer)

    def draw(num_words: int) -> Words:
        return random_words(table.name, ids, table.dim * num_words)

    return RULES[initializer.kind](draw, len(ids), table.dim, initializer.number)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if np.isfinite(number) else None


def _uniform(draw: Draw, num_rows: int, dim: int, scale: float) -> Values:
    # 24 bits are what a float32 holds.
    steps = (draw(1) >> np.uint64(40)).astype(np.float64).reshape(num_rows, dim)
    return ((steps * 2.0**-23 - 1.0) * scale).astype(np.float32)


def _normal(draw: Draw, num_rows: int, dim: int, stddev: float) -> Values:
    """The sum of twelve uniform numbers has the variance 1, is normal to the eye, and below 6."""
    pieces = draw(_LANES).astype("<u8", copy=False).view("<u2")
    sums = pieces.reshape(num_rows, dim, 4 * _LANES).sum(axis=2, dtype=np.int64)
    # Each piece stands for the middle of its range.
    return np.asarray(((sums + 6) * 2.0**-16 - 6.0) * stddev, np.float32)


def _constant(_: Draw, num_rows: int, dim: int, value: float) -> Values:
    return np.full((num_rows, dim), value, np.float32)


RULES: Final[Mapping[str, Rule]] = {
    "uniform": _uniform,
    "normal": _normal,
    "constant": _constant,
    "zeros": _constant,
    "ones": _constant,
}
_DEFAULTS: Final[Mapping[str, float | None]] = {
    "uniform": 0.05,
    "normal": 0.05,
    "constant": None,
    "zeros": 0.0,
    "ones": 1.0,
}
_WITHOUT_NUMBER: Final = ("zeros", "ones")
