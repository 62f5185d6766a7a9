"""Keras' own SGD and Adam by TensorFlow's in-place kernels.

Keras composes an update of one operation for each term, and each reads and writes arrays as large
as the parameters: plain SGD moves twice the bytes that it has to, Adam needs twelve operations
where six will do. TensorFlow has kernels of parts of the same formulas. Clipping, decay, averaging
and accumulation stay where they are, around the update of one variable.
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
    """Keras' formula to the last bit: TensorFlow's own kernel for Adam rounds `1 - beta_2`."""

    def step(gradient: Any, variable: tf.Variable, learning_rate: Any) -> None:
        def own(value: Any) -> Any:
            return tf.cast(value, variable.dtype)

        index = optimizer._get_variable_index(variable)  # noqa: SLF001 - as its own step does
        momentum = optimizer._momentums[index].value  # noqa: SLF001 - Keras has no public name
        velocity = optimizer._velocities[index].value  # noqa: SLF001 - Keras has no public name
        count = own(optimizer.iterations.value + 1)
        power_1, power_2 = (
            tf.pow(own(beta), count) for beta in (optimizer.beta_1, optimizer.beta_2)
        )
        gradient = own(gradient)
        _move(momentum, gradient, own(1 - optimizer.beta_1))
        _move(velocity, tf.square(gradient), own(1 - optimizer.beta_2))
        # Adagrad's step divides by the root of what it has, here without adding to it first.
        tf.raw_ops.ResourceApplyAdagradV2(
            var=variable.handle,
            accum=velocity.handle,
            lr=own(learning_rate) * tf.sqrt(1 - power_2) / (1 - power_1),
            epsilon=own(optimizer.epsilon),
            grad=momentum.read_value(),
            update_slots=False,
        )

    return step


def _move(average: tf.Variable, value: Any, share: Any) -> None:
    """Let a running average go some way to a value."""
    tf.raw_ops.ResourceApplyGradientDescent(
        var=average.handle, alpha=share, delta=average.read_value() - value
    )
