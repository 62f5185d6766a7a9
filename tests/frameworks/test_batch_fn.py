"""A batch_fn: what it is given, what may come back, and what is said where it fails."""

import re

import numpy as np
import pytest

from elastic.errors import ModelDefError
from elastic.frameworks import load_framework
from elastic.policy.tasks.records import Columns
from elastic.spec.model_check import check_source, find_model_def
from elastic.spec.model_def import ModelDef, SymbolNames, load_model_def
from elastic.spec.platforms import Mode

COLUMNS = Columns({"x": np.arange(6.0).reshape(3, 2), "y": np.array([0, 1, 2])}, 3)
every_framework = pytest.mark.parametrize("framework", ["keras", "torch"])


def made(framework, batch_fn, mode=Mode.TRAINING, columns=COLUMNS):
    model_def = ModelDef("net", framework, print, print, print, None, batch_fn)
    return load_framework(framework).make_batch(model_def, columns, mode)


@every_framework
def test_arrays_become_tensors_of_their_type(framework):
    batch = made(framework, lambda c, _: ({"x": c["x"].astype(np.float32)}, (c["y"],)))
    assert batch.num_examples == 3
    assert "float32" in str(batch.features["x"].dtype)
    np.testing.assert_array_equal(batch.features["x"].numpy(), COLUMNS.arrays["x"])
    assert batch.labels[0].numpy().tolist() == [0, 1, 2]


@every_framework
def test_rows_may_be_left_out_all_of_them_too(framework):
    assert made(framework, lambda c, _: (c["x"][1:], c["y"][1:])).num_examples == 2
    batch = made(framework, lambda c, _: (c["x"][:0], c["y"][:0]))
    assert (batch.features, batch.num_examples) == (None, 0)


@every_framework
def test_predictions_need_no_labels(framework):
    batch = made(framework, lambda c, mode: c["x"] if mode == "prediction" else 1, Mode.PREDICTION)
    assert (batch.labels, batch.num_examples) == (None, 3)


@every_framework
def test_the_dict_and_its_arrays_may_be_changed(framework):
    columns = Columns({"x": np.zeros(2), "y": np.zeros(2)}, 2)

    def changing(columns, mode):
        label = columns.pop("y")
        columns["x"] += 1
        return columns["x"], label

    assert made(framework, changing, columns=columns).features.numpy().tolist() == [1, 1]
    assert set(columns.arrays) == {"x", "y"}


@every_framework
def test_rows_back_to_front_and_bytes_of_another_order(framework):
    batch = made(framework, lambda c, _: (c["x"][::-1].astype(">f4"), c["y"][::-1]))
    np.testing.assert_array_equal(batch.features.numpy(), COLUMNS.arrays["x"][::-1])


def test_text_is_a_tensor_in_keras_and_an_array_in_torch():
    columns = Columns({"t": np.array(["a", "é"], object), "y": np.zeros(2)}, 2)
    batches = [
        made(framework, lambda c, _: (c["t"], c["y"]), columns=columns)
        for framework in ("keras", "torch")
    ]
    assert batches[0].features.numpy().tolist() == [b"a", "é".encode()]
    assert batches[1].features.tolist() == ["a", "é"]
    assert [batch.num_examples for batch in batches] == [2, 2]


def _misses(columns, mode):
    return columns["z"], columns["y"]


LINE = _misses.__code__.co_firstlineno + 1


@every_framework
@pytest.mark.parametrize(
    ("batch_fn", "message"),
    [
        (_misses, f"batch_fn failed: KeyError: 'z' ({__file__}:{LINE}); the columns are x, y"),
        (lambda c, _: c["x"], "batch_fn gave a ndarray in mode training: return a tuple"),
        (lambda c, _: (c["x"], 1), "first dimensions of 3, none, of 3 records"),
        (lambda c, _: (c["x"], c["y"][1:]), "first dimensions of 3, 2, of 3 records"),
        (lambda c, _: ((), ()), "first dimensions of none, of 3 records"),
        (
            lambda c, _: (np.zeros(20_000), np.zeros(20_000)),
            "batch_fn has made more than 10300 examples of the 3 records",
        ),
    ],
)
def test_what_is_wrong_is_said(framework, batch_fn, message):
    with pytest.raises(ModelDefError, match=re.escape(message)):
        made(framework, batch_fn)


MODULE = """
import torch
class CustomModel(torch.nn.Linear): pass
def loss(labels, predictions): return 0
def optimizer(parameters): return 0
"""
DATASET_FN = "def dataset_fn(dataset, mode): return ()\n"
BATCH_FN = "def batch_fn(columns, mode): return ()\n"


@pytest.mark.parametrize(("functions", "takes_columns"), [
    (DATASET_FN, False), (BATCH_FN, True), (DATASET_FN + BATCH_FN, True),
])  # fmt: skip
def test_which_function_is_used(tmp_path, functions, takes_columns):
    name = f"net_{len(functions)}"
    (tmp_path / f"{name}.py").write_text(MODULE + functions)
    assert find_model_def(tmp_path, SymbolNames()) == f"{name}.CustomModel"
    arguments = tmp_path, f"{name}.CustomModel", SymbolNames()
    check_source(*arguments)
    assert load_model_def(*arguments).takes_columns is takes_columns


@pytest.mark.parametrize("check", [check_source, load_model_def])
@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ("", "has no dataset_fn: define dataset_fn(dataset, mode) that returns (features, labels) "
         "pairs, or batch_fn(columns, mode)"),
        ("def batch_fn(columns): ...\n", "cannot be called as batch_fn(columns, mode)"),
        ("batch_fn = 3\n" + DATASET_FN, "batch_fn of module"),
    ],
)  # fmt: skip
def test_modules_with_neither_or_with_another(tmp_path, check, functions, message):
    name = f"bad_{check.__name__}_{len(functions)}"
    (tmp_path / f"{name}.py").write_text(MODULE + functions)
    with pytest.raises(ModelDefError, match=re.escape(message)):
        check(tmp_path, f"{name}.CustomModel", SymbolNames())
