"""The user's Keras optimizer: over a model, over a part of it, and as a rule for rows."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final, TypeAlias

import keras
import numpy as np
import tensorflow as tf

from elastic.errors import CheckpointError, ModelDefError
from elastic.frameworks.base import Array, Tensors, UpdaterState, check_fit, copy_values
from elastic.frameworks.keras.model import KerasModel
from elastic.frameworks.keras.tensors import (
    Joining,
    Stager,
    ToTensor,
    VariableGroup,
    described,
    keras_code,
    optimizer_names,
)
from elastic.frameworks.user_code import asked_for
from elastic.rows.arithmetic import RowRule
from elastic.spec.model_def import ModelDef

_BY_ELEMENT: Final = (
    keras.optimizers.SGD, keras.optimizers.Adam, keras.optimizers.AdamW, keras.optimizers.Adagrad,
    keras.optimizers.Adadelta, keras.optimizers.Adamax, keras.optimizers.Nadam,
    keras.optimizers.RMSprop, keras.optimizers.Ftrl, keras.optimizers.Lion,
)  # fmt: skip
"""Update each number by itself; a subclass may do otherwise."""

_REFUSED: Final = {
    "clipnorm": "looks at all of a gradient at once",
    "global_clipnorm": "looks at all gradients at once",
    "clipvalue": "bounds gradients",
    "use_ema": "averages parameters over updates",
    "gradient_accumulation_steps": "updates after several gradients: use --grads_to_wait",
    "amsgrad": "keeps the largest square of each number",
}


class KerasShare:
    """Variables with their values, named as those of the model.

    Attributes:
        trained: By name.
    """

    def __init__(self, parameters: Mapping[str, Array], state: Mapping[str, Array]) -> None:
        """See `Framework.build_share`."""
        self.trained = {name: _variable(name, array) for name, array in parameters.items()}
        self._group = VariableGroup(self.trained)
        self._state = {name: array.copy() for name, array in state.items()}

    def parameters(self) -> Tensors:
        """Arrays that never change."""
        return self._group.read()

    def state(self) -> Tensors:
        """What is not trained."""
        return {name: array.copy() for name, array in self._state.items()}

    def copy_into(self, parameters: Mapping[str, Array], state: Mapping[str, Array]) -> None:
        """See `Values`."""
        copy_values(self, parameters, state)

    def load(
        self, parameters: Mapping[str, Array] | None, state: Mapping[str, Array] | None
    ) -> None:
        """Copy values in, by name; None leaves what is there."""
        if parameters is not None:
            self._group.check("parameters", parameters)
        if state is not None:
            check_fit("state", self._state, state)
            for name, array in state.items():
                np.copyto(self._state[name], array)
        if parameters is not None:
            self._group.write(parameters)


def _variable(name: str, array: Array) -> Any:
    """A variable whose path is the name, by which an optimizer may leave it out of its decay."""
    *scopes, leaf = name.split("/")
    with ExitStack() as stack:
        for scope in scopes:
            stack.enter_context(keras.name_scope(scope))
        return keras.Variable(array, dtype=array.dtype.name, trainable=True, name=leaf)


class _ScaledSchedule(keras.optimizers.schedules.LearningRateSchedule):  # type: ignore[misc]
    """The user's schedule times a variable that is 1 but during a scaled update."""

    def __init__(self, schedule: Any, scale: Any) -> None:
        self._schedule = schedule
        self._scale = scale

    def __call__(self, step: Any) -> Any:
        if isinstance(self._schedule, keras.optimizers.schedules.LearningRateSchedule):
            rate = self._schedule(step)
        else:
            rate = self._schedule()
        rate = tf.convert_to_tensor(rate)
        return rate * tf.cast(self._scale, rate.dtype)


