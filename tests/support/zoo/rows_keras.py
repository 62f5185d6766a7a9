"""A linear model over four numbers and a label, with one `dataset_fn` for each kind of record."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from rows_columns import batch_of_arrays as batch_of_arrays
from rows_columns import batch_of_columns as batch_of_columns
from rows_columns import batch_of_example as batch_of_example
from rows_columns import batch_of_line as batch_of_line
from rows_columns import batch_of_row as batch_of_row
from rows_columns import batch_of_texts as batch_of_texts

_EXAMPLE = {
    "x": tf.io.FixedLenFeature([4], tf.float32),
    "label": tf.io.FixedLenFeature([], tf.int64),
}


def custom_model() -> keras.Model:
    """Two classes, zero at first."""
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, kernel_initializer="zeros")])


def loss(labels: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
    """Cross entropy."""
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)(labels, predictions)


def optimizer() -> keras.optimizers.Optimizer:
    """Plain SGD."""
    return keras.optimizers.SGD(0.5)


def eval_metrics_fn() -> dict[str, Any]:
    """Accuracy."""
    return {"accuracy": keras.metrics.SparseCategoricalAccuracy()}


def _each(to_row: Callable[[Any], tuple[Any, Any]]) -> Callable[..., tf.data.Dataset]:
    def row(*record: Any) -> tuple[tf.Tensor, tf.Tensor]:
        x, label = to_row(record if len(record) > 1 else record[0])
        return tf.cast(tf.stack(x), tf.float32), tf.cast(label, tf.int64)

    def dataset_fn(dataset: tf.data.Dataset, mode: str) -> tf.data.Dataset:
        return dataset.map(row)

    return dataset_fn


def _numbers(texts: Any) -> Any:
    return [tf.strings.to_number(texts[place]) for place in range(5)]


def _of_line(line: tf.Tensor) -> tuple[Any, Any]:
    numbers = _numbers(tf.strings.split(line))
    return numbers[:4], numbers[4]


def _of_columns(record: Any) -> tuple[Any, Any]:
    numbers = _numbers([record[name] for name in ("a", "b", "c", "d", "label")])
    return numbers[:4], numbers[4]


def _of_example(record: tf.Tensor) -> tuple[Any, Any]:
    example = tf.io.parse_single_example(record, _EXAMPLE)
    return example["x"], example["label"]


from_arrays = _each(lambda record: (record["x"], record["label"]))
from_row = _each(lambda row: (row[:4], row[4]))
from_texts = _each(lambda texts: (_numbers(texts)[:4], _numbers(texts)[4]))
from_columns = _each(_of_columns)
from_line = _each(_of_line)
from_example = _each(_of_example)
