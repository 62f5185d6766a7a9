"""A subclassed Keras model for 28x28 digits, with batch normalisation and dropout.

Records: `image` (28, 28) uint8 in [0, 255] and `label` int64 in [0, 10).
"""

from typing import Any

import keras
import tensorflow as tf


@keras.saving.register_keras_serializable("mnist_subclass")
class CustomModel(keras.Model):
    """Two strided convolutions, batch normalisation, dropout and a dense layer."""

    def __init__(self, channels: int = 16, dropout: float = 0.25, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.sizes = {"channels": channels, "dropout": dropout}
        self.conv1 = keras.layers.Conv2D(channels, 3, strides=2, activation="relu")
        self.conv2 = keras.layers.Conv2D(2 * channels, 3, strides=2, activation="relu")
        self.batch_norm = keras.layers.BatchNormalization(momentum=0.9)
        self.flatten = keras.layers.Flatten()
        self.dropout = keras.layers.Dropout(dropout)
        self.logits = keras.layers.Dense(10)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments, for exports."""
        return {**super().get_config(), **self.sizes}

    def call(self, image: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Map images (n, 28, 28, 1) to logits (n, 10)."""
        x = self.conv2(self.conv1(image))
        x = self.flatten(self.batch_norm(x, training=training))
        return self.logits(self.dropout(x, training=training))


def loss(labels: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
    """Mean cross-entropy; `labels` is (n,) int64, `predictions` (n, 10) logits."""
    losses = keras.losses.sparse_categorical_crossentropy(labels, predictions, from_logits=True)
    return tf.reduce_mean(losses)


def optimizer() -> keras.optimizers.Optimizer:
    """SGD with momentum."""
    return keras.optimizers.SGD(learning_rate=0.02, momentum=0.9)


def dataset_fn(dataset: tf.data.Dataset, mode: str) -> tf.data.Dataset:
    """Scale each image to [0, 1], give it its channel dimension, split off the label."""
    return dataset.map(
        lambda record: (
            tf.cast(record["image"][..., tf.newaxis], tf.float32) / 255.0,
            record["label"],
        )
    )


def eval_metrics_fn() -> dict[str, Any]:
    """The fraction of digits named correctly."""
    return {"accuracy": keras.metrics.SparseCategoricalAccuracy()}
