import subprocess
import sys
import zipfile
from importlib import metadata
from io import BytesIO
from pathlib import Path

import elastic
from elastic.platforms.images.context import (
    Framework,
    framework_of,
    frameworks_in,
    wheel_of_this_elastic,
)
from elastic.spec.values import DISTRIBUTION


def test_pip_installs_it_and_it_is_the_elastic_that_runs(tmp_path):
    wheel = wheel_of_this_elastic()
    path = tmp_path / wheel.name
    path.write_bytes(wheel.content)
    target = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "--no-deps", "--quiet", "--target", target]
    subprocess.run([*install, path], check=True, timeout=120)
    source = Path(elastic.__file__).parent
    for file in (p for p in source.rglob("*") if p.is_file() and "__pycache__" not in p.parts):
        installed = target / "elastic" / file.relative_to(source)
        assert installed.read_bytes() == file.read_bytes()
    info = metadata.Distribution.at(target / f"elastic_jobs-{elastic.__version__}.dist-info")
    assert (info.name, info.version) == (DISTRIBUTION, elastic.__version__)
    assert info.entry_points["elastic"].value == "elastic.__main__:main"
    assert sorted(info.requires) == list(wheel.requirements)
    assert info.metadata["Requires-Python"] == ">=3.11"


def test_equal_code_makes_equal_bytes():
    assert wheel_of_this_elastic().content == wheel_of_this_elastic().content


def test_it_brings_its_recipe_and_no_leftovers():
    with zipfile.ZipFile(BytesIO(wheel_of_this_elastic().content)) as archive:
        names = archive.namelist()
    assert "elastic/platforms/images/model_zoo.Dockerfile" in names
    assert [name for name in names if name.endswith(".pyc") or "__pycache__" in name] == []


def test_it_needs_what_elastic_needs_and_no_extras():
    requirements = wheel_of_this_elastic().requirements
    assert any(line.startswith("grpcio") for line in requirements)
    assert [line for line in requirements if line.startswith(("torch", "tensorflow", "ruff"))] == []


def test_a_module_that_cannot_be_read_imports_nothing(zoo, as_nobody):
    (zoo / "torch.py").write_text("import torch")
    (zoo / "torch.py").chmod(0)
    (zoo / "zeros.py").write_bytes(b"import torch\0")
    (zoo / "folder.py").mkdir()
    names = ("torch.py", "zeros.py", "folder.py")
    with as_nobody(zoo.parent):
        assert frameworks_in(Path("zoo", name) for name in names) == []


def test_the_framework_is_that_of_the_model(tmp_path):
    models = {
        "a": "import torch",
        "b": "from keras import layers",
        "c": "import tensorflow as tf, keras",
        "d": "import numpy",
        "e": "import torch, keras",
        "f": "from .torch import x",
        "g": "def (",
    }
    for name, text in models.items():
        (tmp_path / f"{name}.py").write_text(text)
    found = {name: framework_of(tmp_path, f"{name}.Model") for name in models}
    keras = Framework("tensorflow", "tensorflow-cpu>=2.18")
    assert found == {
        "a": Framework("torch", "torch>=2.4"),
        "b": keras,
        "c": keras,
        **dict.fromkeys("defg"),
    }
