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
from elastic.frameworks.keras.model import save_file, save_folder
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


def keras_model(width, dtype="float32", width_out=2):
    def make():
        inputs = keras.Input((3,))
        x = keras.layers.BatchNormalization()(keras.layers.Dense(width)(inputs))
        return keras.Model(inputs, keras.layers.Dense(width_out, dtype=dtype)(x))

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


KERAS_FORMS = pytest.mark.parametrize("name", ["model", "model.savedmodel"])


@KERAS_FORMS
def test_a_keras_export_comes_back_whole(tmp_path, name):
    model, batch = keras_model(4)
    model.load(
        {name: array + 1 for name, array in model.parameters().items()},
        {name: array + 1 for name, array in model.state().items()},
    )
    path = model.export(str(tmp_path / name))
    other, _ = keras_model(4)
    assert not np.array_equal(other.predict(batch), model.predict(batch))
    other.load_export(path)
    np.testing.assert_array_equal(other.predict(batch), model.predict(batch))


def test_a_keras_file_with_more_layers_than_the_model_is_refused(tmp_path):
    inputs = keras.Input((3,))
    outputs = keras.layers.BatchNormalization()(keras.layers.Dense(4)(inputs))
    for _ in range(2):
        outputs = keras.layers.Dense(4)(outputs)
    save_file(keras.Model(inputs, outputs), tmp_path / "deep.keras")
    model, batch = keras_model(4, width_out=4)
    before = model.predict(batch)
    with pytest.raises(CheckpointError, match=r"holds layers/dense_2/vars/0, which the model has"):
        model.load_export(str(tmp_path / "deep.keras"))
    np.testing.assert_array_equal(model.predict(batch), before)


def test_a_file_of_a_compiled_model_is_taken(tmp_path):
    model, batch = keras_model(4)
    model.model.compile("adam", "mse", metrics=["mae"])
    model.model.fit(batch.features, tf.zeros((5, 2)), verbose=0)
    model.model.save(tmp_path / "own.keras")
    other, _ = keras_model(4)
    other.load_export(str(tmp_path / "own.keras"))
    np.testing.assert_array_equal(other.predict(batch), model.predict(batch))


@KERAS_FORMS
def test_a_keras_export_of_another_width_is_refused(tmp_path, name):
    path = keras_model(4)[0].export(str(tmp_path / name))
    with pytest.raises(CheckpointError, match="a job with this model_def"):
        keras_model(5)[0].load_export(path)


DENSE, NORM, LAYER_NORM = "Dense", "BatchNormalization", "LayerNormalization"


@pytest.mark.parametrize(("kinds", "words"), [
    ([DENSE], r"variable 2 is missing there and gamma float32\[4\] in the model"),
    ([DENSE, NORM, DENSE, DENSE], r"variable 8 is kernel float32\[4, 4\] there and none in the"),
    ([DENSE, LAYER_NORM, DENSE],
     r"variable 4 is kernel float32\[4, 4\] there and moving_mean float32\[4\] in the model"),
])  # fmt: skip
def test_a_saved_model_of_other_layers_is_refused_and_changes_nothing(tmp_path, kinds, words):
    inputs = outputs = keras.Input((3,))
    for kind in kinds:
        outputs = getattr(keras.layers, kind)(*([4] if kind == DENSE else []))(outputs)
    save_folder(keras.Model(inputs, outputs), tf.ones((5, 3)), tmp_path / "other")
    model, batch = keras_model(4, width_out=4)
    before = model.predict(batch)
    with pytest.raises(CheckpointError, match=words):
        model.load_export(str(tmp_path / "other"))
    np.testing.assert_array_equal(model.predict(batch), before)


def test_a_folder_that_no_tensorflow_has_written_is_refused(tmp_path):
    (tmp_path / "saved_model.pb").write_bytes(b"no model")
    with pytest.raises(CheckpointError, match=f"reading --model={tmp_path} failed"):
        keras_model(4)[0].load_export(str(tmp_path))


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
