"""The README's own model and command, as a newcomer would copy them."""

import csv
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from sklearn.datasets import load_iris
from support import warm

from elastic.platforms.local.platform import LocalPlatform

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def elastic(folder, *arguments):
    """Run a command as a newcomer's shell does."""
    program = Path(sys.executable).with_name("elastic")
    return subprocess.run(
        [program, *arguments],
        cwd=folder,
        env=environment_in(folder),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def elastic_again(folder, *arguments):
    """Run a further one, whose start is that of the first."""
    return warm.run(["-m", "elastic", *arguments], folder, environment_in(folder))


def environment_in(folder):
    known = {k: v for k, v in os.environ.items() if k not in ("ELASTIC_PLATFORM", "KUBECONFIG")}
    # A home without a kubeconfig.
    home = {"HOME": str(folder / "home"), "ELASTIC_HOME": str(folder / "home")}
    return {**known, **home, "COLUMNS": "100"}


@pytest.fixture
def folder(tmp_path):
    """What the README assumes: a model and two CSV files, here of iris flowers."""
    (tmp_path / "my_zoo" / "data").mkdir(parents=True)
    (tmp_path / "my_zoo" / "my_model.py").write_text(blocks("python")[0])
    iris = load_iris()
    rows = [[*features, label] for features, label in zip(iris.data, iris.target, strict=True)]
    for name, part in (("train", [r for i, r in enumerate(rows) if i % 5]), ("test", rows[::5])):
        with (tmp_path / "my_zoo" / "data" / f"{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([*iris.feature_names, "species"])
            writer.writerows(part)
    yield tmp_path
    # Nothing is left of it where the command was interrupted.
    platform = LocalPlatform(tmp_path / "home")
    for name in platform.jobs():
        platform.kill(name, 60.0)


def test_the_first_commands_of_ones_own_make_a_folder_and_train_it(folder):
    (block,) = (block for block in blocks("bash") if block.startswith("elastic zoo new"))
    new, train = map(shlex.split, block.splitlines())
    made = elastic(folder, *new[1:])
    assert made.returncode == 0, made.stderr
    assert made.stdout.splitlines()[-1] == shlex.join(train)
    trained = elastic(folder, *train[1:])
    assert trained.returncode == 0, trained.stdout + trained.stderr
    assert float(re.search(r"evaluation: .*accuracy ([\d.]+)", trained.stdout)[1]) >= 0.9
    readme = (folder / "flowers" / "README.md").read_text()
    (result,) = re.findall(r"The trained model is then in `(.*)`", readme)
    assert (folder / "flowers" / result).is_file()
    told = re.findall(r"```sh\n(elastic (?:status|logs|evaluate).*?)```", readme, re.DOTALL)
    assert len(told) == 2
    for line in "".join(told).splitlines():
        done = elastic_again(folder, *shlex.split(line)[1:])
        assert done.returncode == 0, done.stderr
    # Of the evaluation, which was the last.
    (line,) = re.findall(r"^evaluation: .*$", trained.stdout, re.MULTILINE)
    assert line in done.stdout


def test_the_example_trains_and_the_commands_answer(folder):
    (command,) = (block for block in blocks("bash") if block.startswith("elastic train my_zoo"))
    trained = elastic_again(folder, *shlex.split(command.replace("\\\n", " "))[1:])
    assert trained.returncode == 0, trained.stdout + trained.stderr
    assert "epochs 0 to 19, each: 120 records, all counted once" in trained.stdout
    accuracy = float(re.search(r"evaluation: .*accuracy ([\d.]+)", trained.stdout)[1])
    assert accuracy >= 0.9

    table = elastic_again(folder, "status")
    assert re.search(r"my-model\s+Succeeded\s+100%", table.stdout), table.stdout
    one = elastic_again(folder, "status", "my-model")
    assert "Succeeded" in one.stdout
    logs = elastic_again(folder, "logs", "my-model", "-f")
    # `--num_workers 1:2` begins with as many as there are cores.
    assert f"worker-{min(2, os.cpu_count() or 1) - 1}" in logs.stdout
    killed = elastic_again(folder, "kill", "my-model")
    assert killed.returncode == 0, killed.stderr


def test_the_quickstart_loses_a_worker_and_ends_with_the_command_that_shows_its_job(tmp_path):
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    environment.pop("ELASTIC_HOME", None)
    ran = subprocess.run(
        [sys.executable, "-m", "model_zoo.digits.quickstart"],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 worker lost" in ran.stdout, ran.stdout
    assert "Traceback" not in ran.stderr, ran.stderr
    command = ran.stdout.splitlines()[-1].removeprefix("$ ")
    shown = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert shown.stdout.startswith("quickstart  Succeeded"), shown.stderr
