"""The single-pass model in Keras, with metrics whose values no mean over minibatches gives."""

from typing import Any

import keras
import tensorflow as tf
from waiting import wait_until_open


class CustomModel(keras.Model):
    """Gives a probability; waits at `gate` from record `free_records` on."""

    def __init__(self, gate: str = "", free_records: int = 0, width: int = 8) -> None:
        super().__init__()
        self.hidden = keras.layers.Dense(width, activation="tanh")
        self.probability = keras.layers.Dense(1, activation="sigmoid")
        self._gate, self._free_records = gate, free_records

    def call(self, features: Any) -> Any:
        """Map a dict of `x` (n, 3) and `index` (n,) to probabilities (n, 1)."""
        x = features["x"]
        if self._gate:
            x = tf.ensure_shape(
                tf.py_function(self._wait, [features["index"], x], x.dtype), x.shape
            )
        return self.probability(self.hidden(x))

    def _wait(self, index: Any, x: Any) -> Any:
        if int(tf.reduce_max(index)) >= self._free_records:
            wait_until_open(self._gate)
        return x


def loss(labels: Any, predictions: Any) -> Any:
    """Mean cross-entropy."""
    return tf.reduce_mean(keras.losses.binary_crossentropy(labels[:, None], predictions))


def optimizer() -> keras.optimizers.Optimizer:
    """Plain SGD, for jobs that train."""
    return keras.optimizers.SGD(0.1)


def dataset_fn(dataset: tf.data.Dataset, mode: str) -> tf.data.Dataset:
    """Pairs in every mode."""

    def example(record: Any) -> Any:
        features = {"x": tf.cast(record["x"], tf.float32), "index": record["index"]}
        return features, tf.cast(record["label"], tf.float32)

    return dataset.filter(lambda record: record["deed"] != 2).map(example)


def eval_metrics_fn() -> dict[str, Any]:
    """Metric objects of several kinds."""
    return {
        "auc": keras.metrics.AUC(),
        "precision": keras.metrics.Precision(),
        "accuracy": keras.metrics.BinaryAccuracy(),
    }
