"""`elastic train FOLDER`: what is taken from a folder, and what is said about it."""

import os

import pytest
import yaml
from cli.conftest import MODULE
from support.scripted_platform import ScriptedPlatform
from support.statuses import succeeded

HERE = "found no kubeconfig: runs on this machine\n"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder with a model and records, in a working directory of a machine without a cluster."""
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "mine"
    (folder / "data").mkdir(parents=True)
    (folder / "net.py").write_text(MODULE)
    (folder / "data" / "train.csv").write_text("1,2\n")
    return folder


@pytest.fixture
def resolved(run):
    """The settings that a command comes to, and what it says meanwhile."""

    def resolve(*argv):
        code, out, err = run(*argv, "--dry_run")
        assert code == 0, err
        return yaml.safe_load(out), err

    return resolve


def write_settings(folder, **values):
    (folder / "elastic.yaml").write_text(yaml.safe_dump(values, sort_keys=False))


def test_a_folder_is_enough(resolved, folder):
    (folder / "data" / "test.npz").touch()
    settings, said = resolved("train", "mine")
    assert said == (
        "found model net.CustomModel\n"
        "found training records mine/data/train.csv\n"
        "found evaluation records mine/data/test.npz\n"
        "found no minibatch_size: 32 records\n" + HERE
    )
    assert settings["platform"] == "local"
    assert settings["model_zoo"] == str(folder)
    assert settings["model_def"] == "net.CustomModel"
    assert settings["training_data_dir"] == str(folder / "data" / "train.csv")
    assert settings["evaluation_data_dir"] == str(folder / "data" / "test.npz")
    assert settings["minibatch_size"] == 32


def test_it_may_be_the_working_folder(resolved, folder, monkeypatch):
    monkeypatch.chdir(folder)
    settings, _ = resolved("train", ".")
    assert settings["training_data_dir"] == str(folder / "data" / "train.csv")


def test_a_started_job_has_said_what_was_found(run):
    platform = ScriptedPlatform(on_submit=(succeeded(),))
    code, _, err = run("train", "mine", platform=platform)
    assert (code, platform.calls[0]) == (0, ("open", "local"))
    assert err.startswith("found model net.CustomModel\n")


def test_a_flag_wins_over_the_file_and_nothing_is_looked_for_in_vain(resolved, folder):
    (folder / "net.py").unlink()
    write_settings(folder, model_def="other.Net", minibatch_size=8, num_epochs=3)
    settings, said = resolved(
        "train", "mine", "--training_data_dir=here.csv", "--num_epochs=5", "--platform=kubernetes"
    )
    assert said == "found settings in mine/elastic.yaml\n"
    assert (settings["model_def"], settings["minibatch_size"]) == ("other.Net", 8)
    assert (settings["training_data_dir"], settings["num_epochs"]) == ("here.csv", 5)


@pytest.mark.parametrize(("typed", "other"), [("resume", "overwrite"), ("overwrite", "resume")])
def test_of_going_on_and_beginning_anew_the_flag_wins(resolved, folder, typed, other):
    write_settings(folder, **{other: True})
    assert resolved("train", "mine", f"--{typed}")[0].get(other, False) is False
    settings, _ = resolved("train", "mine", f"--{typed}=false")
    assert settings[other] is True
    config = folder / "job.yaml"
    config.write_text(f"{other}: true\n")
    assert (
        resolved("train", "mine", f"--config={config}", f"--{typed}")[0].get(other, False) is False
    )


def test_the_paths_of_its_file_are_meant_from_the_folder(resolved, folder, tmp_path):
    (folder / "more").mkdir()
    (folder / "a.csv").touch()
    write_settings(
        folder, training_data_dir="a.csv,more/*.csv,/abs/c.csv,s3://bucket/d.csv",
        evaluation_data_dir="table-of-my-reader", output="out/", checkpoint_dir="../kept",
        tensorboard_log_dir="/events", minibatch_size=8,
    )  # fmt: skip
    settings, _ = resolved("train", "mine")
    assert settings["training_data_dir"] == (
        f"{folder}/a.csv,{folder}/more/*.csv,/abs/c.csv,s3://bucket/d.csv"
    )
    assert settings["evaluation_data_dir"] == "table-of-my-reader"
    assert settings["output"] == f"{folder}/out/"
    assert settings["checkpoint_dir"] == f"{folder}/../kept"
    assert settings["tensorboard_log_dir"] == "/events"


def test_in_a_cluster_they_are_those_of_the_image(resolved, folder, monkeypatch):
    (folder / "hook.py").touch()
    write_settings(
        folder, evaluation_data_dir="data/new.csv", output="trained", cluster_spec="hook.py",
        checkpoint_dir="/volume/kept", minibatch_size=8,
    )  # fmt: skip
    settings, said = resolved("train", "mine", "--platform=kubernetes")
    assert settings["model_zoo"] == "mine"
    assert settings["training_data_dir"] == "/model_zoo/data/train.csv"
    assert settings["evaluation_data_dir"] == "/model_zoo/data/new.csv"
    assert settings["cluster_spec"] == "mine/hook.py"
    assert (settings["output"], settings["checkpoint_dir"]) == ("", "/volume/kept")
    assert "left out, as it would go with its pod: mine/elastic.yaml: output\n" in said
    assert "found training records /model_zoo/data/train.csv\n" in said


def test_evaluation_and_prediction_take_what_is_theirs(resolved, folder):
    """And the parameters that the training has exported, under another name than its own."""
    write_settings(
        folder, job_name="mine", overwrite=True, evaluation_data_dir="data/train.csv",
        num_epochs=3, minibatch_size=8, output="trained",
    )  # fmt: skip
    (folder / "trained.safetensors").touch()
    (folder / "data" / "predict").mkdir()
    settings, said = resolved("evaluate", "mine")
    assert said == (
        "found settings in mine/elastic.yaml\n"
        "found model net.CustomModel\n"
        "found parameters mine/trained.safetensors\n" + HERE
    )
    assert settings["model"] == str(folder / "trained.safetensors")
    assert settings["job_name"] not in ("", "mine")
    assert not settings["overwrite"]
    settings, said = resolved("predict", "mine", "--init_from=checkpoints")
    assert settings["prediction_data_dir"] == str(folder / "data" / "predict")
    assert settings["model"] == ""


def test_what_is_not_trained_yet_is_no_model(run, folder):
    write_settings(folder, output="trained", evaluation_data_dir="data/train.csv")
    code, _, err = run("evaluate", "mine")
    assert code == 2
    assert err.endswith(
        "error: mine/trained is not there yet: `elastic train mine` exports it; or name a "
        "checkpoint with --init_from, or an exported model with --model\n"
    )


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("train", "there"), "there is no folder there: name the one of the model, or begin one "
                             "with `elastic zoo new there`"),
        (("train", "mine/net.py"), "mine/net.py is a file, and `elastic train` takes a folder: a "
                                   "job file is given as --config mine/net.py"),
        (("predict", "mine"), "there is no mine/data/predict.*: put the records to predict there, "
                              "or name them with --prediction_data_dir"),
    ],
)  # fmt: skip
def test_what_is_not_there_is_named(run, argv, message):
    code, out, err = run(*argv)
    assert (code, out, err) == (2, "", f"error: {message}\n")


def test_two_files_of_records_are_not_chosen_from(run, folder):
    (folder / "data" / "train.npz").touch()
    (folder / "data" / ".train.csv.swp").touch()
    code, _, err = run("train", "mine")
    assert code == 2
    assert err == (
        "error: mine/data holds train.csv and train.npz: choose the training records with "
        "--training_data_dir\n"
    )
    assert run("train", "mine", "--training_data_dir=mine/data/train.csv", "--dry_run")[0] == 0


def test_records_that_may_not_be_looked_at_are_told(run, folder):
    for path in (folder, *folder.parents):
        if path.stat().st_uid == os.getuid():
            path.chmod(path.stat().st_mode | 0o055)
    (folder / "data").chmod(0o000)
    # What is imported late may lie where root alone may look.
    run("train", "mine", "--dry_run")
    uid = os.geteuid()
    if uid == 0:
        os.seteuid(65534)
    try:
        code, _, err = run("train", "mine")
    finally:
        os.seteuid(uid)
        (folder / "data").chmod(0o755)
    assert code == 2
    assert err.startswith("error: mine/data cannot be looked into (Permission denied): mend")


def test_a_wrong_file_is_told_before_anything_is_looked_for(run, folder):
    (folder / "net.py").unlink()
    write_settings(folder, minibatch=3, num_epoch=3)
    code, _, err = run("train", "mine")
    assert code == 2
    assert err.splitlines()[0] == "error: 2 settings cannot be used:"
    assert "mine/elastic.yaml: unknown key num_epoch: did you mean num_epochs?" in err


# -- which platform is meant where nobody names one


@pytest.mark.parametrize(
    ("environment", "argv", "platform"),
    [
        ({}, (), "local"),
        ({"KUBECONFIG": "/none"}, (), "kubernetes"),
        ({"KUBECONFIG": "/none", "ELASTIC_PLATFORM": "local"}, (), "local"),
        ({"KUBECONFIG": "/none"}, ("--platform=local",), "local"),
        ({"ELASTIC_PLATFORM": "kubernetes"}, (), "kubernetes"),
        ({}, ("--platform=kubernetes",), "kubernetes"),
        # Only a cluster has these.
        ({}, ("--kubeconfig=x",), "kubernetes"),
        ({}, ("--context=x",), "kubernetes"),
        ({}, ("-n", "team"), "kubernetes"),
    ],
)
@pytest.mark.parametrize("command", ["train", "status"])
def test_no_kubeconfig_means_this_machine(
    run, resolved, monkeypatch, command, environment, argv, platform
):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    if command == "train":
        settings, said = resolved("train", "mine", *argv)
        assert settings["platform"] == platform
        is_found = platform == "local" and not (environment or argv)
        assert said.endswith(HERE) == is_found
    else:
        opened = ScriptedPlatform()
        assert run("status", *argv, platform=opened) == (0, "no jobs\n", "")
        assert opened.calls[0] == ("open", platform)


def test_a_kubeconfig_in_the_home_means_its_cluster(resolved, tmp_path):
    (tmp_path / "home" / ".kube").mkdir(parents=True)
    (tmp_path / "home" / ".kube" / "config").touch()
    assert resolved("train", "mine")[0]["platform"] == "kubernetes"


def test_the_doctor_says_why_it_looks_at_this_machine(run):
    code, out, _ = run("doctor")
    assert code == 0
    assert out.startswith("skip  cluster: none is configured, so jobs run on this machine\n")
    assert "home: jobs are kept in" in out
