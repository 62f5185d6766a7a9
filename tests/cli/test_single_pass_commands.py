"""`elastic evaluate` and `elastic predict`: which settings they take, and what they say."""

import importlib.util
import re

import pytest
from support.scripted_platform import ScriptedPlatform

from elastic.spec.job import JobSpec, settings
from elastic.spec.platforms import JobKind
from elastic.spec.yaml_text import load_value

COMMON = (
    "--model_zoo=zoo", "--model_def=mnist.CustomModel", "--minibatch_size=10", "--job_name=test",
    "--platform=local",
)  # fmt: skip
EVALUATE = (*COMMON, "--evaluation_data_dir=data/train", "--model=m.safetensors")
PREDICT = (*COMMON, "--prediction_data_dir=data/train", "--model=m.safetensors")
ARGV = {"evaluate": EVALUATE, "predict": PREDICT}


@pytest.fixture
def platform(zoo):
    (zoo / "m.safetensors").write_text("")
    return ScriptedPlatform()


@pytest.mark.parametrize("command", ["evaluate", "predict"])
def test_the_job_is_submitted_with_its_kind(run, platform, command):
    code, out, err = run(command, *ARGV[command], platform=platform)
    assert (code, err) == (0, "")
    assert "job test has been started\n" in out
    assert platform.jobs() == ["test"]
    spec = platform.specs["test"]
    assert spec.kind == command
    assert spec.model.startswith("/")


@pytest.mark.parametrize("command", ["evaluate", "predict"])
def test_a_dry_run_gives_a_file_that_the_command_takes_back(run, platform, zoo, command):
    code, out, err = run(command, *ARGV[command], "--dry_run", platform=platform)
    assert (code, err) == (0, "")
    assert platform.jobs() == []
    assert load_value(out)["kind"] == command
    assert "num_epochs" not in load_value(out)
    (zoo / "job.yaml").write_text(out)
    assert run(command, "--config=job.yaml", "--dry_run")[:2] == (0, out)
    assert JobSpec(**load_value(out)).kind == command


def test_a_job_file_of_another_kind_is_refused(run, zoo):
    (zoo / "job.yaml").write_text("kind: predict\n")
    code, _, err = run("train", "--config=job.yaml", "--dry_run")
    assert code == 2
    assert "job.yaml: kind is predict, and the command is elastic train: use one of them" in err


@pytest.mark.parametrize(("command", "flag", "error"), [
    ("evaluate", "--num-epochs=3",
     "--num-epochs has no meaning for elastic evaluate, only for elastic train: leave it out"),
    ("predict", "--use_async",
     "--use_async has no meaning for elastic predict, only for elastic train: leave it out"),
    ("predict", "--training_data=d",
     "--training_data has no meaning for elastic predict, only for elastic train: leave it out"),
    ("predict", "--output=o",
     "--output has no meaning for elastic predict, only for elastic train: --prediction_outputs "
     "is what it takes"),
    ("evaluate", "--resume",
     "--resume has no meaning for elastic evaluate, only for elastic train and elastic predict: "
     "leave it out"),
    ("evaluate", "--prediction_format=csv",
     "--prediction_format has no meaning for elastic evaluate, only for elastic predict: "
     "leave it out"),
    ("predict", "--prediction_format=xml",
     "--prediction_format is 'xml': expected one of csv, parquet"),
    ("predict", "--prediction_outputs=/p/out.parquet",
     "--prediction_outputs=/p/out.parquet is a folder, for files of --prediction_format=csv: "
     "choose --prediction_format=parquet, or another name"),
    ("predict", "--init_from=c",
     "--model and --init_from both name parameters: leave one out"),
])  # fmt: skip
def test_what_cannot_be_used_is_said(run, zoo, command, flag, error):
    code, out, err = run(command, *ARGV[command], flag, "--dry_run")
    assert (code, out, err) == (2, "", f"error: {error}\n")


def test_a_key_without_meaning_is_said_with_its_file(run, zoo):
    (zoo / "job.yaml").write_text("num_epochs: 3\n")
    _, _, err = run("evaluate", *EVALUATE, "--config=job.yaml", "--dry_run")
    assert err.startswith("error: job.yaml: num_epochs has no meaning for elastic evaluate")


@pytest.mark.parametrize("command", ["evaluate", "predict"])
def test_what_is_missing_is_said(run, command):
    code, _, err = run(command, *COMMON)
    assert code == 2
    what = {"evaluate": "evaluation records", "predict": "records to predict"}[command]
    data = {"evaluate": "--evaluation_data_dir", "predict": "--prediction_data_dir"}[command]
    assert err == f"error: {data} is missing: files, folders, globs or addresses of the {what}\n"
    _, _, err = run(command, *COMMON, f"{data}=data")
    assert err == (
        f"error: nothing says which parameters to {command} with: name a checkpoint with "
        "--init_from, or an exported model with --model\n"
    )


def test_a_model_that_is_not_there_is_said_before_there_is_a_job(run, zoo):
    platform = ScriptedPlatform()
    code, _, err = run("predict", *PREDICT, platform=platform)
    assert (code, platform.jobs()) == (1, [])
    assert err == (
        f"error: there is no {zoo}/m.safetensors to take parameters from: name another path\n"
    )


def test_parquet_without_its_library_names_what_to_install(run, platform, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        "elastic.client.gathering.find_spec",
        lambda name: None if name == "pyarrow" else found(name),
    )
    code, _, err = run("predict", *PREDICT, "--prediction_format=parquet", platform=platform)
    assert (code, platform.jobs()) == (2, [])
    assert err == (
        "error: --prediction_format=parquet needs pyarrow, which is not installed here: install "
        "it with pip install pyarrow, or write csv\n"
    )


class TestInACluster:
    ARGV = (*PREDICT, "--platform=kubernetes", "--image=img:1")

    def test_predictions_need_a_place_that_all_pods_share(self, run, platform):
        code, _, err = run("predict", *self.ARGV, platform=platform)
        assert (code, platform.jobs()) == (2, [])
        assert err.startswith("error: --prediction_outputs is missing: name a folder below")

    def test_a_processor_needs_none(self, run, platform, zoo):
        module = zoo / "zoo" / "mnist.py"
        processor = "class PredictionOutputsProcessor:\n    pass\n"
        module.write_text(module.read_text() + processor)
        assert run("predict", *self.ARGV, platform=platform)[0] == 0

    def test_a_folder_in_the_pod_is_said_to_go_with_it(self, run):
        argv = (*self.ARGV, "--prediction_outputs=/out", "--dry_run")
        assert run("predict", *argv)[2] == (
            "note: below no --volume, so it goes with its pod: --prediction_outputs\n"
        )
        volume = "--volume=claim_name=c,mount_path=/out"
        assert run("predict", *argv, volume)[2] == ""


@pytest.mark.parametrize("kind", list(JobKind))
def test_the_help_has_the_settings_of_the_kind_and_no_others(run, kind):
    code, out, _ = run(kind, "--help")
    assert code == 0
    for setting in settings():
        is_there = re.search(rf"^  (-n, )?--{setting.name}\b", out, re.MULTILINE) is not None
        assert is_there == (setting.is_flag and kind in setting.kinds), setting.name
    needed = f"{kind.data_setting}, "
    assert "[required]" in out.partition(needed)[2][:300]


def test_prediction_settings_are_refused_in_training(run, zoo):
    argv = (*COMMON, "--training_data_dir=data/train", "--prediction_outputs=out", "--dry_run")
    assert run("train", *argv)[2] == (
        "error: --prediction_outputs has no meaning for elastic train, only for elastic predict: "
        "leave it out\n"
    )
