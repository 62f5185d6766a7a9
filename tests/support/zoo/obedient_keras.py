"""The obedient model in Keras: deed 1 fails in training, 3 makes no example, 4 has a NaN loss."""

from typing import Any

import keras
import tensorflow as tf


class CustomModel(keras.Model):
    """One parameter per record."""

    def __init__(self, num_records: int, bears_one: bool = True) -> None:
        super().__init__()
        self._least = 1 if bears_one else 2
        self.counts = self.add_weight(shape=(num_records,), initializer="zeros", name="counts")

    def build(self, input_shape: Any) -> None:
        """Do nothing: the variables do not depend on the input."""

    def call(self, features: tf.Tensor) -> tf.Tensor:
        """Map (n, 2) pairs of index and deed to counts (n,)."""
        tf.debugging.assert_greater_equal(tf.shape(features)[0], self._least)
        poison = tf.where(features[:, 1] == 4, tf.constant(float("nan")), 1.0)
        return keras.ops.take(self.counts, features[:, 0]) * poison


class CountingSGD(keras.optimizers.Optimizer):
    """Add to each parameter how often its record is in the update, as the zoo's model does."""

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Apply one gradient."""
        gradient = tf.convert_to_tensor(gradient)
        size = tf.abs(gradient)
        smallest = tf.reduce_min(tf.where(size == 0, float("inf"), size))
        self.assign_add(variable, tf.round(-gradient / smallest))


def loss(labels: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
    """Give each record of the minibatch the gradient -1/n."""
    return -tf.reduce_mean(predictions)


def optimizer() -> keras.optimizers.Optimizer:
    """The optimizer that counts."""
    return CountingSGD(learning_rate=1.0)


def dataset_fn(dataset: tf.data.Dataset, mode: str) -> tf.data.Dataset:
    """Do what each record says."""

    def example(record: Any) -> Any:
        fails = tf.logical_and(record["deed"] == 1, mode == "training")
        check = tf.debugging.Assert(tf.logical_not(fails), ["this record cannot be read"])
        with tf.control_dependencies([check]):
            return tf.stack([record["index"], record["deed"]]), record["index"]

    return dataset.filter(lambda record: record["deed"] != 3).map(example)
