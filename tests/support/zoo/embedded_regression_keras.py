"""A small regression by the rows of three ids a record, in Keras: with a table elsewhere or not."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from elastic.embedding import KerasEmbedding
from elastic.rows.arithmetic import first_rows
from elastic.rows.base import Table

NUM_IDS = 30
TABLE = Table("items", 4, "normal(0.5)")


def ordinary_table() -> keras.layers.Embedding:
    """A layer that holds the rows with which those of the table begin."""
    rows = first_rows(TABLE, np.arange(NUM_IDS, dtype=np.int64))
    return keras.layers.Embedding(
        NUM_IDS, TABLE.dim, keras.initializers.Constant(rows), name="items"
    )


def custom_model(is_ordinary: bool = False) -> keras.Model:
    """A dense layer over the sum of three rows."""
    ids = keras.Input((3,), dtype="int64")
    table = KerasEmbedding(TABLE.dim, initializer=TABLE.initializer, name=TABLE.name)
    rows = (ordinary_table() if is_ordinary else table)(ids)
    # Of its own seed: Keras draws others by `random`, and so do the workers of a job of threads.
    first = keras.initializers.GlorotUniform(seed=1)
    dense = keras.layers.Dense(1, kernel_initializer=first, name="dense")
    return keras.Model(ids, dense(keras.ops.sum(rows, axis=1)))


def loss(labels: Any, predictions: Any) -> Any:
    """Squared error."""
    return keras.ops.mean((keras.ops.squeeze(predictions, 1) - labels) ** 2)


def optimizer() -> keras.optimizers.Optimizer:
    """Gradient descent with another rate for each update."""
    return keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.1, 1, 0.97))


def dataset_fn(dataset: tf.data.Dataset, mode: str, metadata: Any = None) -> Any:
    """Ids are the features."""
    return dataset.map(lambda record: (record["ids"], record["label"]))


def eval_metrics_fn() -> dict[str, Callable[[Any, Any], Any]]:
    """The error."""
    return {"error": lambda labels, predictions: keras.ops.mean(keras.ops.abs(predictions))}
