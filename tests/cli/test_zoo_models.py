"""`elastic zoo list`, `show` and `new`."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from io import BytesIO
from pathlib import Path

import pytest
import yaml

import elastic
from elastic.cli.zoo import find_model, zoo_models, zoo_root
from elastic.platforms.images.context import wheel_of_this_elastic

FILES = ["README.md", "model.py", "elastic.yaml", "prepare_data.py", ".dockerignore"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_list_fits_a_narrow_terminal_and_begins_with_the_starter(run):
    code, out, err = run("zoo", "list")
    assert (code, err) == (0, "")
    title, first, *others = out.splitlines()
    assert title.split() == ["MODEL", "FRAMEWORKS", "LEARNS"]
    assert first.split()[:3] == ["starter", "keras,", "torch"]
    assert [line.split()[0] for line in others] == sorted(
        model.name for model in zoo_models() if model.name != "starter"
    )
    assert max(map(len, out.splitlines())) <= 80


def test_list_as_json(run):
    rows = json.loads(run("zoo", "list", "-o", "json")[1])
    assert {row["name"]: row["frameworks"] for row in rows}["iris"] == ["keras", "torch"]


def test_show_tells_symbols_parameters_and_readme(run):
    code, out, err = run("zoo", "show", "digits_cnn")
    assert (code, err) == (0, "")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "yours: elastic zoo new FOLDER --template digits_cnn" in lines
    assert "keras: --model_def digits_cnn.digits_cnn_keras.custom_model" in lines
    assert "custom_model(channels=16, shift=1)" in out
    assert "CustomModel(channels=16)" in out
    assert "optimizer(parameters)" in out
    assert "# Images, with augmentation and batch normalisation" in lines


@pytest.mark.parametrize("command", [["show"], ["new", "mine", "--template"]])
@pytest.mark.parametrize(
    ("name", "advice"),
    [("irs", "did you mean iris?"), ("../digits", "did you mean digits?"), ("zzz", "there are ")],
)
def test_an_unknown_model(run, folder, command, name, advice):
    code, out, err = run("zoo", *command, name)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: elastic comes with no model {name}: {advice}")
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("framework", ["torch", "keras"])
def test_new_prints_a_command_that_can_be_typed_at_once(run, folder, framework):
    code, out, err = run("zoo", "new", "Flowers.1", "--framework", framework)
    assert (code, err) == (0, "")
    assert sorted(path.name for path in (folder / "Flowers.1").iterdir()) == sorted(
        [*FILES, "data"]
    )
    command = out[out.index("elastic train") :]
    assert command == "elastic train Flowers.1 --platform local\n"
    readme = (folder / "Flowers.1" / "README.md").read_text()
    assert command.strip() in readme
    code, spec, err = run(*shlex.split(command)[1:], "--dry_run")
    assert (code, err) == (0, "found settings in Flowers.1/elastic.yaml\n")
    settings = yaml.safe_load(spec)
    assert settings["job_name"] == "flowers-1"
    assert settings["training_data_dir"] == str(folder / "Flowers.1" / "data" / "train.csv")
    assert settings["model_def"] == {"torch": "model.CustomModel"}.get(
        framework, "model.custom_model"
    )


@pytest.mark.parametrize("variable", ["ELASTIC_PLATFORM", None])
def test_the_command_is_shorter_where_this_machine_is_meant_anyway(run, monkeypatch, variable):
    if variable is None:
        monkeypatch.delenv("KUBECONFIG")
    else:
        monkeypatch.setenv(variable, "local")
    assert run("zoo", "new", "my flowers")[1].endswith("\nelastic train 'my flowers'\n")


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("model", "framework"), [(m.name, f) for m in zoo_models() for f in m.entry.models]
)
def test_every_model_is_a_template(run, folder, model, framework):
    code, out, err = run("zoo", "new", "mine", "--template", model, "--framework", framework)
    assert (code, err) == (0, "")
    code, spec, _ = run(*shlex.split(out[out.index("elastic train") :])[1:], "--dry_run")
    assert code == 0
    settings = yaml.safe_load(spec)
    entry = find_model(model).entry
    assert {name: settings[name] for name in entry.settings} == entry.settings
    # Without it, the job's pods could not read the records.
    has_needs = (folder / "mine" / "requirements.txt").exists()
    assert has_needs == entry.train.endswith(".parquet")


@pytest.mark.parametrize(
    ("folder_name", "job_name"),
    [("2_models", "models"), ("X" * 60, "x" * 40), ("9", "job"), ("é", "job"), ("a/b_2", "b-2")],
)
def test_the_job_is_named_after_the_folder(run, folder_name, job_name):
    out = run("zoo", "new", folder_name)[1]
    code, spec, _ = run(*shlex.split(out[out.index("elastic train") :])[1:], "--dry_run")
    assert code == 0
    assert yaml.safe_load(spec)["job_name"] == job_name


def test_a_recipe_for_the_image_leaves_the_records_in(run, folder):
    run("zoo", "new", "mine")
    before = (folder / "mine" / ".dockerignore").read_text()
    assert "data" not in before
    assert run("zoo", "init", "mine")[0] == 0
    assert (folder / "mine" / ".dockerignore").read_text() == before


def test_new_overwrites_nothing(run, folder):
    assert run("zoo", "new", "mine")[0] == 0
    (folder / "mine" / "model.py").write_text("my work")
    before = sorted(folder.rglob("*"))
    code, out, err = run("zoo", "new", "mine", "--framework", "keras")
    assert (code, out) == (2, "")
    assert err == "error: mine is there already, and nothing is overwritten: choose another name\n"
    assert (folder / "mine" / "model.py").read_text() == "my work"
    assert sorted(folder.rglob("*")) == before


def test_new_takes_no_file_for_a_folder_and_fills_an_empty_one(run, folder):
    (folder / "file").write_text("x")
    assert run("zoo", "new", "file")[2].startswith("error: file is there already")
    assert run("zoo", "new", "file/inner")[0] == 2
    (folder / "empty").mkdir()
    assert run("zoo", "new", "empty")[0] == 0


def test_new_where_nothing_can_be_written(run):
    code, _, err = run("zoo", "new", "/proc/mine")
    assert code == 2
    assert err.startswith("error: /proc/mine cannot be written to (")


def test_data_that_needs_a_package_is_left_to_the_user(run, folder, monkeypatch):
    entry = find_model("iris").entry
    lacking = entry.model_copy(update={"needs": ("scikit-learn", "no-such-package")})
    found = find_model("iris").model_copy(update={"entry": lacking})
    monkeypatch.setattr("elastic.cli.zoo.find_model", lambda name: found)
    code, out, _ = run("zoo", "new", "mine", "--template", "iris")
    assert code == 0
    assert not (folder / "mine" / "data").exists()
    lines = out.splitlines()
    first = lines.index("pip install no-such-package")
    assert lines[first + 1] == "python mine/prepare_data.py mine/data"
    assert lines[first + 2].startswith("elastic train ")


def test_records_that_cannot_be_made_are_an_error(run, folder, monkeypatch):
    found = find_model("starter")
    broken = folder / "broken"
    broken.mkdir()
    for path in found.folder.glob("*.py"):
        (broken / path.name).write_text(path.read_text())
    (broken / "prepare_data.py").write_text("raise ValueError('no disk')\n")
    monkeypatch.setattr(
        "elastic.cli.zoo.find_model",
        lambda name: found.model_copy(update={"folder": broken}),
    )
    code, _, err = run("zoo", "new", "mine")
    assert code == 1
    assert err == (
        "error: mine/prepare_data.py made no records: ValueError: no disk\n"
        "run it again: python mine/prepare_data.py mine/data\n"
    )


def test_an_installed_elastic_finds_the_models_and_sends_none_of_them_to_pods(tmp_path):
    """As a wheel lays it out, with nothing beside the package."""
    site = tmp_path / "site"
    with zipfile.ZipFile(BytesIO(wheel_of_this_elastic().content)) as archive:
        archive.extractall(site)

    def python(*arguments):
        return subprocess.run(
            [sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=60,
            env={**os.environ, "PYTHONPATH": str(site)}, check=False,
        )  # fmt: skip

    without = python("-m", "elastic", "zoo", "list")
    assert without.returncode == 1
    assert without.stderr.startswith(f"error: the elastic at {site}/elastic has come without its")
    shutil.copytree(zoo_root(), site / "elastic" / "model_zoo")
    listed = python("-m", "elastic", "zoo", "list")
    assert "text_classifier" in listed.stdout, listed.stderr
    sent = python("-c", SENT_FILES)
    assert "elastic/cli/zoo.py" in sent.stdout.split(), sent.stderr
    assert "elastic/model_zoo/" not in sent.stdout


SENT_FILES = """\
import io, zipfile
from elastic.platforms.images.context import wheel_of_this_elastic
print(*zipfile.ZipFile(io.BytesIO(wheel_of_this_elastic().content)).namelist(), sep="\\n")
"""


def test_a_release_lays_the_models_where_they_are_looked_for():
    path = Path(elastic.__file__).parents[1] / "pyproject.toml"
    wheel = tomllib.loads(path.read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["only-include"] == ["elastic", "model_zoo"]
    assert wheel["sources"] == {"model_zoo": "elastic/model_zoo"}
