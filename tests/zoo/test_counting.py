"""The counting models show exactly how often each record was trained on."""

from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf
import torch
from support.datasets import load_records, prepared_dir, zoo_module
from zoo.plain_loops import (
    MINIBATCH_SIZE,
    evaluate_keras,
    evaluate_torch,
    train_keras,
    train_torch,
)

NUM_RECORDS = 101


class TorchCounter:
    """The torch model and optimizer, with gradients as arrays."""

    def __init__(self, **model_params):
        self.module = zoo_module("counting.counting_torch")
        self.model = self.module.CustomModel(**model_params)
        self.optimizer = self.module.optimizer(self.model.parameters())

    def train(self, records, epochs):
        train_torch(self.module, self.model, records, epochs)

    def evaluate(self, records):
        return evaluate_torch(self.module, self.model, records)

    def gradient(self, indices):
        self.model.train()
        index = torch.as_tensor(indices)
        loss = self.module.loss(index, self.model(index))
        return torch.autograd.grad(loss, [self.model.counts])[0].numpy()

    def predict(self, indices):
        return self.model.eval()(torch.as_tensor(indices))

    def apply(self, gradient):
        self.model.counts.grad = torch.as_tensor(gradient)
        self.optimizer.step()

    def set_learning_rate(self, learning_rate):
        self.optimizer.param_groups[0]["lr"] = learning_rate

    def counts(self):
        return self.model.counts.detach().numpy()

    def steps(self):
        return self.model.steps.item()


class KerasCounter:
    """The Keras model and optimizer, with gradients as arrays."""

    def __init__(self, **model_params):
        self.module = zoo_module("counting.counting_keras")
        self.model = self.module.CustomModel(**model_params)
        self.optimizer = self.module.optimizer()
        self.compute = tf.function(self._compute)

    def _compute(self, index):
        with tf.GradientTape() as tape:
            loss = self.module.loss(index, self.model(index, training=True))
        return tf.convert_to_tensor(tape.gradient(loss, self.model.counts.value))

    def train(self, records, epochs):
        train_keras(self.module, self.model, records, epochs)

    def evaluate(self, records):
        return evaluate_keras(self.module, self.model, records)

    def gradient(self, indices):
        return self.compute(tf.constant(indices)).numpy()

    def predict(self, indices):
        return self.model(tf.constant(indices), training=False)

    def apply(self, gradient):
        self.optimizer.apply([tf.constant(gradient)], self.model.trainable_variables)

    def set_learning_rate(self, learning_rate):
        self.optimizer.learning_rate = learning_rate

    def counts(self):
        return keras.ops.convert_to_numpy(self.model.counts)

    def steps(self):
        return float(self.model.steps.numpy())


@pytest.fixture(params=[TorchCounter, KerasCounter], ids=["torch", "keras"])
def make_counter(request):
    return request.param


def average(gradients, weights):
    """Average as a job does: float32, weighted by records."""
    total = sum(g * np.float32(w) for g, w in zip(gradients, weights, strict=True))
    return total / np.float32(sum(weights))


def test_a_plain_loop_counts_every_epoch(make_counter):
    records = load_records(prepared_dir("counting", num_records=NUM_RECORDS) / "train.npz")
    counter = make_counter(num_records=NUM_RECORDS)
    counter.train(records, epochs=3)
    np.testing.assert_array_equal(counter.counts(), 3)
    assert counter.steps() == 3 * -(-NUM_RECORDS // MINIBATCH_SIZE)
    assert counter.evaluate(records) == {"loss": -3, "mean_count": 3}


@pytest.mark.parametrize("sizes", [(101,), (1, 100), (32, 32, 32, 5), (7, 3, 90, 1), (97, 3, 1)])
def test_one_update_of_unequal_minibatches_counts_one(make_counter, sizes):
    counter = make_counter(num_records=NUM_RECORDS)
    order = np.random.default_rng(sum(sizes)).permutation(NUM_RECORDS)
    parts = np.split(order, np.cumsum(sizes)[:-1])
    counter.apply(average([counter.gradient(part) for part in parts], sizes))
    np.testing.assert_array_equal(counter.counts(), 1)


def test_the_learning_rate_is_not_used(make_counter):
    counter = make_counter(num_records=4)
    counter.set_learning_rate(0.125)
    counter.apply(counter.gradient(np.arange(4)))
    np.testing.assert_array_equal(counter.counts(), 1)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        pytest.param([[0, 1], [3]], [1, 1, 0, 1], id="lost"),
        pytest.param([[0, 1], [1, 2, 3]], [1, 2, 1, 1], id="twice-in-one-update"),
    ],
)
def test_a_wrong_set_of_records_shows(make_counter, parts, expected):
    counter = make_counter(num_records=4)
    gradients = [counter.gradient(np.array(part)) for part in parts]
    counter.apply(average(gradients, [len(part) for part in parts]))
    np.testing.assert_array_equal(counter.counts(), expected)


def test_an_average_that_is_not_weighted_by_records_shows(make_counter):
    counter = make_counter(num_records=4)
    gradients = [counter.gradient(np.array(part)) for part in ([0, 1, 2], [3])]
    counter.apply(average(gradients, [1, 1]))
    np.testing.assert_array_equal(counter.counts(), [1, 1, 1, 3])


def test_a_gradient_of_zeros_changes_nothing(make_counter):
    counter = make_counter(num_records=3)
    counter.apply(np.zeros(3, np.float32))
    np.testing.assert_array_equal(counter.counts(), 0)


def test_each_training_step_is_delayed_and_no_other(make_counter, monkeypatch):
    counter = make_counter(num_records=3, delay_ms=25)
    slept = []
    monkeypatch.setattr(counter.module, "time", SimpleNamespace(sleep=slept.append))
    counter.predict(np.arange(3))
    assert slept == []
    for _ in range(3):
        counter.gradient(np.arange(3))
    assert slept == [0.025] * 3
    assert counter.steps() == 3
