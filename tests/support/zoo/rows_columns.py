"""The `batch_fn` of `rows_torch` and `rows_keras` for each kind of record, in NumPy alone."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elastic.data.example import parse_example

Columns = Mapping[str, NDArray[Any]]
Batch = tuple[NDArray[Any], NDArray[Any]]


def _batch(to_rows: Callable[[Columns], tuple[Any, Any]]) -> Callable[[Columns, str], Batch]:
    def batch_fn(columns: Columns, mode: str) -> Batch:
        x, label = to_rows(columns)
        return np.asarray(x, np.float32), np.asarray(label, np.int64)

    return batch_fn


def _stacked(columns: Columns, names: str | list[str]) -> NDArray[Any]:
    return np.stack([columns[name] for name in names], axis=1)


def _of_line(columns: Columns) -> tuple[Any, Any]:
    rows = np.array([line.split() for line in columns["text"]], np.float64)
    return rows[:, :4], rows[:, 4]


def _of_example(columns: Columns) -> tuple[Any, Any]:
    examples = [parse_example(record) for record in columns["value"]]
    return [each["x"] for each in examples], [each["label"][0] for each in examples]


batch_of_arrays = _batch(lambda columns: (columns["x"], columns["label"]))
batch_of_row = _batch(lambda columns: (columns["value"][:, :4], columns["value"][:, 4]))
batch_of_columns = _batch(lambda columns: (_stacked(columns, "abcd"), columns["label"]))
batch_of_texts = _batch(
    lambda columns: (_stacked(columns, ["c0", "c1", "c2", "c3"]), columns["c4"])
)
batch_of_line = _batch(_of_line)
batch_of_example = _batch(_of_example)
