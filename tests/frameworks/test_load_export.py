"""What an export holds goes back into a model of the same kind, and into no other."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import torch
from torch import nn

from elastic.errors import CheckpointError, ModelDefError
from elastic.frameworks.base import Batch
from elastic.frameworks.keras import KerasFramework
from elastic.frameworks.torch import TorchFramework
from elastic.spec.model_def import ModelDef


class Tied(nn.Module):
    """Two names of one weight, statistics, and parameters that are not trained."""

    def __init__(self):
        super().__init__()
        self.frozen = nn.Linear(3, 4).requires_grad_(False)
        self.inner = nn.Linear(4, 4, bias=False)
        self.norm = nn.BatchNorm1d(4)
        self.outer = nn.Linear(4, 4, bias=False)
        self.outer.weight = self.inner.weight

    def forward(self, x):
        return self.outer(self.norm(self.inner(self.frozen(x))))


class HalfLinear(nn.Linear):
    """Gives bfloat16."""

    def forward(self, x):
        return super().forward(x).to(torch.bfloat16)


def torch_model(seed, module=Tied):
    definition = ModelDef(
        "m", "torch", module, lambda _, p: p.mean(), torch.optim.SGD, lambda d, _: d
    )
    sample = Batch(torch.ones(5, 3), torch.zeros(5), 5)
    return TorchFramework().build_model(definition, {}, sample, seed), sample


def keras_model(width, dtype="float32"):
    def make():
        inputs = keras.Input((3,))
        x = keras.layers.BatchNormalization()(keras.layers.Dense(width)(inputs))
        return keras.Model(inputs, keras.layers.Dense(2, dtype=dtype)(x))

    definition = ModelDef(
        "m", "keras", make, lambda _, p: tf.reduce_mean(p), keras.optimizers.SGD, lambda d, _: d
    )
    sample = Batch(tf.ones((5, 3)), tf.zeros(5), 5)
    return KerasFramework().build_model(definition, {}, sample, seed=1), sample


def test_a_torch_export_comes_back_whole(tmp_path):
    model, batch = torch_model(1)
    model.gradients(batch, seed=0)
    for parameter in model.trained.values():
        parameter.data += 1
    path = model.export(str(tmp_path / "model"))
    other, _ = torch_model(1)
    assert not np.array_equal(other.predict(batch), model.predict(batch))
    other.load_export(path)
    np.testing.assert_array_equal(other.predict(batch), model.predict(batch))
    for name, array in model.state().items():
        np.testing.assert_array_equal(other.state()[name], array)


def test_what_every_torch_process_makes_anew_must_be_what_the_export_has(tmp_path):
    path = torch_model(1)[0].export(str(tmp_path / "model"))
    with pytest.raises(
        CheckpointError, match=r"frozen\.\w+, which is not trained .* give the --seed"
    ):
        torch_model(2)[0].load_export(path)


def test_a_torch_export_of_another_model_is_refused(tmp_path):
    path = torch_model(1, lambda: nn.Linear(3, 4))[0].export(str(tmp_path / "model"))
    with pytest.raises(CheckpointError, match="do not fit this model: missing"):
        torch_model(1)[0].load_export(path)


def test_a_keras_export_comes_back_whole(tmp_path):
    model, batch = keras_model(4)
    model.load(
        {name: array + 1 for name, array in model.parameters().items()},
        {name: array + 1 for name, array in model.state().items()},
    )
    path = model.export(str(tmp_path / "model"))
    other, _ = keras_model(4)
    assert not np.array_equal(other.predict(batch), model.predict(batch))
    other.load_export(path)
    np.testing.assert_array_equal(other.predict(batch), model.predict(batch))


def test_a_keras_export_of_another_width_is_refused(tmp_path):
    path = keras_model(4)[0].export(str(tmp_path / "model"))
    with pytest.raises(CheckpointError, match="a job with this model_def"):
        keras_model(5)[0].load_export(path)


def test_bfloat16_comes_out_as_float32():
    model, batch = keras_model(4, dtype="bfloat16")
    assert model.predict(batch).dtype == np.float32
    module, batch = torch_model(1, lambda: HalfLinear(3, 4))
    assert module.predict(batch).dtype == np.float32


def test_a_prediction_must_count_the_examples():
    class Mean(nn.Linear):
        def forward(self, x):
            return super().forward(x).mean(0)

    model, batch = torch_model(1, lambda: Mean(3, 4))
    with pytest.raises(ModelDefError, match=r"a prediction of shape \[4\] for 5 examples"):
        model.predict(batch)
