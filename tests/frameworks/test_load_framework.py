import subprocess
import sys

import pytest

from elastic.errors import ModelDefError
from elastic.frameworks import load_framework


@pytest.mark.parametrize(("name", "extra"), [("torch", "torch"), ("keras", "tensorflow")])
def test_a_missing_framework_names_what_to_install(monkeypatch, name, extra):
    monkeypatch.setitem(sys.modules, name, None)
    for module in [each for each in sys.modules if each.startswith(f"elastic.frameworks.{name}")]:
        monkeypatch.delitem(sys.modules, module)
    with pytest.raises(ModelDefError) as caught:
        load_framework(name)
    assert str(caught.value) == (
        f"the model_def uses {name}, which is not installed here (no module named {name}): "
        f"install it with pip install {extra}"
    )


def test_an_unknown_framework():
    with pytest.raises(ModelDefError, match="there is no framework 'jax'"):
        load_framework("jax")


def run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]


def test_nothing_is_imported_before_it_is_asked_for():
    code = (
        "import sys, elastic.frameworks, elastic.spec.model_check; "
        "print({'torch', 'keras', 'tensorflow'} & set(sys.modules))"
    )
    assert run(code) == "set()"


def test_keras_on_another_backend_is_refused(monkeypatch):
    # As it tells where a module has set KERAS_BACKEND before its import.
    monkeypatch.setattr("keras.backend.backend", lambda: "torch")
    with pytest.raises(ModelDefError) as caught:
        load_framework("keras")
    assert str(caught.value) == (
        "the model_def uses Keras on the backend torch, and only tensorflow is supported: "
        "do not set KERAS_BACKEND in the module"
    )
