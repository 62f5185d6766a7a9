"""The plain loops that the benchmarks divide by train what they are given."""

import json
import subprocess
import sys

import pytest
from support.datasets import MODEL_ZOO, prepared_dir

BASELINES = MODEL_ZOO.parent / "benchmarks" / "baselines"
DDP = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]


def run_baseline(command, model_def, data, *options):
    arguments = ["--model_zoo", MODEL_ZOO, "--model_def", model_def, "--data", data]
    done = subprocess.run(
        [sys.executable, *command, *arguments, "--minibatch_size", "32", *options],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("command", "model_def"),
    [
        pytest.param([BASELINES / "plain_torch.py"], "digits.digits_torch.CustomModel", id="torch"),
        pytest.param(
            [BASELINES / "plain_keras.py"], "digits.digits_keras.custom_model", id="keras"
        ),
        pytest.param(
            [*DDP, BASELINES / "ddp_torch.py"], "digits.digits_torch.CustomModel", id="ddp"
        ),
    ],
)
def test_baseline_trains_and_tells_its_speed(command, model_def):
    data = prepared_dir("digits") / "train.npz"
    result = run_baseline(command, model_def, data, "--epochs", "3", "--model_params", "channels=8")
    # An untrained model is at ln 10 = 2.3.
    assert result["final_loss"] < 0.8
    records_per_epoch = 1438 // result.get("world_size", 1) * result.get("world_size", 1)
    counted = result["seconds_per_epoch"] * result["samples_per_s"]
    assert counted == pytest.approx(records_per_epoch)


def test_steps_bound_an_epoch():
    result = run_baseline(
        [BASELINES / "plain_torch.py"],
        "counting.counting_torch.CustomModel",
        prepared_dir("counting", num_records=256) / "train.npz",
        *("--model_params", "num_records=256", "--steps", "4"),
    )
    assert result["seconds_per_epoch"] == pytest.approx(4 * result["seconds_per_step"])
