"""The obedient model in Keras, with a rate that is planned over all updates of the job."""

from typing import Any

import keras
from obedient_keras import *  # noqa: F403 - the rest of the module is that one's
from obedient_keras import CountingSGD


class Plan(keras.optimizers.schedules.LearningRateSchedule):
    """From 1 to 0.01, which the last update has; a further one would have less."""

    def __init__(self, total_steps: int) -> None:
        self.total_steps = total_steps

    def __call__(self, step: Any) -> Any:
        """Give the rate of one update."""
        return 1.0 - 0.99 * keras.ops.cast(step, "float32") / (self.total_steps - 1)


class PlannedSGD(CountingSGD):
    """Keeps the rate that it was last given."""

    def build(self, variables: Any) -> None:
        """Add what is kept."""
        super().build(variables)
        self.last_rate = self.add_variable((), name="last_rate")

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Apply one gradient."""
        super().update_step(gradient, variable, learning_rate)
        self.assign(self.last_rate, learning_rate)


def optimizer(total_steps: int) -> keras.optimizers.Optimizer:
    """The optimizer that counts, by its plan."""
    return PlannedSGD(Plan(total_steps))