class KerasUpdater:
    """Applies gradients by the user's own optimizer object, in one compiled function."""

    def __init__(
        self,
        model_def: ModelDef,
        model: KerasModel | KerasShare,
        total_steps: int | None = None,
    ) -> None:
        self._constrained = [
            name
            for name, variable in model.trained.items()
            if getattr(variable, "constraint", None) is not None
        ]
        self._joining = Joining(described(model.trained))
        self._optimizer = _build_optimizer(model_def, total_steps)
        self._scale = tf.Variable(1.0, trainable=False, dtype=tf.float32)
        self._rate = self._make_rate_scalable()
        variables = list(model.trained.values())
        with keras_code("building the optimizer"):
            self._optimizer.build(variables)
        own = self._optimizer.variables
        names = optimizer_names(own, variables, list(model.trained))
        self._own = VariableGroup(dict(zip(names, own, strict=True)))
        use_kernels(self._inner_optimizer())
        self._to_tensor = self._make_to_tensor(variables)
        self._step = tf.function(self._apply)

    @property
    def optimizer(self) -> Any:
        """The user's own object."""
        return self._optimizer

    def apply(self, gradients: Mapping[str, Array], learning_rate_scale: float = 1.0) -> None:
        """Update the parameters in place."""
        tensors = self._joining.to_tensors(gradients, self._to_tensor)
        with keras_code("the optimizer's step"):
            self._step(tensors, tf.constant(learning_rate_scale, tf.float32))

    def end_epoch(self) -> None:
        """Nothing: Keras schedules count updates."""

    def learning_rate(self) -> float:
        """The rate of the next update."""
        return float(self._optimizer.learning_rate)

    def is_proportional(self) -> bool:
        """See `Updater`."""
        return isinstance(self._inner_optimizer(), keras.optimizers.SGD)

    def state(self) -> UpdaterState:
        """Slots named after their variable, as `dense/kernel/momentum`."""
        return UpdaterState(self._own.read(), {"class": type(self._optimizer).__name__})

    def load_state(self, state: UpdaterState) -> None:
        """Continue as the optimizer that `state` was taken from."""
        here, there = type(self._optimizer).__name__, state.values.get("class")
        if here != there:
            raise CheckpointError(
                f"the optimizer's state was saved from {there} and this is {here}: use the same "
                "optimizer"
            )
        self._own.check("optimizer's variables", state.tensors)
        self._own.write(state.tensors)

    def row_rule(self) -> RowRule:
        """By the user's own object."""
        return row_rule_of(self._optimizer)

    def may_cut(self, num_servers: int) -> bool:
        """Whether each number is updated by itself."""
        if self._constrained:
            raise ModelDefError(
                f"the layers constrain {self._constrained[0]}, which parameter servers do not do, "
                "for they have no layers: leave out --strategy ps"
            )
        optimizer, name = self._optimizer, type(self._optimizer).__name__
        joins = optimizer.global_clipnorm is not None and "global_clipnorm"
        if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
            joins = "a scaled loss"
        if num_servers > 1 and joins:
            raise ModelDefError(
                f"optimizer returned a {name} with {joins}, which looks at all gradients at once, "
                f"and each of {num_servers} parameter servers has its own alone: leave it out, or "
                "give --num_ps 1"
            )
        return type(optimizer) in _BY_ELEMENT and optimizer.clipnorm is None

    def _apply(self, tensors: list[Any], scale: Any) -> None:
        gradients = self._loss_scaled(list(self._joining.split(tensors).values()))
        if self._rate is None:
            self._scale.assign(scale)
            self._optimizer.apply(gradients)
            self._scale.assign(1.0)
            return
        rate = self._rate.value.read_value()
        self._rate.assign(rate * tf.cast(scale, rate.dtype))
        self._optimizer.apply(gradients)
        self._rate.assign(rate)

    def _loss_scaled(self, gradients: list[Any]) -> list[Any]:
        """Multiply by what a loss-scaling optimizer divides by: the loss was not scaled."""
        is_scaling = isinstance(self._optimizer, keras.optimizers.LossScaleOptimizer)
        if not is_scaling and self._optimizer.loss_scale_factor is None:
            return gradients
        factor = self._optimizer.scale_loss(tf.ones((), tf.float32))
        return [gradient * tf.cast(factor, gradient.dtype) for gradient in gradients]

    def _make_rate_scalable(self) -> Any:
        """Give the variable that holds the rate, or None after wrapping the user's schedule."""
        optimizer = self._inner_optimizer()
        rate = optimizer.learning_rate
        if isinstance(rate, keras.Variable):
            return rate
        # Keras has no public way to get the schedule back.
        schedule = optimizer._learning_rate  # noqa: SLF001
        optimizer.learning_rate = _ScaledSchedule(schedule, self._scale)
        return None

    def _inner_optimizer(self) -> Any:
        if isinstance(self._optimizer, keras.optimizers.LossScaleOptimizer):
            return self._optimizer.inner_optimizer
        return self._optimizer

    def _make_to_tensor(self, variables: Sequence[Any]) -> ToTensor:
        """Share a gradient's memory with TensorFlow, where that is free again after the update.

        Keras' own optimizers keep no gradient as it is; a user's may assign one to a slot, which
        then has the gradient's memory.
        """
        is_keras_own = type(self._inner_optimizer()).__module__.startswith("keras.")
        if is_keras_own and not any(
            getattr(variable, "overwrite_with_gradient", False) for variable in variables
        ):
            return Stager().to_tensor
        return lambda _, array: tf.convert_to_tensor(array)


