"""The commands of docs/jobs.md, with the README's model and data of its form."""

import csv
import json
import os
import re
import shlex
from pathlib import Path

import pytest
from sklearn.datasets import load_iris
from support import warm

from elastic.data.predictions import MANIFEST
from elastic.platforms.local.directory import default_home
from elastic.platforms.local.platform import LocalPlatform

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "jobs.md").read_text()
MODEL = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[0]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "my_zoo" / "data").mkdir(parents=True)
    (tmp_path / "my_zoo" / "my_model.py").write_text(MODEL)
    iris = load_iris()
    rows = [[*features, label] for features, label in zip(iris.data, iris.target, strict=True)]
    for name, part in (("train", [r for i, r in enumerate(rows) if i % 5]), ("test", rows[::5])):
        with (tmp_path / "my_zoo" / "data" / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([[*iris.feature_names, "species"], *part])
    yield tmp_path
    platform = LocalPlatform(tmp_path / "home")
    for name in platform.jobs():
        platform.kill(name, 60.0)


@pytest.mark.sampled(2)
def test_the_commands_do_what_the_guide_says(folder):
    said = []
    environment = {"ELASTIC_HOME": str(folder / "home"), "ELASTIC_PLATFORM": "local"}
    for block in re.findall(r"```bash\n(.*?)```", GUIDE, re.DOTALL):
        command = ["-m", *shlex.split(block.replace("\\\n", " "))]
        done = warm.run(command, folder, os.environ | environment)
        assert done.returncode == 0, done.stdout + done.stderr
        said.append(done.stdout)
    trained, evaluated, predicted = said
    (line,) = re.findall(r"^evaluation: .*$", trained, re.MULTILINE)
    assert line in evaluated
    assert f"predictions: {folder}/predictions\n" in predicted
    listed = re.findall(r"^predictions/(\S+)$", GUIDE, re.MULTILINE)
    assert sorted(listed) == sorted(path.name for path in (folder / "predictions").iterdir())
    manifest = json.loads((folder / "predictions" / MANIFEST).read_text())
    assert (manifest["records"], manifest["predictions"]) == (30, 30)
    first = (folder / "predictions" / listed[0]).read_text().splitlines()
    assert first[0] == "shard,index,prediction_0,prediction_1,prediction_2"
    assert len(first) == 11

    # The page's last section: what is kept of a job, and goes with it.
    kept = re.findall(r"^\| `(\S+)` \|", GUIDE.partition("## Where jobs are kept")[2], re.MULTILINE)
    assert len(kept) == 5
    # It has no embeddings, and so no Redis of its own.
    kept.remove("redis-0/")
    job = folder / "home" / "jobs" / "my-model-kept"
    for name in kept:
        assert (job / name).is_dir() if name.endswith("/") else (job / name).is_file()
    # Each of the three has its results elsewhere.
    command = ["-m", "elastic", "prune", "--older_than=0s", "--yes"]
    pruned = warm.run(command, folder, os.environ | environment)
    assert pruned.returncode == 0, pruned.stderr
    assert pruned.stdout.splitlines()[-1] == "3 jobs removed"
    assert not job.exists()
    assert (folder / "my_model.safetensors").is_file()
    assert any((folder / "checkpoints").iterdir())


def test_jobs_are_kept_where_the_guide_says(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("ELASTIC_HOME", raising=False)
    assert "`~/.elastic/jobs/NAME`" in GUIDE
    assert default_home() == tmp_path / ".elastic"
    monkeypatch.setenv("ELASTIC_HOME", "/scratch/elastic")
    assert default_home() == Path("/scratch/elastic")
