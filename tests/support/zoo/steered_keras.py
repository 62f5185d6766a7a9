"""A Keras model with the callbacks of Keras that a test plans, and a metric that it plans too.

The plan is as in `steered`; the model has a layer of batch statistics, so that it has state.
"""

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

_plan: dict[str, Any] = {}


def custom_model(plan: str) -> keras.Model:
    """One weight that an update moves by one, and running statistics."""
    _plan.update(json.loads(Path(plan).read_text()))
    features = keras.Input((1,))
    normed = keras.layers.BatchNormalization(name="norm")(features)
    weighted = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros", name="weight")
    return keras.Model(features, weighted(features) + 0.0 * normed)


def loss(labels: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
    """Its gradient is -1 for the weight, as all features are 1."""
    return -tf.reduce_mean(predictions)


def optimizer() -> keras.optimizers.Optimizer:
    """Adds its rate to the weight."""
    return keras.optimizers.SGD(_plan.get("rate", 1.0))


def dataset_fn(dataset: tf.data.Dataset, mode: str) -> tf.data.Dataset:
    """Features are 1, whatever the record, which may take its time."""

    def wait(delay_ms: Any) -> Any:
        time.sleep(float(delay_ms) / 1000)
        return np.float32(1.0)

    def example(record: Any) -> Any:
        one = tf.numpy_function(wait, [record["delay_ms"]], tf.float32)
        return tf.reshape(one, (1,)), tf.cast(record["index"], tf.float32)

    return dataset.map(example)


def value(labels: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
    """The value that the plan gives the version after so many epochs of five updates."""
    values = tf.constant(_plan["values"], tf.float32)
    epochs = tf.cast(tf.round(tf.reduce_mean(predictions) / 5), tf.int32)
    return tf.zeros_like(predictions[:, 0]) + values[tf.clip_by_value(epochs, 1, len(values)) - 1]


def eval_metrics_fn() -> dict[str, Any]:
    """The planned metric."""
    return {"value": value}


def _lambda(path: str) -> keras.callbacks.Callback:
    def write(epoch: int, logs: Any) -> None:
        with Path(path).open("a") as file:
            file.write(json.dumps([epoch, sorted(logs)]) + "\n")

    return keras.callbacks.LambdaCallback(on_epoch_end=write)


def _schedule(rates: list[float]) -> keras.callbacks.Callback:
    return keras.callbacks.LearningRateScheduler(lambda epoch, rate: rates[epoch])


def _batches() -> keras.callbacks.Callback:
    return keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: None)


def _overwriting() -> keras.callbacks.Callback:
    callback = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: callback.model.set_weights(
            [weight * 0 - 100 for weight in callback.model.get_weights()]
        )
    )
    return callback


def _saving(path: str) -> keras.callbacks.Callback:
    callback = keras.callbacks.LambdaCallback(on_train_end=lambda logs: callback.model.save(path))
    return callback


OWN = {
    "lambda": _lambda,
    "schedule": _schedule,
    "batches": _batches,
    "overwriting": _overwriting,
    "saving": _saving,
}


def callbacks() -> Iterable[Any]:
    """What the plan says."""
    return [
        (OWN.get(kind) or getattr(keras.callbacks, kind))(**arguments)
        for kind, arguments in _plan["use"]
    ]
