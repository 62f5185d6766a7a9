"""The user's Keras optimizer over the parameters of one model."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import keras
import tensorflow as tf

from elastic.errors import CheckpointError, ModelDefError
from elastic.frameworks.base import Array, UpdaterState
from elastic.frameworks.keras.errors import keras_code
from elastic.frameworks.keras.kernels import use_kernels
from elastic.frameworks.keras.model import KerasModel
from elastic.frameworks.keras.row_rules import row_rule_of
from elastic.frameworks.keras.share import KerasShare
from elastic.frameworks.keras.variables import (
    Joining,
    Stager,
    ToTensor,
    VariableGroup,
    described,
    optimizer_names,
)
from elastic.frameworks.user_code import asked_for
from elastic.rows.kernels import RowRule
from elastic.spec.model_def import ModelDef

_BY_ELEMENT: Final = (
    keras.optimizers.SGD, keras.optimizers.Adam, keras.optimizers.AdamW, keras.optimizers.Adagrad,
    keras.optimizers.Adadelta, keras.optimizers.Adamax, keras.optimizers.Nadam,
    keras.optimizers.RMSprop, keras.optimizers.Ftrl, keras.optimizers.Lion,
)  # fmt: skip
"""Update each number by itself; a subclass may do otherwise."""


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
