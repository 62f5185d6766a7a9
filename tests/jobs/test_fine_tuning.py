"""Jobs that begin with a checkpoint of layers of which they freeze some, or freeze fewer."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from support.local_job import make_spec
from support.thread_job import run_job

from elastic.checkpoints.cuts import read_cut
from elastic.spec.status import JobPhase

KERAS = """
import keras

def custom_model(frozen=()):
    inputs = keras.Input((4,))
    hidden = keras.layers.Dense(3, name="base")(inputs)
    hidden = keras.layers.BatchNormalization(name="norm")(hidden)
    model = keras.Model(inputs, keras.layers.Dense(1, name="head")(hidden))
    for name in frozen:
        model.get_layer(name).trainable = False
    return model

def loss(labels, predictions):
    return keras.ops.mean((labels - predictions[:, 0]) ** 2)

def optimizer():
    return keras.optimizers.SGD(0.1)

def dataset_fn(dataset, mode):
    return dataset.map(lambda record: (record["x"], record["y"]))
"""

TORCH = """
import torch
from safetensors.torch import load_file

def custom_model(frozen=(), file=""):
    model = torch.nn.Sequential()
    model.add_module("base", torch.nn.Linear(4, 3))
    model.add_module("head", torch.nn.Linear(3, 1))
    if file:
        model.load_state_dict(load_file(file))
    for name in frozen:
        model.get_submodule(name).requires_grad_(False)
    return model

def loss(labels, predictions):
    return ((labels - predictions[:, 0]) ** 2).mean()

def optimizer(parameters):
    return torch.optim.SGD(parameters, 0.1)

def dataset_fn(records, mode):
    return [(torch.from_numpy(each["x"]), torch.tensor(each["y"])) for each in records]
"""


@pytest.fixture
def train(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(32, 4)).astype(np.float32)
    np.savez(tmp_path / "train.npz", x=x, y=x.sum(axis=1))

    def run(framework, folder, **settings):
        (tmp_path / "fine.py").write_text(framework)
        spec = make_spec(
            "fine.custom_model", tmp_path / "train.npz", model_zoo=str(tmp_path), **settings
        )
        return run_job(spec, tmp_path / folder)

    return run


def values(status):
    """All that a job ended with, by name, and the names of what was trained."""
    cut = read_cut(Path(status.checkpoint))
    return {**cut.parameters, **cut.state}, set(cut.parameters)


def test_layers_are_frozen_and_thawed_from_one_checkpoint_to_the_next(train):
    whole = train(KERAS, "whole")
    assert whole.phase is JobPhase.SUCCEEDED, whole
    tuned = train(
        KERAS, "tuned",
        checkpoint_filename_for_init=whole.checkpoint, model_params={"frozen": ["base", "norm"]},
    )  # fmt: skip
    assert tuned.phase is JobPhase.SUCCEEDED, tuned
    thawed = train(KERAS, "thawed", checkpoint_filename_for_init=tuned.checkpoint)
    assert thawed.phase is JobPhase.SUCCEEDED, thawed
    (first, all_names), (second, few_names), (third, again) = map(values, (whole, tuned, thawed))
    assert set(first) == set(second) == set(third)
    assert again == all_names > few_names == {name for name in all_names if "head" in name}
    for name in first:
        is_same = np.array_equal(first[name], second[name])
        assert is_same == (name not in few_names), f"{name} is trained, or stays"
    assert all(not np.array_equal(second[name], third[name]) for name in all_names)


def test_a_torch_module_freezes_what_it_loads_from_an_export(train, tmp_path):
    before, after = str(tmp_path / "before.safetensors"), str(tmp_path / "after.safetensors")
    train(TORCH, "whole", output=before)
    params = {"frozen": ["base"], "file": before}
    tuned = train(TORCH, "tuned", output=after, model_params=params, num_workers="2")
    assert tuned.phase is JobPhase.SUCCEEDED, tuned
    first, second = load_file(before), load_file(after)
    assert set(first) == set(second)
    for name in first:
        assert np.array_equal(first[name], second[name]) == name.startswith("base"), name


def test_a_torch_module_that_freezes_what_a_checkpoint_has_says_what_to_do(train):
    whole = train(TORCH, "whole")
    assert whole.phase is JobPhase.SUCCEEDED, whole
    status = train(
        TORCH, "tuned",
        checkpoint_filename_for_init=whole.checkpoint, model_params={"frozen": ["base"]},
    )  # fmt: skip
    assert (status.phase, status.reason) == (JobPhase.FAILED, "Checkpoint")
    assert status.message == (
        "the parameters of this model do not include base.weight, base.bias: it does not train "
        "them (requires_grad is False), and every process makes those itself: have the function "
        "that makes the module load all of them from the .safetensors that --output has written, "
        "and freeze them there, instead of naming a checkpoint"
    )
