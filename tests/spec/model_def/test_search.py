"""Which model a folder holds is told by the text of its modules."""

import re

import pytest

from elastic.errors import ModelDefError
from elastic.spec.model_check import find_model_def
from elastic.spec.model_def import SymbolNames

FUNCTIONS = """\
def loss(labels, predictions): ...
def optimizer(parameters): ...
def dataset_fn(dataset, mode): ...
"""
HELPERS = "def prepare(path): ...\n"


def found(folder, names=None, **modules):
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)
    return find_model_def(folder, names or SymbolNames())


@pytest.mark.parametrize(
    "model",
    [
        "class CustomModel(Base): ...",
        "def custom_model(): ...",
        "from net import CustomModel",
        "custom_model = build('net')",
        "class Net(nn.Module): ...",
        "class Block(Base): ...\nclass Net(keras.Model): ...",
        # The usual name is meant, whatever else it is made of.
        "class Block(nn.Module): ...\nclass CustomModel(nn.Module): ...",
        "class Net(Model): ...",
    ],
)
def test_the_one_module_with_the_four_is_found(tmp_path, model):
    name = re.findall(r"CustomModel|custom_model|Net", model)[-1]
    assert found(tmp_path, zoo=FUNCTIONS + model, prepare_data=HELPERS) == f"zoo.{name}"


def test_renamed_functions_are_looked_for_by_their_names(tmp_path):
    text = FUNCTIONS.replace("loss", "my_loss") + "class Net(Module): ...\n"
    assert found(tmp_path, SymbolNames(loss="my_loss"), zoo=text) == "zoo.Net"
    with pytest.raises(ModelDefError, match=r"zoo\.py has no loss: define it in this module"):
        find_model_def(tmp_path, SymbolNames())


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        (
            {"a": FUNCTIONS + "class Net(Module): ...", "b": FUNCTIONS + "def custom_model(): ..."},
            "{folder} holds 2 models: choose with --model_def a.Net or b.custom_model",
        ),
        (
            {"a": FUNCTIONS + "class Net(Module): ...\nclass Other(nn.Module): ..."},
            "{folder} holds 2 models: choose with --model_def a.Net or a.Other",
        ),
        (
            {"a": FUNCTIONS + "def build(): ..."},
            "{folder}/a.py has loss, optimizer, dataset_fn, and none of its names is known to be "
            "the model's: name it with --model_def a.NAME",
        ),
        (
            {"a": "def loss(a, b): ...\nclass Net(Module): ..."},
            "{folder}/a.py has no optimizer and no dataset_fn: define it in this module",
        ),
        (
            {"a": HELPERS},
            "{folder} has no module with a model, loss, optimizer, dataset_fn: name another "
            "folder, or begin one with `elastic zoo new FOLDER`",
        ),
        (
            {"a": "def loss(:\n"},
            "module a cannot be imported: SyntaxError: invalid syntax ({folder}/a.py:1)",
        ),
    ],
)
def test_what_is_not_clear_is_asked_about(tmp_path, modules, message):
    with pytest.raises(ModelDefError) as raised:
        found(tmp_path, **modules)
    assert str(raised.value) == message.format(folder=tmp_path)


def test_a_broken_module_hides_no_model_beside_it(tmp_path):
    broken = {"a_notes": "not python", "b_bytes": "x = '\0'"}
    assert found(tmp_path, zoo=FUNCTIONS + "class Net(Module): ...", **broken) == "zoo.Net"
