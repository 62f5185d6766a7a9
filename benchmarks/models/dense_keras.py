"""Twenty equal float32 matrices of a given total size, in Keras; only their bytes matter."""

from typing import Any

import keras
import tensorflow as tf

NUM_TENSORS = 20
WIDTH = 1000


class CustomModel(keras.Model):  # type: ignore[misc]
    """`payload_mb` megabytes of parameters."""

    def __init__(self, payload_mb: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        rows = payload_mb * 10**6 // (4 * NUM_TENSORS * WIDTH)
        self.matrices = [
            self.add_weight(name=f"matrix_{i}", shape=(rows, WIDTH), initializer="zeros")
            for i in range(NUM_TENSORS)
        ]

    def call(self, scale: tf.Tensor) -> tf.Tensor:
        """Map (n,) to (n,)."""
        return scale * tf.add_n([matrix.value[0, 0] for matrix in self.matrices])


def loss(labels: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
    """Mean squared error."""
    return tf.reduce_mean(tf.square(labels - predictions))


def sgd() -> keras.optimizers.Optimizer:
    """Plain SGD: the least that an optimizer can do."""
    return keras.optimizers.SGD(1e-6)


def adam() -> keras.optimizers.Optimizer:
    """Adam, with two slots a parameter."""
    return keras.optimizers.Adam(1e-6)


def dataset_fn(dataset: tf.data.Dataset, mode: str) -> tf.data.Dataset:  # noqa: ARG001 (part of the contract)
    """Make an example of a number."""
    return dataset.map(lambda record: (tf.cast(record, tf.float32), tf.cast(record, tf.float32)))
