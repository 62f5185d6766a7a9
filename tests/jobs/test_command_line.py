"""`elastic` as people use it, with real jobs behind it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cli.test_processes import Terminal, environment
from support import warm
from support.datasets import MODEL_ZOO, prepared_dir
from support.local_job import LocalJob, make_spec
from support.single_pass import predicted_rows
from support.thread_job import ZOO, ThreadJob, write_records

from elastic.cli.main import main
from elastic.platforms.local.platform import LocalPlatform
from elastic.spec.status import JobPhase

NUM_RECORDS = 200


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ELASTIC_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ELASTIC_PLATFORM", "local")
    yield tmp_path / "home"
    platform = LocalPlatform(tmp_path / "home")
    for name in platform.jobs():
        platform.kill(name, 60.0)


def _elastic(*arguments):
    return [sys.executable, "-P", "-m", "elastic.cli", *map(str, arguments)]


def _run(*arguments):
    done = subprocess.run(
        _elastic(*arguments), env=environment(), capture_output=True, text=True, timeout=600
    )
    return done.returncode, done.stdout, done.stderr


def _run_warm(*arguments):
    """Where it is not about how processes begin."""
    done = warm.run(["-m", "elastic.cli", *arguments], Path.cwd(), environment())
    return done.returncode, done.stdout, done.stderr


def _train(name, delay_ms, epochs):
    return (
        "train", f"--job_name={name}", f"--model_zoo={MODEL_ZOO}",
        "--model_def=counting.counting_torch.CustomModel",
        f"--training_data={prepared_dir('counting', num_records=NUM_RECORDS) / 'train.npz'}",
        "--minibatch_size=8", f"--num_epochs={epochs}",
        f"--model_params=num_records={NUM_RECORDS},delay_ms={delay_ms}",
    )  # fmt: skip


def _job(home, name):
    """The job of that name, to look at its processes."""
    return LocalJob(make_spec("a.B", "data", job_name=name), home)


def test_detached_jobs_side_by_side_outlive_their_terminals(home):
    for name, delay_ms, num_epochs in (("one", 5, 2), ("two", 50, 1000)):
        terminal = Terminal(_elastic(*_train(name, delay_ms, num_epochs), "--detach"), 80)
        terminal.wait_for(f"see it with: elastic status {name} --platform local")
        os.close(terminal._main_fd)
        terminal._process.wait(timeout=300)
    one, two = _job(home, "one"), _job(home, "two")
    one.succeed()
    two.wait_until(lambda status: status.progress.records_done > 0)

    code, out, _ = _run("status", "one")
    assert code == 0
    assert "Succeeded" in out
    assert "epochs 0 to 1, each: 200 records, all counted once" in out
    assert "0 workers lost, 0 worker crashes, 0 master restarts" in out
    code, out, _ = _run("logs", "one", "--role=master")
    assert code == 0
    assert re.search(
        r"EpochEnded: epoch 1: loss \S+, \d+ samples/s, \S+s; "
        rf"{NUM_RECORDS} records, all counted once",
        out,
    )
    assert _run("status")[1].split("\n", 1)[0].split()[:2] == ["JOB", "PHASE"]

    # What it waits for meanwhile goes to standard error.
    assert _run("kill", "two")[:2] == (0, "job two has been stopped: Cancelled\n")
    assert two.processes() == []
    assert _run("status", "two")[0] == 103
    assert _run("kill", "two") == (0, "job two had ended before: Cancelled\n", "")


def test_ctrl_c_stops_the_job_it_follows(home):
    terminal = Terminal(_elastic(*_train("job", 50, 1000)), 80)
    terminal.wait_for("job job has been started")
    job = _job(home, "job")
    terminal.type("\x03")
    shown, code = terminal.end()
    assert code == 130
    assert "job job has been stopped" in shown
    assert job.processes() == []
    assert job.status().phase is JobPhase.CANCELLED


def test_a_closed_terminal_stops_the_job_it_follows(home):
    terminal = Terminal(_elastic(*_train("job", 50, 1000)), 80)
    terminal.wait_for("job job has been started")
    os.close(terminal._main_fd)
    assert terminal._process.wait(timeout=300) == 130
    job = _job(home, "job")
    assert job.processes() == []
    assert job.status().phase is JobPhase.CANCELLED


def test_a_failed_job_is_told_with_its_reason(home, tmp_path):
    (tmp_path / "mine.py").write_text((ZOO / "obedient.py").read_text() + "\nimport not_there\n")
    data = write_records(tmp_path / "train.npz")
    code, out, err = _run_warm(
        "train", "--job_name=job", f"--model_zoo={tmp_path}", "--model_def=mine.CustomModel",
        f"--training_data={data}", "--minibatch_size=8",
    )  # fmt: skip
    message = (
        "module mine cannot be imported: ModuleNotFoundError: No module named 'not_there' "
        f"({tmp_path}/mine.py:"
    )
    assert code == 100
    hint = "see what was written with: elastic logs job --platform local\n"
    assert (message in out.replace("\n", " "), err) == (True, hint)
    assert _run_warm("status", "job")[0] == 100
    _job(home, "job").wait_until_gone()


LOSS = "def loss(labels, predictions):\n    return (labels - predictions).mean()\n"
MODULE = (
    "import torch\n"
    "class CustomModel(torch.nn.Module):\n    pass\n"
    "def optimizer(parameters):\n    return torch.optim.SGD(parameters, 0.1)\n"
    "def dataset_fn(dataset, mode):\n    return dataset\n"
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            MODULE,
            "module mine ({zoo}/mine.py) has no loss: define loss(labels, predictions) that "
            "returns a scalar tensor, or say with --loss which symbol it is",
            id="no-loss",
        ),
        pytest.param(
            MODULE + LOSS.replace("labels, predictions", "predictions, labels"),
            "loss(predictions, labels) ({zoo}/mine.py:8) takes the predictions first, but is "
            "called as loss(labels, predictions): swap its parameters",
            id="loss-the-other-way-round",
        ),
        pytest.param(
            MODULE.replace("dataset, mode", "dataset") + LOSS,
            "dataset_fn(dataset) ({zoo}/mine.py:6) cannot be called as dataset_fn(dataset, mode): "
            "change its parameters",
            id="signature",
        ),
        pytest.param(
            MODULE + "def loss(labels:\n",
            "module mine cannot be imported: SyntaxError: '(' was never closed ({zoo}/mine.py:8)",
            id="syntax",
        ),
        pytest.param(
            MODULE.replace("CustomModel", "CustomModal") + LOSS,
            "module mine ({zoo}/mine.py) has no CustomModel: define it as a keras.Model or "
            "torch.nn.Module class, or as a function that returns one, or name another symbol in "
            "--model_def; did you mean CustomModal?",
            id="no-model",
        ),
        pytest.param(
            None,
            "--model_def mine.CustomModel names the module mine, but neither {zoo}/mine.py nor "
            "{zoo}/mine/__init__.py is there",
            id="no-module",
        ),
    ],
)
def test_a_module_that_breaks_the_contract_starts_nothing(text, message, home, tmp_path, capsys):
    zoo = tmp_path / "zoo"
    zoo.mkdir()
    if text is not None:
        (zoo / "mine.py").write_text(text)
    code = main(
        ["train", f"--model_zoo={zoo}", "--model_def=mine.CustomModel", "--minibatch_size=8",
         "--training_data=data.npz"]
    )  # fmt: skip
    assert (code, *capsys.readouterr()) == (1, "", f"error: {message.format(zoo=zoo)}\n")
    assert not home.exists()


@pytest.mark.usefixtures("home")
def test_tables_are_predicted_with(tmp_path):
    """With rows that have counted as the parameters have."""
    data = prepared_dir("counting", num_records=NUM_RECORDS) / "train.npz"
    model, params = "embedded_counting_torch.CustomModel", {"num_records": NUM_RECORDS}
    spec = make_spec(model, data, model_zoo=str(ZOO), model_params=params, num_epochs=3)
    checkpoint = ThreadJob(spec, tmp_path / "cuts").run().checkpoint
    folder = tmp_path / "predicted"
    code, _, err = _run(
        "predict", "--job_name=p", f"--model_zoo={ZOO}", f"--model_def={model}",
        "--minibatch_size=8", f"--model_params=num_records={NUM_RECORDS}", "--num_workers=1",
        f"--prediction_data={data}", f"--init_from={checkpoint}", f"--prediction_outputs={folder}",
    )  # fmt: skip
    assert code == 0, err
    rows = predicted_rows(folder)
    assert len(rows) == NUM_RECORDS
    # Of rows that began anew it would be 3.
    assert {abs(round(float(row["prediction"]), 3)) for row in rows.values()} == {0.0}
