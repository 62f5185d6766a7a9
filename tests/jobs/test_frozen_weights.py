"""Weights of a Keras model that no step changes reach each worker once, and are in every cut."""

from pathlib import Path

import numpy as np
import pytest
from support.local_job import LocalJob, make_spec
from support.thread_job import events, run_job

from elastic.checkpoints.cuts import read_cut
from elastic.frameworks.keras import model as keras_model
from elastic.rpc import client as rpc_client
from elastic.rpc.client import MasterClient
from elastic.spec.status import JobPhase

MODEL = """
import keras

class Centred(keras.layers.Layer):
    def build(self, shape):
        self.mean = self.add_weight(shape=shape[1:], initializer="zeros", trainable=False)

    def call(self, inputs):
        self.mean.assign(0.9 * self.mean + 0.1 * keras.ops.mean(inputs, axis=0))
        return inputs - self.mean

def custom_model(width=5, is_frozen=True):
    inputs = keras.Input((4,))
    hidden = keras.layers.Dense(width, name="base")(inputs)
    hidden = Centred(name="centred")(keras.layers.BatchNormalization(name="norm")(hidden))
    hidden = keras.layers.Rescaling(width ** -0.5)(hidden)
    model = keras.Model(inputs, keras.layers.Dense(1, name="head")(hidden))
    model.get_layer("base").trainable = not is_frozen
    return model

def loss(labels, predictions):
    return keras.ops.mean((labels - predictions[:, 0]) ** 2)

def optimizer():
    return keras.optimizers.SGD(0.1)

def dataset_fn(dataset, mode):
    return dataset.map(lambda record: (record["x"], record["y"]))
"""
FROZEN = {"base/kernel", "base/bias"}
MOVING = {
    "norm/moving_mean", "norm/moving_variance", "centred/variable",
}  # fmt: skip
WIDTH = 70_000
"""Of 1.4 MB, which are worth a look without being asked for."""


@pytest.fixture
def spec(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 4)).astype(np.float32)
    np.savez(tmp_path / "train.npz", x=x, y=x.sum(axis=1))
    (tmp_path / "tuned.py").write_text(MODEL)

    def make(**settings):
        data = tmp_path / "train.npz"
        return make_spec("tuned.custom_model", data, model_zoo=str(tmp_path), **settings)

    return make


@pytest.fixture
def trained(spec, tmp_path):
    """A checkpoint in which all layers were trained: no model begins with its values by itself."""
    return run_job(spec(model_params={"is_frozen": False}), tmp_path / "trained").checkpoint


@pytest.fixture
def travelled(monkeypatch):
    """The names of what has gone between master and workers, call by call."""
    names = {"get_frozen": [], "get_model": [], "report_gradient": []}
    get_frozen, get_model = MasterClient.get_frozen, MasterClient.get_model
    report_gradient = MasterClient.report_gradient

    def noting_frozen(self, session):
        values = get_frozen(self, session)
        names["get_frozen"].append(set(values))
        return values

    def noting_model(self, *arguments):
        pulled = get_model(self, *arguments)
        if pulled is not None:
            names["get_model"].append(set(pulled.state))
        return pulled

    def noting_report(self, session, header, gradients, state, **others):
        names["report_gradient"].append(set(state))
        return report_gradient(self, session, header, gradients, state, **others)

    monkeypatch.setattr(MasterClient, "get_frozen", noting_frozen)
    monkeypatch.setattr(MasterClient, "get_model", noting_model)
    monkeypatch.setattr(MasterClient, "report_gradient", noting_report)
    return names


def values(checkpoint):
    """All that a cut holds, the optimizer aside."""
    cut = read_cut(Path(checkpoint))
    return {**cut.parameters, **cut.state}


@pytest.mark.parametrize("shares_memory", [True, False], ids=["memory", "chunks"])
def test_frozen_weights_reach_each_worker_once(
    spec, trained, travelled, shares_memory, tmp_path, monkeypatch
):
    monkeypatch.setattr(keras_model, "FROZEN_BYTES", 1)
    if not shares_memory:
        monkeypatch.setattr(rpc_client, "map_shared", lambda _: None)
    status = run_job(
        spec(checkpoint_filename_for_init=trained, num_workers="2", num_epochs=3), tmp_path
    )
    assert status.phase is JobPhase.SUCCEEDED, status
    assert travelled["get_frozen"] == [FROZEN] * 2
    assert {frozenset(names) for names in travelled["get_model"]} == {frozenset(MOVING)}
    assert len(travelled["report_gradient"]) >= 24
    assert {frozenset(names) for names in travelled["report_gradient"]} == {frozenset(MOVING)}
    before, after = values(trained), values(status.checkpoint)
    assert set(before) == set(after)
    for name in before:
        assert np.array_equal(before[name], after[name]) == (name in FROZEN), name


def test_a_job_ends_with_the_same_values_whether_or_not_they_travel(
    spec, trained, tmp_path, monkeypatch
):
    ends = []
    for size_bytes in (1, 1 << 40):
        monkeypatch.setattr(keras_model, "FROZEN_BYTES", size_bytes)
        status = run_job(
            spec(checkpoint_filename_for_init=trained, num_epochs=2), tmp_path / str(size_bytes)
        )
        assert status.phase is JobPhase.SUCCEEDED, status
        ends.append(values(status.checkpoint))
    first, second = ends
    assert set(first) == set(second)
    for name in first:
        assert np.array_equal(first[name], second[name]), name


def test_a_master_that_goes_on_from_a_cut_has_the_frozen_weights_of_the_cut(
    spec, trained, travelled, tmp_path, monkeypatch
):
    monkeypatch.setattr(keras_model, "FROZEN_BYTES", 1)
    first = run_job(spec(checkpoint_filename_for_init=trained, num_epochs=1), tmp_path / "tuned")
    assert first.phase is JobPhase.SUCCEEDED, first
    before, between = values(trained), values(first.checkpoint)
    second = run_job(spec(num_epochs=2, resume=True), tmp_path / "tuned")
    assert second.phase is JobPhase.SUCCEEDED, second
    assert len(events(second, "Resumed")) == 1
    assert travelled["get_frozen"] == [FROZEN] * 2
    after = values(second.checkpoint)
    for name in FROZEN:
        assert np.array_equal(before[name], after[name]), name
    assert not np.array_equal(between["head/kernel"], after["head/kernel"])


def test_servers_need_no_frozen_weights(spec, tmp_path):
    params = {"width": WIDTH}
    whole = spec(model_params={**params, "is_frozen": False}, max_steps=2)
    began = run_job(whole, tmp_path / "whole").checkpoint
    ends = []
    for strategy in ({}, {"strategy": "ps", "num_ps": 2}):
        tuned = spec(
            model_params=params, checkpoint_filename_for_init=began,
            job_name=f"job-{len(ends)}", **strategy,
        )  # fmt: skip
        with LocalJob(tuned, tmp_path / "home") as job:
            status = job.wait()
        assert status.phase is JobPhase.SUCCEEDED, status
        ends.append(values(status.checkpoint))
    before, (by_master, by_servers) = values(began), ends
    for name in FROZEN:
        assert np.array_equal(before[name], by_servers[name]), name
    for name in by_master:
        assert np.allclose(by_master[name], by_servers[name], rtol=1e-5, atol=1e-6), name
    moved = np.abs(before["head/kernel"] - by_servers["head/kernel"]).max()
    assert moved > 1e-4, "more than what is taken for equal above"
