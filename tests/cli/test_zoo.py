"""`elastic zoo`: the image of a model_zoo step by step."""

import io
import os
import subprocess
import uuid
from contextlib import closing
from pathlib import Path

import pytest
from rich.console import Console

from elastic.cli import zoo
from elastic.platforms.images.context import TEMPLATE_PATH
from elastic.spec.status import ImageProgress
from elastic.telemetry.progress import (
    LiveImageDisplay,
    PlainImageDisplay,
    open_image_display,
)

ROOT = Path(__file__).parents[2]


@pytest.fixture
def registry(no_cluster):
    address = os.environ.get("ELASTIC_TEST_REGISTRY")
    if not address:
        pytest.skip("needs a Docker engine and a registry: set ELASTIC_TEST_REGISTRY")
    return address


@pytest.fixture
def client(registry):
    from docker import APIClient

    with closing(APIClient(timeout=600)) as client:
        yield client


def test_init_writes_a_recipe_with_the_defaults_that_are_asked_for(run, tmp_path):
    zoo = tmp_path / "zoo"
    zoo.mkdir()
    code, out, err = run("zoo", "init", zoo, "--image-base=base:1", "--extra_pypi_index=http://i")
    assert (code, err) == (0, "")
    names = ("elastic.Dockerfile", "requirements.txt", ".dockerignore")
    assert out.splitlines()[:3] == [f"wrote {zoo / name}" for name in names]
    recipe = (zoo / "elastic.Dockerfile").read_text().splitlines()
    template = TEMPLATE_PATH.read_text().splitlines()
    changed = [(old, new) for old, new in zip(template, recipe, strict=True) if old != new]
    assert changed == [
        ("ARG IMAGE_BASE=python:3.11-slim", "ARG IMAGE_BASE=base:1"),
        ("ARG EXTRA_PYPI_INDEX=", "ARG EXTRA_PYPI_INDEX=http://i"),
    ]


@pytest.mark.parametrize("name", ["mdoel_zoo", "a" * 300])
def test_init_makes_no_folder_of_a_name_that_was_mistyped(run, tmp_path, name):
    zoo = tmp_path / name
    code, out, err = run("zoo", "init", zoo)
    assert (code, out) == (2, "")
    assert err == (
        f"error: MODEL_ZOO {zoo} is no folder: name the one that holds the model, "
        f"or begin one with `elastic zoo new {zoo}`\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_init_leaves_alone_what_is_there(run, tmp_path):
    (tmp_path / "requirements.txt").write_text("six\n")
    assert run("zoo", "init", tmp_path)[0] == 0
    assert (tmp_path / "requirements.txt").read_text() == "six\n"
    code, out, err = run("zoo", "init", tmp_path)
    recipe = tmp_path / "elastic.Dockerfile"
    assert (code, out) == (2, "")
    assert err == f"error: {recipe} is there already: edit it, or remove it for a new one\n"


@pytest.mark.parametrize("name", ["none", "a" * 300])
def test_a_folder_that_is_none(run, tmp_path, name):
    code, out, err = run("zoo", "build", tmp_path / name)
    assert (code, out) == (2, "")
    assert err == (
        f"error: --model_zoo {tmp_path}/{name} is no folder: name the one that holds the model\n"
    )


@pytest.fixture
def asked(monkeypatch):
    """The framework of each image that was to be built."""
    frameworks = []

    def keep(request, *_):
        frameworks.append(request.framework and request.framework.module)
        return "elastic:1"

    monkeypatch.setattr(zoo, "build", keep)
    return frameworks


def test_the_image_has_the_framework_of_the_models(run, tmp_path, asked):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "model.py").write_text("import numpy\nfrom torch import nn\n")
    (tmp_path / "two.py").write_text("import keras, tensorflow as tf\n")
    (tmp_path / "half.py").write_text("import torch as (\n")
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "x.py").write_text("import keras\n")
    (tmp_path / ".dockerignore").write_text("env\n")
    (tmp_path / "gone.py").symlink_to("none.py")
    code, _, err = run("zoo", "build", tmp_path, "--model_def=one.model.Net")
    assert (code, err) == (0, "")
    code, _, err = run("zoo", "build", tmp_path)
    assert (code, err) == (0, (
        f"note: the modules of {tmp_path} import tensorflow and torch, and none of them is "
        "installed where the base lacks it: choose by --model_def, or put it into "
        "requirements.txt\n"
    ))  # fmt: skip
    (tmp_path / "two.py").unlink()
    assert run("zoo", "build", tmp_path)[0] == 0
    assert asked == ["torch", None, "torch"]


