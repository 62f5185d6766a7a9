"""The species of an iris from four lengths: a sequential Keras model on CSV records.

Records: rows with the columns `FEATURES`, in centimetres, and `species`, one of `SPECIES`.
"""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

FEATURES = ("sepal_length", "sepal_width", "petal_length", "petal_width")
SPECIES = ("setosa", "versicolor", "virginica")


def custom_model(hidden: int = 32) -> keras.Model:
    """Build the network; `hidden` is the width of its one hidden layer."""
    return keras.Sequential(
        [
            keras.Input((len(FEATURES),), name="lengths"),
            keras.layers.Dense(hidden, activation="relu"),
            keras.layers.Dense(len(SPECIES), name="logits"),
        ],
        name="iris",
    )


def loss(labels: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
    """Mean cross-entropy; `labels` is (n,) int64, `predictions` (n, 3) logits."""
    losses = keras.losses.sparse_categorical_crossentropy(labels, predictions, from_logits=True)
    return tf.reduce_mean(losses)


def optimizer() -> keras.optimizers.Optimizer:
    """Adam with a high rate, as there are only 120 records."""
    return keras.optimizers.Adam(learning_rate=0.02)


def batch_fn(columns: Mapping[str, NDArray[Any]], mode: str) -> Any:
    """Stack the lengths of each row; a species becomes its place in `SPECIES`."""
    lengths = np.stack([columns[name] for name in FEATURES], axis=1, dtype=np.float32)
    if mode == "prediction":
        return lengths
    return lengths, np.array([SPECIES.index(name) for name in columns["species"]])


def eval_metrics_fn() -> dict[str, Any]:
    """The fraction of flowers named correctly."""
    return {"accuracy": keras.metrics.SparseCategoricalAccuracy()}
