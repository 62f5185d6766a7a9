"""Keras' own SGD and Adam by TensorFlow's in-place kernels.

Keras composes an update of one operation for each term, and each reads and writes arrays as large
as the parameters: plain SGD moves twice the bytes that it has to, and Adam takes twice the time.
TensorFlow has kernels of the same formulas that pass over the arrays once. Clipping, decay,
averaging and accumulation stay where they are, around the update of one variable.
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
    is_adam = type(optimizer) in (keras.optimizers.Adam, keras.optimizers.AdamW)
    # The kernel does not know of the largest velocity so far.
    if is_adam and not optimizer.amsgrad:
        optimizer.update_step = _adam_step(optimizer)


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


def _adam_step(optimizer: Any) -> UpdateStep:
    def step(gradient: Any, variable: tf.Variable, learning_rate: Any) -> None:
        def own(value: Any) -> Any:
            return tf.cast(value, variable.dtype)

        index = optimizer._get_variable_index(variable)  # noqa: SLF001 - as its own step does
        count = own(optimizer.iterations.value + 1)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=optimizer._momentums[index].value.handle,  # noqa: SLF001 - Keras has no public name
            v=optimizer._velocities[index].value.handle,  # noqa: SLF001 - Keras has no public name
            beta1_power=tf.pow(own(optimizer.beta_1), count),
            beta2_power=tf.pow(own(optimizer.beta_2), count),
            lr=own(learning_rate),
            beta1=own(optimizer.beta_1),
            beta2=own(optimizer.beta_2),
            epsilon=own(optimizer.epsilon),
            grad=own(gradient),
        )

    return step
