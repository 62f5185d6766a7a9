"""Loss scaling of mixed_float16: gradients that float16 would round to 0 are kept."""

from collections.abc import Sequence
from typing import Any, Final

import tensorflow as tf

INITIAL: Final = 2.0**15
"""As Keras' `LossScaleOptimizer` begins."""

GROWTH_STEPS: Final = 2000
"""Steps without an overflow after which a larger factor is tried, as Keras does."""


class LossScale:
    """The factor by which a worker multiplies the loss before it differentiates it.

    It divides the gradients by it again, in float32: nobody else sees it. Only the worker can do
    that; an optimizer gets gradients that have lost what was too small for float16.
    """

    def __init__(self) -> None:
        self.factor = INITIAL
        self._num_good = 0

    def accepts(self, loss: Any, gradients: Sequence[Any]) -> bool:
        """Whether a step is good; if not it is to be computed again, by the smaller factor."""
        if bool(tf.reduce_all([tf.reduce_all(tf.math.is_finite(each)) for each in gradients])):
            self._num_good += 1
            if self._num_good == GROWTH_STEPS:
                self._num_good, self.factor = 0, self.factor * 2
            return True
        self._num_good = 0
        if self.factor <= 1 or not bool(tf.math.is_finite(loss)):
            # No factor helps; what to do about it is the optimizer's affair.
            return True
        self.factor /= 2
        return False


def loss_scale_of(model: Any) -> LossScale | None:
    """What a model's gradients need; None where no layer computes in float16."""
    layers = model._flatten_layers()  # noqa: SLF001 (layers within layers are in no public list)
    is_half = any(layer.compute_dtype == "float16" for layer in layers)
    return LossScale() if is_half else None
