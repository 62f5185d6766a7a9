"""Plain training loops over the contract functions of a zoo module, one per framework."""

from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import keras
import numpy as np
import tensorflow as tf
import torch
from torch.utils.data import default_collate

MINIBATCH_SIZE = 32


def shuffled(records: Sequence[Any], epoch: int, seed: int = 0) -> list[Any]:
    order = np.random.default_rng([seed, epoch]).permutation(len(records))
    return [records[i] for i in order]


def columns_of(records: Sequence[Any]) -> dict[str, Any]:
    """Rows of a CSV file as columns: numbers where all of them are."""
    columns = {name: np.array([record[name] for record in records]) for name in records[0]}
    for name, column in columns.items():
        try:
            columns[name] = column.astype(np.float64)
        except ValueError:
            columns[name] = column.astype(object)
    return columns


def torch_batches(
    module: ModuleType, records: Sequence[Any], mode: str, minibatch_size: int = MINIBATCH_SIZE
) -> Iterator[Any]:
    for start in range(0, len(records), minibatch_size):
        part = records[start : start + minibatch_size]
        if hasattr(module, "batch_fn"):
            features, labels = module.batch_fn(columns_of(part), mode)
            yield torch.from_numpy(features), torch.from_numpy(labels)
        else:
            yield default_collate(list(module.dataset_fn(iter(part), mode)))


def keras_batches(
    module: ModuleType, records: Sequence[Any], mode: str, minibatch_size: int = MINIBATCH_SIZE
) -> tf.data.Dataset:
    if hasattr(module, "batch_fn"):
        arrays = module.batch_fn(columns_of(records), mode)
        return tf.data.Dataset.from_tensor_slices(arrays).batch(minibatch_size)
    arrays = {name: np.stack([record[name] for record in records]) for name in records[0]}
    dataset = module.dataset_fn(tf.data.Dataset.from_tensor_slices(arrays), mode)
    return dataset.batch(minibatch_size)


def train_torch(
    module: ModuleType,
    model: torch.nn.Module,
    records: Sequence[Any],
    epochs: int,
    minibatch_size: int = MINIBATCH_SIZE,
    seed: int = 0,
) -> None:
    optimizer = module.optimizer(model.parameters())
    model.train()
    for epoch in range(epochs):
        in_order = shuffled(records, epoch, seed)
        for features, labels in torch_batches(module, in_order, "training", minibatch_size):
            optimizer.zero_grad()
            module.loss(labels, model(features)).backward()
            optimizer.step()


def train_keras(
    module: ModuleType,
    model: keras.Model,
    records: Sequence[Any],
    epochs: int,
    minibatch_size: int = MINIBATCH_SIZE,
    seed: int = 0,
) -> None:
    optimizer = module.optimizer()

    @tf.function(reduce_retracing=True)
    def step(features, labels):
        with tf.GradientTape() as tape:
            loss = module.loss(labels, model(features, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)

    for epoch in range(epochs):
        in_order = shuffled(records, epoch, seed)
        for features, labels in keras_batches(module, in_order, "training", minibatch_size):
            if not model.built or not optimizer.built:
                model(features)
                optimizer.build(model.trainable_variables)
            step(features, labels)


def evaluate_torch(
    module: ModuleType, model: torch.nn.Module, records: Sequence[Any]
) -> dict[str, float]:
    """Evaluate as a job does: metrics of each minibatch, averaged over its examples."""
    metrics = {"loss": module.loss, **module.eval_metrics_fn()}
    totals = dict.fromkeys(metrics, 0.0)
    model.eval()
    with torch.no_grad():
        for features, labels in torch_batches(module, records, "evaluation"):
            predictions = model(features)
            for name, metric in metrics.items():
                totals[name] += float(metric(labels, predictions)) * len(labels)
    return {name: total / len(records) for name, total in totals.items()}


def evaluate_keras(
    module: ModuleType, model: keras.Model, records: Sequence[Any]
) -> dict[str, float]:
    """Evaluate as a job does: metric objects are updated, functions averaged over examples."""
    metrics = {"loss": module.loss, **module.eval_metrics_fn()}
    totals = dict.fromkeys(metrics, 0.0)
    for features, labels in keras_batches(module, records, "evaluation"):
        predictions = model(features, training=False)
        for name, metric in metrics.items():
            if isinstance(metric, keras.metrics.Metric):
                metric.update_state(labels, predictions)
            else:
                totals[name] += float(metric(labels, predictions)) * len(labels)
    return {
        name: float(metric.result())
        if isinstance(metric, keras.metrics.Metric)
        else totals[name] / len(records)
        for name, metric in metrics.items()
    }
