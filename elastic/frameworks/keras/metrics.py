"""The user's metrics as sums that add up exactly over any split of the records."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from elastic.errors import CheckpointError, ModelDefError
from elastic.frameworks.base import MetricState
from elastic.frameworks.keras.errors import keras_code
from elastic.frameworks.keras.variables import to_array
from elastic.frameworks.tensors import mean_of, mean_state, named_results, widened
from elastic.frameworks.user_code import metric_functions


class KerasMetrics:
    """Keras metric objects, whose variables are the sums, and plain functions."""

    def __init__(self, eval_metrics_fn: Callable[[], Any] | None) -> None:
        self._metrics = metric_functions(eval_metrics_fn)
        self._at = ""

    def update(self, labels: Any, predictions: Any) -> dict[str, list[Any]]:
        """Each metric's sums over one minibatch alone; may run in a graph."""
        values = {}
        for name, metric in self._metrics.items():
            self._at = name
            values[name] = _update(metric, labels, predictions)
        self._at = ""
        return values

    def step_name(self) -> str:
        """What an evaluation step is at, for people: also while TensorFlow traces it."""
        at, self._at = self._at, ""
        return f"metric {at!r}" if at else "the evaluation step"

    def check_sums(self, labels: Any, predictions: Any) -> None:
        """Have two equal minibatches give twice what one gives.

        Raises:
            ModelDefError: A metric keeps what cannot be added up, such as a largest value.
        """
        for name, metric in self._metrics.items():
            if not isinstance(metric, keras.Metric):
                continue
            metric.reset_state()
            seen = []
            for _ in range(2):
                metric.update_state(labels, predictions)
                seen.append([widened(to_array(v.value.read_value())) for v in metric.variables])
            for variable, once, twice in zip(metric.variables, *seen, strict=True):
                if not np.allclose(twice, once + once, rtol=1e-3, atol=1e-6, equal_nan=True):
                    raise ModelDefError(
                        f"metric {name!r} cannot be put together from minibatches: its variable "
                        f"{variable.name!r} is no sum over the examples: keep sums in "
                        "update_state and compute the rest in result"
                    )

    def states(self, values: dict[str, list[Any]], num_examples: int) -> list[MetricState]:
        """Mergeable states of what `update` gave."""
        return [
            MetricState(name, tuple(widened(to_array(tensor)) for tensor in tensors))
            if isinstance(self._metrics[name], keras.Metric)
            else mean_state(name, float(tensors[0]), num_examples)
            for name, tensors in values.items()
        ]

    def is_built_for(self, states: list[MetricState]) -> bool:
        """Whether the metrics have the variables yet that the states belong to."""
        return all(
            len(self._metrics[state.name].variables) == len(state.values)
            for state in states
            if isinstance(self._metrics.get(state.name), keras.Metric)
        )

    def result(self, state: MetricState) -> dict[str, float]:
        """The value of one merged state; several where the metric's result is a dict or vector."""
        metric = self._metrics.get(state.name)
        if not isinstance(metric, keras.Metric):
            return {state.name: mean_of(state)}
        if len(metric.variables) != len(state.values):
            raise CheckpointError(
                f"the metric {state.name} has {len(metric.variables)} variables here and "
                f"{len(state.values)} there: use the same eval_metrics_fn everywhere"
            )
        for variable, value in zip(metric.variables, state.values, strict=True):
            variable.assign(np.asarray(value).reshape(variable.shape).astype(variable.dtype))
        with keras_code(f"the result of metric {state.name!r}"):
            result = metric.result()
        return named_results(state.name, result)


def _update(metric: Any, labels: Any, predictions: Any) -> list[Any]:
    if not isinstance(metric, keras.Metric):
        result = tf.convert_to_tensor(metric(labels, predictions))
        return [tf.reduce_mean(tf.cast(result, tf.float64))]
    metric.reset_state()
    metric.update_state(labels, predictions)
    return [variable.value.read_value() for variable in metric.variables]
