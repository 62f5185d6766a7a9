"""Exported models are read where there is no `elastic`, and predict what the job's model does."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.local_job import make_spec
from support.thread_job import obedient_spec, run_job, write_records

from elastic.checkpoints.cuts import read_cut
from elastic.spec.status import JobPhase

HIDE = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "elastic":
            raise ImportError("there is no elastic here")
sys.meta_path.insert(0, Hidden())
"""
KERAS = """
import keras, numpy as np, tensorflow as tf
x, answers = np.load(sys.argv[2]), []
for path in [sys.argv[1], *sys.argv[4:]]:
    if path.endswith(".keras"):
        model = keras.models.load_model(path)
        answers.append(model(x, training=False))
    else:
        model = tf.saved_model.load(path)
        answers.append(model.serve(x))
np.save(sys.argv[3], answers)
"""
KERAS_FORMS = ("m.keras", "m.savedmodel", "m")
TORCH = """
import importlib.util, numpy as np, safetensors.torch, torch
spec = importlib.util.spec_from_file_location("zoo", sys.argv[4])
zoo = importlib.util.module_from_spec(spec)
spec.loader.exec_module(zoo)
model = zoo.CustomModel()
model.load_state_dict(safetensors.torch.load_file(sys.argv[1]))
model.eval()
with torch.no_grad():
    np.save(sys.argv[3], model(torch.from_numpy(np.load(sys.argv[2]))).numpy())
"""

KERAS_MODULE = """
import keras
import tensorflow as tf


def custom_model():
    image = keras.Input((4,))
    x = keras.layers.Dense(3, activation="relu")(image)
    x = keras.layers.BatchNormalization(momentum=0.5)(x)
    return keras.Model(image, keras.layers.Dense(2)(x))


def loss(labels, predictions):
    return tf.reduce_mean(tf.square(labels - predictions))


def optimizer():
    return keras.optimizers.Adam(0.1)


def dataset_fn(dataset, mode):
    return dataset.map(lambda r: (r["x"], r["y"]))
"""

TORCH_MODULE = """
import torch
from torch import nn


class CustomModel(nn.Module):
    def __init__(self):
        super().__init__()
        norm = nn.BatchNorm1d(3, momentum=0.5)
        self.layers = nn.Sequential(nn.Linear(4, 3), norm, nn.Linear(3, 2))

    def forward(self, x):
        return self.layers(x)


def loss(labels, predictions):
    return nn.functional.mse_loss(predictions, labels)


def optimizer(parameters):
    return torch.optim.Adam(parameters, lr=0.1)


def dataset_fn(dataset, mode):
    for r in dataset:
        yield torch.from_numpy(r["x"]), torch.from_numpy(r["y"])
"""


def _job(tmp_path, module, model, output):
    rng = np.random.default_rng(0)
    data = tmp_path / "train.npz"
    x = rng.normal(2.0, 3.0, (64, 4)).astype(np.float32)
    np.savez(data, x=x, y=x[:, :2] - x[:, 2:])
    zoo = tmp_path / "zoo"
    zoo.mkdir()
    name = f"exported_{model}"
    slash = "" if output.suffix else "/"
    (zoo / f"{name}.py").write_text(module)
    spec = make_spec(
        f"{name}.{model}", data, model_zoo=str(zoo), output=f"{output}{slash}",
        recovery_interval=3600.0,
    )  # fmt: skip
    status = run_job(spec, tmp_path)
    assert status.phase is JobPhase.SUCCEEDED, status.message
    assert status.export == str(output)
    return read_cut(Path(status.checkpoint)), x[:5], zoo / f"{name}.py"


def _predicted(program, output, x, tmp_path, *arguments):
    """What the exported model predicts in a process that has no `elastic`."""
    features, answer = tmp_path / "features.npy", tmp_path / "answer.npy"
    np.save(features, x)
    subprocess.run(
        [sys.executable, "-c", HIDE + program, output, features, answer, *arguments],
        check=True, cwd=tmp_path, timeout=500,
    )  # fmt: skip
    return np.load(answer)


def _normed(hidden, scale, shift, mean, variance, epsilon):
    return (hidden - mean) / np.sqrt(variance + epsilon) * scale + shift


@pytest.mark.sampled(2)
def test_keras_models_are_read_without_this_project(tmp_path):
    """Each form of them, by one process."""
    outputs = [tmp_path / str(at) / "out" / name for at, name in enumerate(KERAS_FORMS)]
    cuts = [_keras_job(output) for output in outputs]
    x = cuts[0][1]
    predicted = _predicted(KERAS, outputs[0], x, tmp_path, *outputs[1:])
    for (cut, _, _), answer in zip(cuts, predicted, strict=True):
        p, s = cut.parameters, cut.state
        w1, b1, gamma, beta, w2, b2 = p.values()
        mean, variance = s.values()
        assert abs(mean).max() > 0.1, "the statistics have been trained"
        hidden = np.maximum(x @ w1 + b1, 0)
        expected = _normed(hidden, gamma, beta, mean, variance, 1e-3) @ w2 + b2
        np.testing.assert_allclose(answer, expected, rtol=1e-4, atol=1e-5)


def _keras_job(output):
    folder = output.parents[1]
    folder.mkdir()
    job = _job(folder, KERAS_MODULE, "custom_model", output)
    assert [path.name for path in output.parent.iterdir()] == [output.name], "nothing beside it"
    return job


def test_a_torch_model_is_read_without_this_project(tmp_path):
    output = tmp_path / "out" / "m.safetensors"
    cut, x, module = _job(tmp_path, TORCH_MODULE, "CustomModel", output)
    predicted = _predicted(TORCH, output, x, tmp_path, module)
    p, s = cut.parameters, cut.state
    hidden = _normed(
        x @ p["layers.0.weight"].T + p["layers.0.bias"], p["layers.1.weight"],
        p["layers.1.bias"], s["layers.1.running_mean"], s["layers.1.running_var"], 1e-5,
    )  # fmt: skip
    expected = hidden @ p["layers.2.weight"].T + p["layers.2.bias"]
    np.testing.assert_allclose(predicted, expected, rtol=1e-4, atol=1e-5)


def test_a_saved_model_takes_the_place_of_one_and_of_nothing_else(tmp_path):
    output = tmp_path / "out" / "m.savedmodel"
    _job(tmp_path, KERAS_MODULE, "custom_model", output)
    (output / "old").touch()
    spec = make_spec(
        "exported_custom_model.custom_model", tmp_path / "train.npz",
        model_zoo=str(tmp_path / "zoo"), output=str(output),
    )  # fmt: skip
    assert run_job(spec, tmp_path / "again").phase is JobPhase.SUCCEEDED
    assert not (output / "old").exists()
    assert [path.name for path in output.parent.iterdir()] == ["m.savedmodel"]
    (output / "saved_model.pb").unlink()
    status = run_job(spec, tmp_path / "more")
    assert status.message == (
        f"--output={output} holds other files than a SavedModel: name a folder that is not there "
        "yet"
    )


def test_a_suffix_of_the_other_framework_is_refused_before_anything_starts(tmp_path):
    data = write_records(tmp_path / "train.npz")
    status = run_job(obedient_spec(data, output=str(tmp_path / "m.keras")), tmp_path)
    assert (status.phase, status.reason) == (JobPhase.FAILED, "JobSpec")
    assert status.message.startswith(f"--output={tmp_path}/m.keras asks for .keras, and a torch")
