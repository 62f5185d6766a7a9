"""Numbers of rows: how they begin, what a gradient does to them, and in how few bits they are kept.

Belongs here: arrays in, arrays out. Not here: where rows are (`memory`, `redis`), nor which.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from elastic.errors import ModelDefError
from elastic.rows.base import WORD_BYTES, Change, Ids, Table, TableForm, Values
from elastic.rows.ids import Words, random_words

# How a row begins: a pure function of its table, its id and the initializer, the same everywhere.
#
# Only operations that every processor rounds alike are used: no logarithm or cosine, which NumPy
# computes by other instructions on other machines.


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


# What one update does to rows: the user's optimizer, told as a rule, row by row.
#
# A row whose gradient is not there is not touched, as by torch's `SparseAdam` and Keras' own
# optimizers given slices: moments do not decay for it, and weights neither.
#
# Where torch and Keras have two formulas of one name, both are here, by the words of a rule's
# numbers. All is computed in float32, as they do.


Slots: TypeAlias = list[Values]
"""Of the same rows, in the order of their names."""


@dataclass(frozen=True, slots=True)
class RowRule:
    """How the user's optimizer updates a row, without its learning rate, which may have a schedule.

    Attributes:
        kind: A word of `KERNELS`.
        numbers: Its hyper-parameters, by the words of that kernel.
    """

    kind: str
    numbers: Mapping[str, float] = field(default_factory=dict)


class Kernel(Protocol):
    """One optimizer's update of rows."""

    @property
    def slots(self) -> tuple[str, ...]:
        """Names of what it keeps of each row, `dim` numbers each, behind the row's values."""

    def begin(self, num_rows: int, dim: int) -> Values:
        """Slots of rows that nobody has changed yet, of shape (num_rows, dim * slots)."""

    def update(self, values: Values, gradient: Values, learning_rate: float, step: int) -> None:
        """Update rows in place.

        Args:
            values: Rows with their slots, of shape (rows, dim * (1 + slots)).
            gradient: Of shape (rows, dim); it is not changed.
            learning_rate: Of this update.
            step: Its number, from 1.
        """


@dataclass(frozen=True, slots=True)
class _Moment:
    """One update.

    Attributes:
        learning_rate: Its.
        step: Its number, from 1.
    """

    learning_rate: float
    step: int


def kernel_of(rule: RowRule) -> Kernel:
    """The kernel of a rule.

    Raises:
        ModelDefError: There is none of that kind, or it has not such numbers: the rule was made by
            another version of this project.
    """
    if rule.kind not in KERNELS:
        raise ModelDefError(
            f"rows of embeddings are updated by {', '.join(KERNELS)}, and not by {rule.kind!r}: "
            "use the optimizer that the job was begun with"
        )
    try:
        return KERNELS[rule.kind](**rule.numbers)
    except TypeError as error:
        raise ModelDefError(
            f"rows of embeddings are updated by {rule.kind} without the numbers "
            f"{dict(rule.numbers)}: use the version of elastic that the job was begun with"
        ) from error


@dataclass(frozen=True, slots=True)
class _Base(ABC):
    """What all have.

    Attributes:
        weight_decay: Times the row, added to its gradient.
        decay: Times the learning rate, the part of a row that is taken away before the update.
    """

    weight_decay: float = 0.0
    decay: float = 0.0

    @property
    def slots(self) -> tuple[str, ...]:
        return ()

    def begin(self, num_rows: int, dim: int) -> Values:
        return np.zeros((num_rows, dim * len(self.slots)), np.float32)

    def update(self, values: Values, gradient: Values, learning_rate: float, step: int) -> None:
        dim = gradient.shape[1]
        places = [values[:, at : at + dim] for at in range(0, values.shape[1], dim)]
        # Side by side and not in lines: short rows cost less to copy than to go through.
        rows, *slots = copies = [np.ascontiguousarray(place) for place in places]
        if self.decay:
            rows *= 1.0 - learning_rate * self.decay
        if self.weight_decay:
            gradient = gradient + self.weight_decay * rows
        self.move(rows, slots, gradient, _Moment(float(learning_rate), step))
        for place, copy in zip(places, copies, strict=True):
            place[:] = copy

    @abstractmethod
    def move(self, rows: Values, slots: Slots, gradient: Values, at: _Moment) -> None:
        """Update rows and slots in place."""


@dataclass(frozen=True, slots=True)
class Sgd(_Base):
    """Plain gradient descent."""

    def move(
        self,
        rows: Values,
        slots: Slots,  # noqa: ARG002 - it has none
        gradient: Values,
        at: _Moment,
    ) -> None:
        rows -= at.learning_rate * gradient


@dataclass(frozen=True, slots=True)
class Momentum(_Base):
    """torch's SGD with momentum: the rate multiplies what has been gathered.

    Attributes:
        momentum: What is kept of what was gathered.
        dampening: What is left out of a gradient, but of a row's first.
        nesterov: 1 to look one step ahead.
    """

    momentum: float = 0.9
    dampening: float = 0.0
    nesterov: float = 0.0

    @property
    def slots(self) -> tuple[str, ...]:
        return ("momentum",)

    def move(self, rows: Values, slots: Slots, gradient: Values, at: _Moment) -> None:
        (gathered,) = slots
        taken = gradient
        if self.dampening:
            has_begun = gathered.any(axis=1, keepdims=True)
            taken = np.where(has_begun, (1.0 - self.dampening) * gradient, gradient)
        gathered *= self.momentum
        gathered += taken
        ahead = gradient + self.momentum * gathered if self.nesterov else gathered
        rows -= at.learning_rate * ahead


