"""Keras' own SGD by TensorFlow's in-place kernels.

Keras composes an update of one operation for each term, and each reads and writes arrays as large
as the parameters: plain SGD moves twice the bytes that it has to. TensorFlow has kernels of the
same formulas that pass over the arrays once. Clipping, decay, averaging and accumulation stay
where they are, around the update of one variable.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import keras
import tensorflow as tf

UpdateStep: TypeAlias = Callable[[Any, tf.Variable, Any], None]


def use_kernels(optimizer: Any) -> None:
    """Let an optimizer update variables by a kernel, where its very class has one.

    A subclass may have another `update_step`, so it keeps its own.
    """
    if type(optimizer) is keras.optimizers.SGD:
        optimizer.update_step = _sgd_step(optimizer)


def _sgd_step(optimizer: Any) -> UpdateStep:
    def plain(gradient: Any, variable: tf.Variable, learning_rate: Any) -> None:
        tf.raw_ops.ResourceApplyGradientDescent(
            var=variable.handle,
            alpha=tf.cast(learning_rate, variable.dtype),
            delta=tf.cast(gradient, variable.dtype),
        )

    def with_momentum(gradient: Any, variable: tf.Variable, learning_rate: Any) -> None:
        index = optimizer._get_variable_index(variable)  # noqa: SLF001 - as its own step does
        momentums = optimizer.momentums[index].value
        tf.raw_ops.ResourceApplyKerasMomentum(
            var=variable.handle,
            accum=momentums.handle,
            lr=tf.cast(learning_rate, variable.dtype),
            grad=tf.cast(gradient, variable.dtype),
            momentum=tf.cast(optimizer.momentum, variable.dtype),
            use_nesterov=bool(optimizer.nesterov),
        )

    return with_momentum if optimizer.momentum else plain
