"""Callbacks that nobody could call are found in a module's text."""

import ast
import subprocess
import sys

import pytest

from elastic.errors import ModelDefError
from elastic.spec.model_check import check_callbacks

OWN = "class Mine(keras.callbacks.Callback):\n    def on_batch_end(self, batch, logs): pass\n"


@pytest.mark.parametrize(
    ("text", "name", "hook"),
    [
        ("def callbacks():\n    return [keras.callbacks.TensorBoard('logs')]\n",
         "TensorBoard", "on_train_batch_end"),
        (OWN + "def callbacks():\n    return [Mine()]\n", "Mine", "on_batch_end"),
        ("def callbacks():\n    return [LambdaCallback(on_test_begin=print)]\n",
         "LambdaCallback", "on_test_begin"),
    ],
)  # fmt: skip
def test_a_hook_that_cannot_be_called_is_refused_by_name(text, name, hook):
    with pytest.raises(ModelDefError) as refusal:
        check_callbacks(ast.parse(text), "callbacks")
    message = str(refusal.value)
    assert message.startswith(f"callbacks gives a {name}, whose hook {hook} cannot be called: ")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(OWN + "def callbacks():\n    return []\n", id="not-used"),
        pytest.param("class TensorBoard: pass\ndef callbacks():\n    return [TensorBoard()]\n",
                     id="the-users-own-of-that-name"),
        pytest.param("def callbacks():\n    return [EarlyStopping('val_loss', patience=2)]\n",
                     id="served"),
        pytest.param("callbacks = make\n", id="no-text-to-see"),
    ],
)  # fmt: skip
def test_what_may_be_served_passes(text):
    check_callbacks(ast.parse(text), "callbacks")


def test_what_users_import_brings_no_framework():
    code = "import elastic.callbacks, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "tensorflow", "keras", "numpy", "grpc"} & set(done.stdout.split())
