"""Metrics that workers report of parts of the records, added up."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from elastic.frameworks.base import Array, MetricState


class MetricSums:
    """Element-wise sums by name; all reports have to be of the same metrics."""

    def __init__(self) -> None:
        self._sums: dict[str, list[Array]] = {}

    def check(self, metrics: Sequence[MetricState]) -> None:
        """Check that metrics can be added.

        Raises:
            ValueError: They do not match those added before; nothing was changed.
        """
        names = [metric.name for metric in metrics]
        # A report without metrics is of records of which dataset_fn made no example.
        if names and self._sums and names != list(self._sums):
            raise ValueError(f"metrics {names} where others had {list(self._sums)}")
        for metric in metrics:
            known, new = _kinds(self._sums.get(metric.name, metric.values)), _kinds(metric.values)
            if known != new:
                raise ValueError(f"metric {metric.name!r} is {new} where others had {known}")

    def add(self, metrics: Sequence[MetricState]) -> None:
        """Add what has been checked."""
        for metric in metrics:
            if metric.name not in self._sums:
                self._sums[metric.name] = [value.copy() for value in metric.values]
            else:
                for total, value in zip(self._sums[metric.name], metric.values, strict=True):
                    total += value

    def take(self, other: "MetricSums") -> None:
        """Take other sums into these, and clear those."""
        self.add(other.states())
        other.clear()

    def clear(self) -> None:
        """Begin anew."""
        self._sums = {}

    def states(self) -> list[MetricState]:
        """The merged metrics."""
        return [MetricState(name, tuple(values)) for name, values in self._sums.items()]

    def snapshot(self) -> list[Any]:
        """The sums, as JSON values."""
        return [
            [name, [[value.dtype.name, value.tolist()] for value in values]]
            for name, values in self._sums.items()
        ]

    def restore(self, snapshot: Sequence[Any]) -> None:
        """Go on from a snapshot."""
        self._sums = {
            name: [np.array(value, dtype) for dtype, value in values] for name, values in snapshot
        }


def _kinds(arrays: Sequence[Array]) -> str:
    return " ".join(f"{array.dtype.name}{list(array.shape)}" for array in arrays)