def _build_optimizer(model_def: ModelDef, total_steps: int | None) -> Any:
    asked = asked_for(model_def.optimizer, "optimizer", total_steps)
    with keras_code("optimizer"):
        optimizer = model_def.optimizer(**asked)
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise ModelDefError(
            f"optimizer returned a {type(optimizer).__name__}: return a keras.optimizers.Optimizer"
        )
    if optimizer.built:
        raise ModelDefError(
            "optimizer returned an object that is in use already: make a new one in every call"
        )
    if getattr(optimizer, "use_ema", False) and not optimizer.ema_overwrite_frequency:
        # What `fit` does after its last step, a version that workers have must not.
        raise ModelDefError(
            "optimizer returned one with use_ema=True, whose averages would not be in the trained "
            "model: set ema_overwrite_frequency, after how many updates they take the place of "
            "the parameters"
        )
    return optimizer


def row_rule_of(optimizer: Any) -> RowRule:
    """How an optimizer updates rows, without the loss scaling around it, which rows do not see.

    Raises:
        ModelDefError: In a way that there is no kernel for.
    """
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        # It hands the inner one what it divides by; nobody else clips or averages there.
        return row_rule_of(optimizer.inner_optimizer)
    name, make = type(optimizer).__name__, _RULES.get(type(optimizer))
    if make is None:
        raise ModelDefError(
            f"optimizer returned a {name}, and the model has embeddings, whose rows are updated by "
            f"{', '.join(known.__name__ for known in _RULES)} of keras.optimizers, and not by a "
            "class of their own: use one of these"
        )
    for word, does in _REFUSED.items():
        if getattr(optimizer, word, None):
            raise ModelDefError(
                f"optimizer returned a {name} with {word}={getattr(optimizer, word)}, which "
                f"{does}; the model has embeddings, whose rows are not updated so: leave it out"
            )
    rule = make(optimizer)
    return RowRule(rule.kind, {**rule.numbers, "decay": float(optimizer.weight_decay or 0)})


def _sgd(optimizer: Any) -> RowRule:
    if not optimizer.momentum:
        return RowRule("sgd")
    return RowRule("velocity", _numbers(optimizer, "momentum", "nesterov"))


def _adagrad(optimizer: Any) -> RowRule:
    numbers = _numbers(optimizer, initial="initial_accumulator_value", epsilon_within="epsilon")
    return RowRule("adagrad", numbers)


def _adam(optimizer: Any) -> RowRule:
    return RowRule("adam", _numbers(optimizer, "beta_1", "beta_2", epsilon_raw="epsilon"))


def _rmsprop(optimizer: Any) -> RowRule:
    numbers = _numbers(optimizer, "rho", "momentum", "centered", epsilon_within="epsilon")
    return RowRule("rmsprop", {**numbers, "rate_within": 1.0})


def _numbers(optimizer: Any, *same: str, **by_ours: str) -> dict[str, float]:
    """Some of an optimizer's hyper-parameters, by our words."""
    words = dict(zip(same, same, strict=True)) | by_ours
    return {ours: float(getattr(optimizer, theirs)) for ours, theirs in words.items()}


_RULES: Final[Mapping[type, Callable[[Any], RowRule]]] = {
    keras.optimizers.SGD: _sgd,
    keras.optimizers.Adagrad: _adagrad,
    keras.optimizers.Adam: _adam,
    keras.optimizers.AdamW: _adam,
    keras.optimizers.RMSprop: _rmsprop,
}


# In-place kernels under Keras' own optimizers.
#
# Keras composes an update of one operation for each term, and each reads and writes arrays as large
# as the parameters: plain SGD moves twice the bytes that it has to, Adam has twelve operations.
# Here the update of one variable is TensorFlow's own kernel, or for large ones a loop that XLA
# makes of Keras' formula. Clipping, decay, averaging, accumulation and the slots stay what and
# where they are around it.


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
        _compiled_adam(variable.handle, *(slot.handle for slot in slots), gradient, *numbers)

    return step


def _large_adagrad_step(optimizer: Any) -> UpdateStep:
    def step(gradient: Any, variable: tf.Variable, learning_rate: Any) -> None:
        # Keras has no public name for them.
        total = _slot(optimizer, optimizer._accumulators, variable)  # noqa: SLF001
        rate, epsilon = (tf.cast(each, tf.float32) for each in (learning_rate, optimizer.epsilon))
        _compiled_adagrad(variable.handle, total.handle, gradient, rate, epsilon)

    return step


# Each takes handles, so that variables of one shape share what is compiled, and reads all before
# it assigns anything, so that XLA writes to the variables' own memory.


@tf.function(jit_compile=True)  # type: ignore[untyped-decorator]
def _compiled_adam(
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
def _compiled_adagrad(
    variable: Any, accumulator: Any, gradient: Any, rate: Any, epsilon: Any
) -> None:
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
