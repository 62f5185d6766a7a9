"""Same numbers as without us: a job's parameters against a plain Keras loop's."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from support.datasets import load_arrays, prepared_dir, zoo_module
from support.local_job import LocalJob, make_spec

SEED = 3
MINIBATCH = 16
NUM_RECORDS = 325
"""Twenty steps and a last, small one: rounding grows with every further step."""


class PlainLoop:
    """What a user would write without us: GradientTape and optimizer.apply."""

    def __init__(self, module, arrays, **params):
        self.module, self.arrays = module, arrays
        keras.utils.set_random_seed(SEED)
        make = getattr(module, "custom_model", None) or module.CustomModel
        self.model = make(**params)
        features, _ = self.batch(0, MINIBATCH)
        self.model(features, training=False)
        self.optimizer = module.optimizer()

    def batch(self, start, end):
        records = {name: array[start:end] for name, array in self.arrays.items()}
        dataset = self.module.dataset_fn(tf.data.Dataset.from_tensor_slices(records), "training")
        return next(iter(dataset.batch(end - start)))

    def gradients(self, start, end):
        features, labels = self.batch(start, end)
        with tf.GradientTape() as tape:
            predictions = self.model(features, training=True)
            loss = self.module.loss(labels, predictions) + sum(self.model.losses)
        return tape.gradient(loss, self.model.trainable_variables)

    def apply(self, gradients):
        self.optimizer.apply(gradients, self.model.trainable_variables)

    def replay(self, group):
        """Average gradients and statistics over minibatches, weighted by their records."""
        total = sum(end - start for _, start, end in group)
        statistics = self.model.non_trainable_weights
        before = [variable.numpy() for variable in statistics]
        gradients = [0.0 for _ in self.model.trainable_variables]
        after = [0.0 for _ in statistics]
        for _, start, end in group:
            for variable, value in zip(statistics, before, strict=True):
                variable.assign(value)
            share = (end - start) / total
            pieces = self.gradients(start, end)
            gradients = [a + share * b for a, b in zip(gradients, pieces, strict=True)]
            after = [a + share * b.numpy() for a, b in zip(after, statistics, strict=True)]
        for variable, value in zip(statistics, after, strict=True):
            variable.assign(value)
        self.apply(gradients)


def first_records(tmp_path, model):
    """The beginning of a model's training data, in a file of its own."""
    path = tmp_path / "train.npz"
    arrays = load_arrays(prepared_dir(model) / "train.npz")
    np.savez(path, **{name: array[:NUM_RECORDS] for name, array in arrays.items()})
    return path


def run_job(tmp_path, model_def, data, **settings):
    log = tmp_path / "commits.jsonl"
    spec = make_spec(
        model_def,
        data,
        minibatch_size=MINIBATCH,
        records_per_task=4 * MINIBATCH,
        seed=SEED,
        commit_log=str(log),
        **settings,
    )
    with LocalJob(spec, tmp_path) as job:
        job.succeed()
        cut = job.cut()
    return cut, [json.loads(line)["records"] for line in log.read_text().splitlines()]


def assert_same(trained, plain, tolerance):
    assert len(trained) == len(plain)
    for (name, array), variable in zip(trained.items(), plain, strict=True):
        np.testing.assert_allclose(array, variable.numpy(), atol=tolerance, rtol=0, err_msg=name)


@pytest.mark.parametrize(
    ("model_def", "data_of", "params"),
    [
        pytest.param("digits.digits_keras.custom_model", "digits", {}, id="functional-adam"),
        pytest.param(
            "mnist_subclass.mnist_subclass.CustomModel",
            "mnist_subclass",
            {"dropout": 0.0},
            id="subclassed-batch-norm",
        ),
    ],
)
def test_one_worker_equals_the_plain_loop(model_def, data_of, params, tmp_path):
    data = first_records(tmp_path, data_of)
    cut, _ = run_job(tmp_path, model_def, data, shuffle="none", model_params=params)

    plain = PlainLoop(zoo_module(model_def.rpartition(".")[0]), load_arrays(data), **params)
    for start in range(0, NUM_RECORDS, MINIBATCH):
        plain.apply(plain.gradients(start, min(start + MINIBATCH, NUM_RECORDS)))
    assert_same(cut.parameters, plain.model.trainable_variables, 1e-5)
    assert_same(cut.state, plain.model.non_trainable_weights, 1e-5)


def test_groups_of_two_workers_equal_the_loop_that_replays_them(tmp_path):
    data = first_records(tmp_path, "mnist_subclass")
    model_def, params = "mnist_subclass.mnist_subclass.CustomModel", {"dropout": 0.0}
    cut, groups = run_job(
        tmp_path, model_def, data, num_workers=2, grads_to_wait=2, model_params=params,
        shuffle="none",
    )  # fmt: skip
    assert {len(group) for group in groups[:-1]} == {2}
    plain = PlainLoop(zoo_module("mnist_subclass.mnist_subclass"), load_arrays(data), **params)
    for group in groups:
        plain.replay(group)
    assert_same(cut.parameters, plain.model.trainable_variables, 1e-5)
    assert_same(cut.state, plain.model.non_trainable_weights, 1e-5)
