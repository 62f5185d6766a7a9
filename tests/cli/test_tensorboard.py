"""`elastic tensorboard` of a job of this machine: a real one, and what stands in its way."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest
from support.scraping import free_ports

from elastic.platforms.local.directory import JobDirectory, Submission
from elastic.spec.job import JobSpec
from elastic.telemetry.event_file import EventFile
from elastic.telemetry.meter import Point

PATIENCE_S = 120


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home with the jobs `curves` and `none`; the first writes events."""
    monkeypatch.setenv("ELASTIC_HOME", str(tmp_path))
    for name, folder in (("curves", str(tmp_path / "events")), ("none", "")):
        path = tmp_path / "jobs" / name
        path.mkdir(parents=True)
        spec = JobSpec(
            job_name=name, platform="local", model_zoo="z", model_def="m.C", minibatch_size=1,
            training_data_dir="d", tensorboard_log_dir=folder,
        )  # fmt: skip
        JobDirectory(path).write_submission(spec, Submission("uid", 1.0, {}), "token")
    file = EventFile(tmp_path / "events", 0)
    file.write_point(Point(3, 1.0, (("train/loss", 0.25),)))
    file.close()
    return tmp_path


def test_the_curves_are_served_until_ctrl_c(home):
    port = free_ports()
    command = [sys.executable, "-m", "elastic", "tensorboard", "curves", "--port", str(port)]
    environment = os.environ | {"ELASTIC_PLATFORM": "local"}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            line = process.stdout.readline()
            assert line == (
                f"TensorBoard of job curves: http://127.0.0.1:{port}/ (Ctrl-C ends it)\n"
            ), process.stderr.read()
            address = f"http://127.0.0.1:{port}/data/plugin/scalars/scalars?tag=train/loss&run=."
            with urllib.request.urlopen(address, timeout=PATIENCE_S) as answer:
                [[_, step, value]] = json.loads(answer.read())
            assert (step, value) == (3, 0.25)
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_S) == 130
        finally:
            process.kill()


def test_a_port_in_use(home, run):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        code, _, err = run("tensorboard", "curves", "--platform=local", "--port", port)
    assert code == 2, err
    assert err == (
        f"error: --port {port} cannot be listened at: Address already in use: choose another, "
        "or 0 for a free one\n"
    )


def test_a_job_that_writes_none(home, run):
    code, _, err = run("tensorboard", "none", "--platform=local")
    assert code == 2
    assert err == (
        "error: job 'none' writes no events for TensorBoard: submit it with "
        "--tensorboard_log_dir DIR\n"
    )


def test_no_such_job(home, run):
    code, _, err = run("tensorboard", "curve", "--platform=local")
    assert code == 102
    assert "no job 'curve'" in err


def test_without_the_package_it_says_how_to_get_it(home, run, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    code, _, err = run("tensorboard", "curves", "--platform=local")
    assert code == 2
    assert err == ("error: the package tensorboard is not installed: pip install tensorboard\n")


def test_a_job_that_would_need_it_is_not_submitted(zoo, run, monkeypatch):
    monkeypatch.setattr("elastic.telemetry.board.find_spec", lambda name: None)
    monkeypatch.setenv("ELASTIC_HOME", str(zoo / "home"))
    code, _, err = run(
        "train", "--platform=local", "--model_zoo=zoo", "--model_def=mnist.CustomModel",
        "--training_data_dir=data/train", "--minibatch_size=1", "--tensorboard_log_dir=events",
    )  # fmt: skip
    assert code == 2
    assert "pip install tensorboard, or leave out --tensorboard_log_dir" in err
    assert not (zoo / "home" / "jobs").exists()
