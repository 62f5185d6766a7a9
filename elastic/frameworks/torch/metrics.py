"""The user's torch metrics as sums that add up exactly over any split of the records."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from elastic.errors import CheckpointError, ModelDefError
from elastic.frameworks.base import Array, MetricState
from elastic.frameworks.tensors import mean_of, mean_state, named_results, widened
from elastic.frameworks.torch.arrays import to_array
from elastic.frameworks.user_code import metric_functions, user_code


class TorchMetrics:
    """Plain functions, and objects of torchmetrics' form, whose state is sums."""

    def __init__(self, eval_metrics_fn: Callable[[], Any] | None, device: torch.device) -> None:
        metrics = metric_functions(eval_metrics_fn, is_metric_object)
        self._metrics = {
            name: _MetricObject(name, metric, device) if is_metric_object(metric) else metric
            for name, metric in metrics.items()
        }

    def states(self, labels: Any, predictions: Any, num_examples: int) -> list[MetricState]:
        """Mergeable states over one minibatch alone.

        Raises:
            ModelDefError: A metric failed, or keeps what cannot be added up.
        """
        found = []
        for name, metric in self._metrics.items():
            if isinstance(metric, _MetricObject):
                found.append(MetricState(name, metric.sums(labels, predictions)))
                continue
            with user_code(f"metric {name!r}"):
                value = torch.as_tensor(metric(labels, predictions))
                mean = float(value.to(torch.float64).mean())
            found.append(mean_state(name, mean, num_examples))
        return found

    def result(self, state: MetricState) -> dict[str, float]:
        """The value of one merged state; several where a metric's result is a dict or vector."""
        metric = self._metrics.get(state.name)
        if isinstance(metric, _MetricObject):
            return named_results(state.name, metric.result(state.values))
        return {state.name: mean_of(state)}


def is_metric_object(metric: Any) -> bool:
    """Whether it is of torchmetrics' form, and no class of it."""
    parts = (getattr(metric, name, None) for name in ("reset", "update", "compute"))
    return not isinstance(metric, type) and all(map(callable, parts))


class _MetricObject:
    """One metric object: `reset()`, `update(predictions, labels)`, `compute()`."""

    def __init__(self, name: str, metric: Any, device: torch.device) -> None:
        self._what = f"metric {name!r}"
        with user_code(self._what):
            self._metric = metric.to(device) if hasattr(metric, "to") else metric
            self._metric.reset()
            self._names = self._find_sums()
        self._is_checked = False

    def sums(self, labels: Any, predictions: Any) -> tuple[Array, ...]:
        """What the metric keeps of one minibatch alone."""
        with user_code(self._what):
            self._metric.reset()
            others = self._others()
            self._metric.update(predictions, labels)
            once = self._values()
            if not self._is_checked:
                self._metric.update(predictions, labels)
                self._check(once, others)
                self._is_checked = True
        return once

    def result(self, values: tuple[Array, ...]) -> Any:
        """What the metric computes of sums, with NumPy arrays for tensors."""
        if len(values) != len(self._names):
            raise CheckpointError(
                f"the {self._what} keeps {len(self._names)} sums here and {len(values)} there: use "
                "the same eval_metrics_fn everywhere"
            )
        with user_code(self._what), warnings.catch_warnings():
            # What an update would have set is set here, of which it cannot know.
            warnings.filterwarnings("ignore", message=".*compute.*before.*update")
            # Also forgets a result that it may have kept.
            self._metric.reset()
            for name, value in zip(self._names, values, strict=True):
                setattr(self._metric, name, _as_kept(getattr(self._metric, name), value))
            return _plain(self._metric.compute())

    def _find_sums(self) -> tuple[str, ...]:
        """The names of what it adds up: what it says itself, or each number that is 0 at first."""
        told = getattr(self._metric, "metric_state", None)
        if isinstance(told, Mapping):
            for name, value in told.items():
                if not _is_number(value):
                    raise self._refusal(name)
            names = tuple(told)
        else:
            names = tuple(
                name
                for name, value in vars(self._metric).items()
                if _is_number(value) and not np.any(_number(value))
            )
        if not names:
            raise ModelDefError(
                f"{self._what} keeps nothing that is 0 after reset(): keep sums as attributes"
            )
        return names

    def _others(self) -> dict[str, Array]:
        """Numbers that are no sums, which an update leaves alone."""
        return {
            name: _number(value).copy()
            for name, value in vars(self._metric).items()
            if _is_number(value) and name not in self._names and not name.startswith("_")
        }

    def _values(self) -> tuple[Array, ...]:
        kept = (getattr(self._metric, name) for name in self._names)
        return tuple(widened(_number(value).copy()) for value in kept)

    def _check(self, once: tuple[Array, ...], others: Mapping[str, Array]) -> None:
        """After a second, equal update every sum must be twice what it was, and nothing else new.

        Raises:
            ModelDefError: The metric keeps what cannot be added up, such as a largest value.
        """
        for name, first, both in zip(self._names, once, self._values(), strict=True):
            if not np.allclose(both, first + first, rtol=1e-3, atol=1e-6, equal_nan=True):
                raise self._refusal(name)
        for name, value in self._others().items():
            if name not in others or not np.array_equal(value, others[name], equal_nan=True):
                raise self._refusal(name)

    def _refusal(self, name: str) -> ModelDefError:
        kind = type(self._metric).__name__
        return ModelDefError(
            f"{self._what} cannot be put together from minibatches: {name!r} of its {kind} is no "
            "sum over the examples: keep sums in update() and compute the rest in compute() (of "
            "torchmetrics, take one with thresholds or bins, which keeps no examples)"
        )


def _is_number(value: Any) -> bool:
    """Whether it is a number, or a tensor of them, that can be added up."""
    if isinstance(value, torch.Tensor):
        return value.dtype.is_floating_point or value.dtype in (torch.int32, torch.int64)
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _number(value: Any) -> Array:
    return to_array(value) if isinstance(value, torch.Tensor) else np.asarray(value)


def _as_kept(at_first: Any, value: Array) -> Any:
    """A sum in the form in which the metric keeps it."""
    if not isinstance(at_first, torch.Tensor):
        return type(at_first)(value.reshape(()))
    tensor = torch.as_tensor(value, device=at_first.device).to(at_first.dtype)
    return tensor.reshape(at_first.shape) if tensor.numel() == at_first.numel() else tensor


def _plain(result: Any) -> Any:
    if isinstance(result, Mapping):
        return {name: _plain(value) for name, value in result.items()}
    return to_array(result.detach()) if isinstance(result, torch.Tensor) else result
