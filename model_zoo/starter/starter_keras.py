"""A first model in Keras: which class a row of a CSV file belongs to.

Put the names of your own columns and classes below, and it trains on your own files.
"""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

FEATURES = ("x", "y")
"""Columns that hold numbers."""
LABEL = "spiral"
"""The column to predict."""
CLASSES = ("red", "green", "blue")
"""What can stand in it; numbers where it holds numbers."""


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


# Turns the columns of one minibatch, a dict of NumPy arrays, into features and labels: numbers are
# numbers, all else is text. Do not repeat or shuffle over all the data, which is the affair of the
# job. `mode` is "training", "evaluation" or "prediction": augment only what is trained on.
def batch_fn(columns: Mapping[str, NDArray[Any]], mode: str) -> Any:
    """Stack the numbers of each row; a class becomes its place in `CLASSES`."""
    features = np.stack([columns[name] for name in FEATURES], axis=1, dtype=np.float32)
    if mode == "prediction":
        return features
    return features, np.array([CLASSES.index(name) for name in columns[LABEL]])


# May be left out. What is measured on --evaluation_data_dir, beside the loss: metric objects of
# Keras, or functions f(labels, predictions).
def eval_metrics_fn() -> dict[str, Any]:
    """The fraction of rows that get their right class."""
    return {"accuracy": keras.metrics.SparseCategoricalAccuracy()}
