"""In-place kernels under Keras' own optimizers.

Keras composes an update of one operation for each term, and each reads and writes arrays as large
as the parameters: plain SGD moves twice the bytes that it has to, Adam has twelve operations. Here
the update of one variable is TensorFlow's own kernel, or for large ones a loop that XLA makes of
Keras' formula. Clipping, decay, averaging, accumulation and the slots stay what and where they are
around it.
"""

import math
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import keras
import tensorflow as tf

UpdateStep: TypeAlias = Callable[[Any, tf.Variable, Any], None]

LARGE_BYTES: Final = 1 << 20
"""From here on a variable's update is compiled by XLA, which takes one to three tenths of a second
for each shape, once, and halves the time of each update after it."""


def use_kernels(optimizer: Any) -> None:
    """Give SGD, Adam, AdamW and Adagrad of Keras' own their kernels.

    A subclass may have another `update_step`, so it keeps its own.
    """
    kind = type(optimizer)
    if kind is keras.optimizers.SGD:
        optimizer.update_step = _sgd_step(optimizer)
    # The kernels do not know of the largest velocity so far.
    if kind in (keras.optimizers.Adam, keras.optimizers.AdamW) and not optimizer.amsgrad:
        optimizer.update_step = _by_size(_large_adam_step(optimizer), _adam_step(optimizer))
    if kind is keras.optimizers.Adagrad:
        optimizer.update_step = _by_size(_large_adagrad_step(optimizer), optimizer.update_step)


def _sgd_step(optimizer: Any) -> UpdateStep:
    def plain(gradient: Any, variable: tf.Variable, learning_rate: Any) -> None:
        tf.raw_ops.ResourceApplyGradientDescent(
            var=variable.handle,
            alpha=tf.cast(learning_rate, variable.dtype),
            delta=tf.cast(gradient, variable.dtype),
        )

    def with_momentum(gradient: Any, variable: tf.Variable, learning_rate: Any) -> None:
        tf.raw_ops.ResourceApplyKerasMomentum(
            var=variable.handle,
            accum=_slot(optimizer, optimizer.momentums, variable).handle,
            lr=tf.cast(learning_rate, variable.dtype),
            grad=tf.cast(gradient, variable.dtype),
            momentum=tf.cast(optimizer.momentum, variable.dtype),
            use_nesterov=bool(optimizer.nesterov),
        )

    return with_momentum if optimizer.momentum else plain


def _adam_step(optimizer: Any) -> UpdateStep:
    """Keras' formula to the last bit: TensorFlow's own kernel for Adam rounds `1 - beta_2`."""

    def step(gradient: Any, variable: tf.Variable, learning_rate: Any) -> None:
        momentum, velocity = _adam_slots(optimizer, variable)
        share_1, share_2, rate, epsilon = _adam_numbers(optimizer, variable, learning_rate)
        gradient = tf.cast(gradient, variable.dtype)
        _move(momentum, gradient, share_1)
        _move(velocity, tf.square(gradient), share_2)
        # Adagrad's step divides by the root of what it has, here without adding to it first.
        tf.raw_ops.ResourceApplyAdagradV2(
            var=variable.handle,
            accum=velocity.handle,
            lr=rate,
            epsilon=epsilon,
            grad=momentum.read_value(),
            update_slots=False,
        )

    return step


def _large_adam_step(optimizer: Any) -> UpdateStep:
    def step(gradient: Any, variable: tf.Variable, learning_rate: Any) -> None:
        slots = _adam_slots(optimizer, variable)
        numbers = _adam_numbers(optimizer, variable, learning_rate)
        _adam(variable.handle, *(slot.handle for slot in slots), gradient, *numbers)

    return step


def _large_adagrad_step(optimizer: Any) -> UpdateStep:
    def step(gradient: Any, variable: tf.Variable, learning_rate: Any) -> None:
        # Keras has no public name for them.
        total = _slot(optimizer, optimizer._accumulators, variable)  # noqa: SLF001
        rate, epsilon = (tf.cast(each, tf.float32) for each in (learning_rate, optimizer.epsilon))
        _adagrad(variable.handle, total.handle, gradient, rate, epsilon)

    return step


# Each takes handles, so that variables of one shape share what is compiled, and reads all before
# it assigns anything, so that XLA writes to the variables' own memory.


@tf.function(jit_compile=True)  # type: ignore[untyped-decorator]
def _adam(
    variable: Any,
    momentum: Any,
    velocity: Any,
    gradient: Any,
    share_1: Any,
    share_2: Any,
    rate: Any,
    epsilon: Any,
) -> None:
    values, mean, square = map(_read, (variable, momentum, velocity))
    mean = mean + (gradient - mean) * share_1
    square = square + (tf.square(gradient) - square) * share_2
    _assign(momentum, mean)
    _assign(velocity, square)
    _assign(variable, values - mean * rate / (tf.sqrt(square) + epsilon))


@tf.function(jit_compile=True)  # type: ignore[untyped-decorator]
def _adagrad(variable: Any, accumulator: Any, gradient: Any, rate: Any, epsilon: Any) -> None:
    values, total = map(_read, (variable, accumulator))
    total = total + tf.square(gradient)
    _assign(accumulator, total)
    _assign(variable, values - rate * gradient / tf.sqrt(total + epsilon))


def _read(handle: Any) -> Any:
    return tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)


def _assign(handle: Any, value: Any) -> None:
    tf.raw_ops.AssignVariableOp(resource=handle, value=value)


def _by_size(large: UpdateStep, small: UpdateStep) -> UpdateStep:
    def step(gradient: Any, variable: tf.Variable, learning_rate: Any) -> None:
        (large if _is_large(variable) else small)(gradient, variable, learning_rate)

    return step


def _is_large(variable: tf.Variable) -> bool:
    """Whether it is worth compiling for; on a GPU that needs more than TensorFlow brings along."""
    size_bytes = 4 * math.prod(variable.shape)
    is_float32 = tf.as_dtype(variable.dtype) == tf.float32
    return is_float32 and size_bytes >= LARGE_BYTES and "GPU" not in variable.device


def _slot(optimizer: Any, slots: Any, variable: Any) -> Any:
    return slots[optimizer._get_variable_index(variable)].value  # noqa: SLF001 - as its own steps


def _adam_slots(optimizer: Any, variable: Any) -> tuple[Any, Any]:
    # Keras has no public names for them.
    return (
        _slot(optimizer, optimizer._momentums, variable),  # noqa: SLF001
        _slot(optimizer, optimizer._velocities, variable),  # noqa: SLF001
    )


def _adam_numbers(optimizer: Any, variable: Any, learning_rate: Any) -> tuple[Any, ...]:
    """How far the two averages move, the corrected rate, and epsilon."""

    def own(value: Any) -> Any:
        return tf.cast(value, variable.dtype)

    count = own(optimizer.iterations.value + 1)
    power_1, power_2 = (tf.pow(own(beta), count) for beta in (optimizer.beta_1, optimizer.beta_2))
    rate = own(learning_rate) * tf.sqrt(1 - power_2) / (1 - power_1)
    return own(1 - optimizer.beta_1), own(1 - optimizer.beta_2), rate, own(optimizer.epsilon)


def _move(average: tf.Variable, value: Any, share: Any) -> None:
    """Let a running average go some way to a value."""
    tf.raw_ops.ResourceApplyGradientDescent(
        var=average.handle, alpha=share, delta=average.read_value() - value
    )
