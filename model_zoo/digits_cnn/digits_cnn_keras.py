"""A convolutional network for small images, with augmentation and batch normalisation, in Keras.

Records: `image` (8, 8) float32 in [0, 1] and `label` int64 in [0, 10).
"""

from typing import Any

import keras
import tensorflow as tf

SIZE = 8
NUM_CLASSES = 10
DECAY_UPDATES = 200
"""The rate falls for so many updates: about as many as eight epochs of 1438 images have."""


def custom_model(channels: int = 16, shift: int = 1) -> keras.Model:
    """Build the network.

    Args:
        channels: Width of its first stage; the second is twice as wide.
        shift: Images are moved by up to so many pixels while it trains.
    """
    image = keras.Input((SIZE, SIZE, 1), name="image")
    # A layer of the model, and not a part of dataset_fn: its seed is that of the minibatch, so
    # that a minibatch computed again is the same one. It does nothing in evaluation.
    x = keras.layers.RandomTranslation(shift / SIZE, shift / SIZE, fill_mode="constant")(image)
    x = _stage(x, channels)
    x = keras.layers.MaxPooling2D(2)(x)
    x = _stage(x, 2 * channels)
    x = keras.layers.GlobalAveragePooling2D()(x)
    logits = keras.layers.Dense(NUM_CLASSES, name="logits")(x)
    return keras.Model(image, logits, name="digits_cnn")


def _stage(x: Any, channels: int) -> Any:
    """Two convolutions, each normalised."""
    for _ in range(2):
        # Without a bias: the normalisation after it has one.
        x = keras.layers.Conv2D(channels, 3, padding="same", use_bias=False)(x)
        x = keras.layers.BatchNormalization(momentum=0.9)(x)
        x = keras.layers.ReLU()(x)
    return x


def loss(labels: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
    """Mean cross-entropy; `labels` is (n,) int64, `predictions` (n, 10) logits."""
    losses = keras.losses.sparse_categorical_crossentropy(labels, predictions, from_logits=True)
    return tf.reduce_mean(losses)


def optimizer() -> keras.optimizers.Optimizer:
    """Adam from the high rate that batch normalisation allows down to a hundredth of it.

    At the high rate alone the accuracy jumps from one update to the next.
    """
    rate = keras.optimizers.schedules.CosineDecay(5e-3, DECAY_UPDATES, alpha=0.01)
    return keras.optimizers.Adam(rate)


def dataset_fn(dataset: tf.data.Dataset, mode: str) -> tf.data.Dataset:
    """Give each image its channel dimension and split off the label."""
    return dataset.map(lambda record: (record["image"][..., tf.newaxis], record["label"]))


def eval_metrics_fn() -> dict[str, Any]:
    """The fraction of images named correctly."""
    return {"accuracy": keras.metrics.SparseCategoricalAccuracy()}
