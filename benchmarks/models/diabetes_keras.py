"""The course of diabetes from ten measurements: a small Keras model with one hidden layer.

Records: `x` float32 (10,), `y` float32 (1,), the target with mean 0 and deviation 1.
"""

from typing import Any

import keras
import tensorflow as tf


def custom_model(hidden: int = 16) -> keras.Model:
    layers = [keras.Input((10,)), keras.layers.Dense(hidden, "relu"), keras.layers.Dense(1)]
    return keras.Sequential(layers)


def loss(labels: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(tf.square(predictions - labels))


def optimizer() -> keras.optimizers.Optimizer:
    return keras.optimizers.Adam(0.01)


def dataset_fn(dataset: tf.data.Dataset, _mode: str) -> tf.data.Dataset:
    return dataset.map(lambda record: (record["x"], record["y"]))


def eval_metrics_fn() -> dict[str, Any]:
    return {"mse": keras.metrics.MeanSquaredError()}