def test_no_engine(run, tmp_path):
    code, out, err = run("zoo", "build", tmp_path, "--docker_base_url=unix:///no/such.sock")
    assert (code, out) == (1, "")
    assert err == (
        "error: no Docker engine can be used at unix:///no/such.sock: "
        "[Errno 2] No such file or directory\n"
        "start it, or name another with --docker_base_url or DOCKER_HOST; "
        "a ready image runs without an engine: --image\n"
    )


def test_a_command_that_zoo_does_not_have(run):
    code, _, err = run("zoo", "bild")
    assert code == 2
    assert "No such command" in err


@pytest.mark.cluster
def test_build_and_push_step_by_step(run, tmp_path, client, registry):
    (tmp_path / "model.py").write_text("import torch\n")
    (tmp_path / "elastic.Dockerfile").write_text("FROM scratch\nCOPY model_zoo/ /model_zoo/\n")
    name = f"{registry}/elastic-test/{uuid.uuid4().hex}:v1"
    code, out, err = run("zoo", "build", tmp_path, f"--image={name}")
    assert (code, out) == (0, f"{name}\n"), err
    content_name = err.splitlines()[0].split()[2]
    try:
        assert err.startswith(f"image: building {content_name} from {tmp_path}: 1 files, 13 bytes")
        assert content_name in client.inspect_image(name)["RepoTags"]
        code, out, err = run("zoo", "push", name)
        assert (code, out) == (0, f"{name}\n"), err
        lines = err.splitlines()
        assert lines[0] == f"image: pushing {name}"
        assert lines[-1].startswith(f"image: pushed {name} in ")
        assert client.inspect_distribution(name)["Descriptor"]["digest"]
    finally:
        client.remove_image(name)
        client.remove_image(content_name)


@pytest.mark.cluster
def test_the_base_with_a_data_set(client, tmp_path):
    """`images/build_all.sh` makes what the examples train on."""
    build = [ROOT / "images" / "build_all.sh", "--only", "ci", "--base", "elastic-base:ci"]
    done = subprocess.run(build, cwd=tmp_path, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    program = (
        "import glob, numpy\n"
        "for path in sorted(glob.glob('/data/*/*/*.npz')):\n"
        "    print(path, *numpy.load(path)['image'].shape)\n"
    )
    container = client.create_container("elastic:ci", ["python", "-c", program], user="65532")
    try:
        client.start(container)
        assert client.wait(container, timeout=60)["StatusCode"] == 0
        lines = client.logs(container).decode().splitlines()
    finally:
        client.remove_container(container, force=True)
    assert lines == [
        "/data/digits/test/test.npz 359 8 8",
        "/data/digits/train/train.npz 1438 8 8",
        "/data/mnist/test/test.npz 359 28 28",
        "/data/mnist/train/train.npz 1438 28 28",
    ]


def test_an_unknown_base_image_is_said_before_anything_is_built():
    script = ROOT / "images" / "build_all.sh"
    done = subprocess.run([script, "--only", "mars"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "unknown image mars: choose torch, keras, ci or controller\n"


# -- what is shown


def test_plain_lines_tell_steps_and_now_and_then_their_output():
    stream, now_s = io.StringIO(), [0.0]
    display = PlainImageDisplay(stream, lambda: now_s[0])
    with display:
        display.show(ImageProgress("pushing x"))
        for now_s[0] in (1.0, 2.5, 3.0, 4.6):
            display.show(ImageProgress(f"{now_s[0]}", 0.5, is_detail=True))
        display.show(ImageProgress("pushed x", 1.0))
    assert stream.getvalue() == "image: pushing x\nimage: 2.5\nimage: 4.6\nimage: pushed x\n"


def test_a_terminal_keeps_the_steps_and_not_the_bar():
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=60, color_system=None)
    with LiveImageDisplay(console) as display:
        display.show(ImageProgress("building x"))
        display.show(ImageProgress("a line of pip", 0.5, is_detail=True))
    text = stream.getvalue()
    first, bar = text.replace("\x1b[?25l", "").split("\n")[:2]
    assert first == "image: building x"
    # Half of the bar, then what is done, and at the end the line is erased.
    assert bar.count("━") >= 12
    assert bar.rstrip().endswith("a line of pip")
    assert text.endswith("\x1b[?25h\r\x1b[1A\x1b[2K")


def test_a_pipe_gets_plain_lines():
    assert isinstance(open_image_display(io.StringIO()), PlainImageDisplay)
