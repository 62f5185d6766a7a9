"""Benign or malignant from 30 measurements: a functional Keras model on CSV records.

Records: rows with 30 numbers in any columns but `diagnosis`, which is `M` or `B`.
"""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

NUM_FEATURES = 30


def custom_model(hidden: int = 32, dropout: float = 0.2) -> keras.Model:
    """Build the network: a linear path beside one with a hidden layer, added up."""
    measurements = keras.Input((NUM_FEATURES,), name="measurements")
    # Standardises features of very different size; the statistics are learned on the way, which
    # spares a pass over all the data before training. The momentum is that of torch.
    x = keras.layers.BatchNormalization(center=False, scale=False, momentum=0.9)(measurements)
    deep = keras.layers.Dense(hidden, activation="relu")(x)
    deep = keras.layers.Dropout(dropout)(deep)
    logit = keras.layers.Add()([keras.layers.Dense(1)(deep), keras.layers.Dense(1)(x)])
    return keras.Model(measurements, logit, name="breast_cancer")


def loss(labels: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
    """Mean cross-entropy; `labels` is (n, 1), 1 for malignant, `predictions` (n, 1) logits."""
    return tf.reduce_mean(keras.losses.binary_crossentropy(labels, predictions, from_logits=True))


def optimizer() -> keras.optimizers.Optimizer:
    """Adam with a high rate, as there are only 455 records."""
    return keras.optimizers.Adam(learning_rate=0.01)


def batch_fn(columns: Mapping[str, NDArray[Any]], mode: str) -> Any:
    """Stack the measurements of each row, and say whether it is malignant."""
    names = [name for name in columns if name != "diagnosis"]
    measurements = np.stack([columns[name] for name in names], axis=1, dtype=np.float32)
    if mode == "prediction":
        return measurements
    return measurements, (columns["diagnosis"] == "M").astype(np.float32)[:, None]


def eval_metrics_fn() -> dict[str, Any]:
    """The fraction judged correctly, and the area under the ROC curve."""
    return {
        "accuracy": keras.metrics.BinaryAccuracy(threshold=0.0),
        "auc": keras.metrics.AUC(from_logits=True),
    }
