"""A model that counts how often each record was trained on, in Keras.

A record is its own index `i`, and parameter `counts[i]` must equal the number of epochs when the
job ends. Less is a lost record, more is one that counted twice.

Why this is exact:

- The loss is the mean of `-counts[i]` over the minibatch, so the gradient of each of its n
  records is -1/n and that of all other records is exactly 0.
- A job averages the gradients of one update weighted by their records, sum(n_k g_k) / sum(n_k),
  so each of the N records behind the update ends with -1/N, and one that is in it m times with
  -m/N.
- An epoch holds every record once and an update never mixes epochs, so m is 1 for every record
  that is in the update at all. `CountingSGD` therefore divides by the smallest gradient that is
  not zero, which is 1/N, rounds, and adds the result: 1 to each record of the update.

The division also shows what a mere sign would hide: a record that is twice in one update, and an
average that was not weighted by records. Repeating *all* records of an update equally often
leaves any average as it is; the ledger's audit is there for that.

The learning rate is not used, so modulating it changes nothing. Counts are exact up to 2^24.

Records: `index` int64 in [0, num_records).
"""

import time
from typing import Any

import keras
import numpy as np
import tensorflow as tf


@keras.saving.register_keras_serializable("counting")
class CustomModel(keras.Model):
    """One parameter per record, and a variable that counts training steps.

    Args:
        num_records: Records of the data set.
        delay_ms: Slows each training step down, so that tests can interrupt it.
    """

    def __init__(self, num_records: int = 1000, delay_ms: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.counts = self.add_weight(shape=(num_records,), initializer="zeros", name="counts")
        self.steps = self.add_weight(shape=(), initializer="zeros", trainable=False, name="steps")
        self.delay_ms = delay_ms

    def build(self, input_shape: Any) -> None:
        """Do nothing: the variables do not depend on the input."""

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments, for exports."""
        num_records = self.counts.shape[0]
        return {**super().get_config(), "num_records": num_records, "delay_ms": self.delay_ms}

    def call(self, index: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Map indices (n,) int64 to their counts (n,)."""
        if training:
            self.steps.assign_add(1.0)
            if self.delay_ms:
                # A bare sleep would run once, when the graph is traced.
                tf.numpy_function(self._sleep, [], tf.float32)
        return keras.ops.take(self.counts, index)

    def _sleep(self) -> np.float32:
        time.sleep(self.delay_ms / 1000)
        return np.float32(0)


class CountingSGD(keras.optimizers.Optimizer):
    """Add to each parameter how often its record is in the update; see the module's docstring."""

    def __init__(self, learning_rate: float = 1.0, **kwargs: Any) -> None:
        super().__init__(learning_rate=learning_rate, **kwargs)

    def update_step(
        self,
        gradient: tf.Tensor,
        variable: keras.Variable,
        learning_rate: tf.Tensor,  # noqa: ARG002 - the signature is Keras'
    ) -> None:
        """Apply one gradient; `tf.IndexedSlices` are made dense."""
        self.assign_add(variable, times_in_update(tf.convert_to_tensor(gradient)))


def times_in_update(gradient: tf.Tensor) -> tf.Tensor:
    """Turn an averaged gradient into how often each record is behind it."""
    magnitude = tf.abs(gradient)
    smallest = tf.reduce_min(tf.where(magnitude == 0, np.inf, magnitude))
    return tf.round(-gradient / smallest)


def loss(labels: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
    """Give each record of the minibatch the gradient -1/n."""
    return -tf.reduce_mean(predictions)


def optimizer() -> keras.optimizers.Optimizer:
    """The optimizer that counts."""
    return CountingSGD()


def dataset_fn(dataset: tf.data.Dataset, mode: str) -> tf.data.Dataset:
    """The index is feature and label."""
    return dataset.map(lambda record: (record["index"], record["index"]))


def mean_count(labels: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
    """How often the records were trained on, on average."""
    return tf.reduce_mean(predictions)


def eval_metrics_fn() -> dict[str, Any]:
    """The metrics of one evaluation."""
    return {"mean_count": mean_count}
