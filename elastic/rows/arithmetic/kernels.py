"""What one update does to rows: the user's optimizer, told as a rule, row by row.

A row whose gradient is not there is not touched, as by torch's `SparseAdam` and Keras' own
optimizers given slices: moments do not decay for it, and weights neither.

Where torch and Keras have two formulas of one name, both are here, by the words of a rule's
numbers. All is computed in float32, as they do.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

import numpy as np

from elastic.errors import ModelDefError
from elastic.rows.base import Values

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
