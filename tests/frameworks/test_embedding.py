"""`elastic.embedding`: which layer a module gets, and what importing it loads."""

import inspect
import subprocess
import sys

import pytest

import elastic.embedding
from elastic.embedding import Embedding, KerasEmbedding, TorchEmbedding
from elastic.errors import ModelDefError
from elastic.frameworks.keras.embedding import Embedding as OfKeras
from elastic.frameworks.torch.embedding import Embedding as OfTorch


def made_in(source):
    """What a user's module with this text makes as `made`, after it has imported all it imports."""
    namespace = {"__name__": "own"}
    exec(compile(source, "own.py", "exec"), namespace)
    return namespace["make"]()


TORCH = "from elastic.embedding import Embedding\nimport torch\n"
MAKE = "def make():\n    return Embedding(4, 'mean', 'zeros', name='t', padding_id=0)\n"


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        pytest.param(TORCH, OfTorch, id="torch"),
        pytest.param(TORCH.replace("torch", "torch.nn as nn"), OfTorch, id="torch.nn"),
        pytest.param(
            TORCH.replace("import torch", "from torch.nn import Module"), OfTorch, id="class"
        ),
        pytest.param(TORCH.replace("torch", "keras"), OfKeras, id="keras"),
        pytest.param(TORCH.replace("torch", "tensorflow as tf"), OfKeras, id="tensorflow"),
        pytest.param(TORCH.replace("torch", "keras, tensorflow as tf"), OfKeras, id="both of one"),
    ],
)
def test_the_layer_is_of_the_framework_of_the_module(source, kind):
    layer = made_in(source + MAKE)
    assert isinstance(layer, kind)
    assert layer.source.table.name == "t"
    assert (layer.combiner, layer.padding_id, layer.source.table.dim) == ("mean", 0, 4)


@pytest.mark.parametrize("imports", ["", "import torch, keras\n"])
def test_where_it_cannot_be_told_both_are_named(imports):
    with pytest.raises(ModelDefError, match="import TorchEmbedding or KerasEmbedding"):
        made_in("from elastic.embedding import Embedding\n" + imports + MAKE)


def test_each_has_its_name():
    assert (TorchEmbedding, KerasEmbedding) == (OfTorch, OfKeras)
    assert {"Embedding", "KerasEmbedding", "TorchEmbedding"} <= set(dir(elastic.embedding))
    with pytest.raises(AttributeError, match=r"'elastic.embedding' has no attribute 'Other'"):
        _ = elastic.embedding.Other


def test_a_helper_without_a_framework_gets_the_one_that_is_loaded():
    made = run(
        "import torch\n"
        "namespace = {'__name__': 'helper'}\n"
        f"exec({('from elastic.embedding import Embedding' + chr(10) + MAKE)!r}, namespace)\n"
        "print(type(namespace['make']()).__module__)"
    )
    assert made == "elastic.frameworks.torch.embedding"


def test_it_loads_no_framework():
    loaded = run(
        "import sys, elastic.embedding\n"
        "print(sorted({'torch', 'keras', 'tensorflow'} & set(sys.modules)))"
    )
    assert loaded == "[]"


def run(source):
    command = [sys.executable, "-c", source]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize("layer", [TorchEmbedding, KerasEmbedding])
def test_arguments_are_those_of_both_layers(layer):
    ours = list(inspect.signature(Embedding).parameters.values())
    assert list(inspect.signature(layer).parameters.values())[: len(ours)] == ours
