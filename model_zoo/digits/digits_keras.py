"""A small convolutional network for 8x8 digits, built with Keras' functional interface.

Records: `image` (8, 8) float32 in [0, 1] and `label` int64 in [0, 10).
"""

from typing import Any

import keras
import tensorflow as tf


def custom_model(channels: int = 16) -> keras.Model:
    """Build the network; `channels` is the width of its first convolution."""
    image = keras.Input((8, 8, 1), name="image")
    x = keras.layers.Conv2D(channels, 3, padding="same", activation="relu")(image)
    x = keras.layers.Conv2D(2 * channels, 3, padding="same", activation="relu")(x)
    x = keras.layers.MaxPooling2D(2)(x)
    x = keras.layers.Flatten()(x)
    logits = keras.layers.Dense(10, name="logits")(x)
    return keras.Model(image, logits, name="digits")


def loss(labels: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
    """Mean cross-entropy; `labels` is (n,) int64, `predictions` (n, 10) logits."""
    losses = keras.losses.sparse_categorical_crossentropy(labels, predictions, from_logits=True)
    return tf.reduce_mean(losses)


def optimizer() -> keras.optimizers.Optimizer:
    """Adam with a rate that suits minibatches of 16 to 64."""
    return keras.optimizers.Adam(learning_rate=2e-3)


def dataset_fn(dataset: tf.data.Dataset, mode: str) -> tf.data.Dataset:
    """Give each image its channel dimension and split off the label."""
    return dataset.map(lambda record: (record["image"][..., tf.newaxis], record["label"]))


def eval_metrics_fn() -> dict[str, Any]:
    """The fraction of digits named correctly."""
    return {"accuracy": keras.metrics.SparseCategoricalAccuracy()}