@dataclass(frozen=True, slots=True)
class Velocity(_Base):
    """Keras' SGD with momentum: what has been gathered has the rates of its time in it.

    Attributes:
        momentum, nesterov: See `Momentum`.
    """

    momentum: float = 0.9
    nesterov: float = 0.0

    @property
    def slots(self) -> tuple[str, ...]:
        return ("momentum",)

    def move(self, rows: Values, slots: Slots, gradient: Values, at: _Moment) -> None:
        (velocity,) = slots
        move = at.learning_rate * gradient
        velocity *= self.momentum
        velocity -= move
        rows += self.momentum * velocity - move if self.nesterov else velocity


@dataclass(frozen=True, slots=True)
class Adagrad(_Base):
    """Divides by the root of the sum of all squares.

    Attributes:
        initial: Of that sum.
        epsilon: Added to the root.
        epsilon_within: Added to the sum before its root is taken, as Keras does.
    """

    initial: float = 0.0
    epsilon: float = 0.0
    epsilon_within: float = 0.0

    @property
    def slots(self) -> tuple[str, ...]:
        return ("sum",)

    def begin(self, num_rows: int, dim: int) -> Values:
        return np.full((num_rows, dim), self.initial, np.float32)

    def move(self, rows: Values, slots: Slots, gradient: Values, at: _Moment) -> None:
        (total,) = slots
        total += gradient * gradient
        rows -= at.learning_rate * gradient / (np.sqrt(total + self.epsilon_within) + self.epsilon)


@dataclass(frozen=True, slots=True)
class Adam(_Base):
    """Adam and AdamW; the steps of its correction are the model's, not the row's.

    Attributes:
        beta_1: What is kept of the mean of gradients.
        beta_2: What is kept of the mean of squares.
        epsilon: Added to the root of the corrected mean of squares, as torch does.
        epsilon_raw: Added to the root of the mean that is not corrected yet, as Keras and
            `SparseAdam` do.
    """

    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 0.0
    epsilon_raw: float = 0.0

    @property
    def slots(self) -> tuple[str, ...]:
        return ("mean", "square")

    def move(self, rows: Values, slots: Slots, gradient: Values, at: _Moment) -> None:
        mean, square = slots
        mean += (1.0 - self.beta_1) * (gradient - mean)
        square *= self.beta_2
        square += (1.0 - self.beta_2) * gradient * gradient
        correction = (1.0 - self.beta_2**at.step) ** 0.5
        divisor = np.sqrt(square)
        divisor += self.epsilon_raw + correction * self.epsilon
        rows -= (at.learning_rate * correction / (1.0 - self.beta_1**at.step)) * mean / divisor


@dataclass(frozen=True, slots=True)
class RmsProp(_Base):
    """Divides by the root of a running mean of squares.

    Attributes:
        rho: What is kept of that mean.
        epsilon, epsilon_within: See `Adagrad`.
        momentum: What is kept of past moves; 0 for none.
        centered: 1 to divide by the root of the variance.
        rate_within: 1 where moves have the rates of their time in them, as Keras has it.
    """

    rho: float = 0.9
    epsilon: float = 0.0
    epsilon_within: float = 0.0
    momentum: float = 0.0
    centered: float = 0.0
    rate_within: float = 0.0

    @property
    def slots(self) -> tuple[str, ...]:
        kept = (("momentum", self.momentum), ("average", self.centered))
        return ("square", *(name for name, is_kept in kept if is_kept))

    def move(self, rows: Values, slots: Slots, gradient: Values, at: _Moment) -> None:
        square, *others = slots
        square *= self.rho
        square += (1.0 - self.rho) * gradient * gradient
        variance = square + self.epsilon_within
        if self.centered:
            average = others[-1]
            average *= self.rho
            average += (1.0 - self.rho) * gradient
            variance -= average * average
        move = gradient / (np.sqrt(variance) + self.epsilon)
        if not self.momentum:
            rows -= at.learning_rate * move
            return
        moves = others[0]
        moves *= self.momentum
        moves += at.learning_rate * move if self.rate_within else move
        rows -= moves if self.rate_within else at.learning_rate * moves


KERNELS: Final[Mapping[str, Callable[..., Kernel]]] = {
    "sgd": Sgd,
    "momentum": Momentum,
    "velocity": Velocity,
    "adagrad": Adagrad,
    "adam": Adam,
    "rmsprop": RmsProp,
}


# What is stored of a row's values: float32 as they are, or fewer bits in the same words.
#
# Rounding is stochastic: up or down by chance, so that the mean is the number itself. To the
# nearest one would lose each update that is smaller than half a step, and steps are as large as
# 1/128 of a number in bfloat16, and 1/127 of the row's largest in int8. Chance follows from table,
# id and update alone: a job that goes back to a cut rounds as it would have.
#
# Slots of the optimizer and notes stay as they are, behind the values.


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
