"""A first model in Keras: which class a row of a CSV file belongs to.

Put the names of your own columns and classes below, and it trains on your own files.
"""

from typing import Any

import keras
import tensorflow as tf

FEATURES = ("x", "y")
"""Columns that hold numbers."""
LABEL = "spiral"
"""The column to predict."""
CLASSES = ("red", "green", "blue")
"""What can stand in it."""


# The model: a function or class that makes a keras.Model. `--model_def` names it, and
# `--model_params hidden=64` fills its parameters. It may be functional, sequential or subclassed.
def custom_model(hidden: int = 32) -> keras.Model:
    """Build the network; `hidden` is the width of its two hidden layers."""
    return keras.Sequential(
        [
            keras.Input((len(FEATURES),)),
            keras.layers.Dense(hidden, activation="relu"),
            keras.layers.Dense(hidden, activation="relu"),
            keras.layers.Dense(len(CLASSES)),
        ]
    )


# The loss of one minibatch: a scalar, usually a mean. The labels come first.
def loss(labels: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
    """Mean cross-entropy; `labels` is (n,) int64, `predictions` (n, number of classes)."""
    losses = keras.losses.sparse_categorical_crossentropy(labels, predictions, from_logits=True)
    return tf.reduce_mean(losses)


# Makes every update, in the master. It may have a schedule, clipping, weight decay.
def optimizer() -> keras.optimizers.Optimizer:
    """Adam; try other rates first of all."""
    return keras.optimizers.Adam(learning_rate=0.01)


# Turns the raw records of one minibatch into pairs (features, label). A record of a CSV file is a
# dict of strings. Do not batch, repeat or shuffle over all the data: the job does. `mode` is
# "training", "evaluation" or "prediction": augment only what is trained on.
def dataset_fn(dataset: tf.data.Dataset, mode: str) -> tf.data.Dataset:
    """Turn the text of a row into numbers; a class becomes its place in `CLASSES`."""

    def parse(record: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        features = tf.stack([tf.strings.to_number(record[name]) for name in FEATURES])
        return features, tf.argmax(tf.equal(record[LABEL], CLASSES))

    return dataset.map(parse)


# May be left out. What is measured on --evaluation_data_dir, beside the loss: metric objects of
# Keras, or functions f(labels, predictions).
def eval_metrics_fn() -> dict[str, Any]:
    """The fraction of rows that get their right class."""
    return {"accuracy": keras.metrics.SparseCategoricalAccuracy()}
