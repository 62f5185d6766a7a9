"""The species of an iris from four lengths: a sequential Keras model on CSV records.

Records: rows with the columns `FEATURES`, in centimetres, and `species`, one of `SPECIES`.
"""

from typing import Any

import keras
import tensorflow as tf

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


def dataset_fn(dataset: tf.data.Dataset, mode: str) -> tf.data.Dataset:
    """Turn the text of a row into numbers; a species becomes its place in `SPECIES`."""

    def parse(record: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        lengths = tf.stack([tf.strings.to_number(record[name]) for name in FEATURES])
        return lengths, tf.argmax(tf.equal(record["species"], SPECIES))

    return dataset.map(parse)


def eval_metrics_fn() -> dict[str, Any]:
    """The fraction of flowers named correctly."""
    return {"accuracy": keras.metrics.SparseCategoricalAccuracy()}
