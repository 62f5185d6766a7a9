"""The example of docs/embeddings.md trains, and what it exports is read as the page says."""

import csv
import re
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from support.local_job import LocalJob, make_spec

from elastic.checkpoints.contents import CutRows
from elastic.checkpoints.cuts import Cut, write_cut
from elastic.checkpoints.table_files import write_delta
from elastic.embedding import to_ids
from elastic.frameworks.base import UpdaterState
from elastic.frameworks.keras.updater import _RULES as KERAS_RULES
from elastic.frameworks.torch.updater import _RULES as TORCH_RULES
from elastic.rows.base import Change, Table, TableForm
from elastic.spec.job import settings

PAGE = (Path(__file__).parents[2] / "docs" / "embeddings.md").read_text()
ITEMS = [f"item {number}" for number in range(40)]


def example(word):
    (code,) = re.findall(rf"```python {word}\n(.*?)```", PAGE, re.DOTALL)
    return code


def write_records(path, count=1200):
    """Users of even numbers like the first half of the items, and the others the other."""
    rng = np.random.default_rng(0)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["user", "item", "liked"])
        for user, item in zip(
            rng.integers(10**12, 10**12 + 50, count), rng.integers(0, 40, count), strict=True
        ):
            writer.writerow([user, ITEMS[item], int((user % 2 == 0) == (item < 20))])


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("framework", "export"), [("torch", "model.safetensors"), ("keras", "model.keras")]
)
def test_the_example_learns_and_its_rows_can_be_read(framework, export, tmp_path, monkeypatch):
    name = f"page_{framework}"
    (tmp_path / f"{name}.py").write_text(example(framework))
    write_records(tmp_path / "train.csv")
    spec = make_spec(
        f"{name}.CustomModel",
        tmp_path / "train.csv",
        model_zoo=str(tmp_path),
        evaluation_data_dir=str(tmp_path / "train.csv"),
        minibatch_size=20,
        records_per_task=100,
        # Whose side each item is on is found all at once: in the fifth epoch, or in the seventh.
        num_epochs=12,
        num_workers=2,
        output=str(tmp_path / export),
    )
    # Of processes: as threads, workers that wait for rows leave Keras no thread to update with.
    with LocalJob(spec, tmp_path / "home") as job:
        metrics = job.succeed().metrics
    assert metrics["accuracy"] > 0.95, metrics
    module = {}
    monkeypatch.chdir(tmp_path)
    exec(example("reading").replace("model.safetensors", export), module)
    assert sorted(module["rows"]) == sorted(to_ids(ITEMS).tolist())
    assert {len(row) for row in module["rows"].values()} == {8}
    if framework == "torch":
        check_alone()


def check_alone():
    """What the page computes without this project is what the model has learned."""
    module = {}
    exec(example("alone"), module)
    with Path("train.csv").open(newline="") as file:
        records = list(csv.DictReader(file))[:200]
    scores = [module["score"](int(each["user"]), to_ids([each["item"]])[0]) for each in records]
    liked = [each["liked"] == "1" for each in records]
    assert np.mean((np.array(scores) > 0) == liked) > 0.95


def test_changes_are_read_as_the_page_says(tmp_path, monkeypatch):
    """Beside what the command makes of the same."""
    first, second = {1: 1.0, 2: 2.0, 3: 3.0}, {1: 1.0, 3: 4.0, 5: 5.0}
    form = TableForm(Table("items", 2, "zeros"))
    cuts = []
    for version, by_id in ((1, first), (2, second)):
        ids = np.array(sorted(by_id))
        part = Change(ids, np.array([[by_id[id_]] * 2 for id_ in sorted(by_id)], np.float32))
        rows = CutRows((form,), lambda _, part=part: [part])
        cut = Cut(version, {"w": np.ones(1, np.float32)}, {}, UpdaterState(), None, rows=rows)
        cuts.append(write_cut(tmp_path / "kept", cut))
    write_delta(*cuts, tmp_path / "changes")
    monkeypatch.chdir(tmp_path)
    module = {"pq": pq, "rows": {id_: [value] * 2 for id_, value in first.items()}}
    exec(example("changes"), module)
    assert module["rows"] == {id_: [value] * 2 for id_, value in second.items()}


def test_the_optimizers_that_are_followed_are_those_of_the_page():
    (row,) = re.findall(r"^\| followed \| (.*?) \|", PAGE, re.MULTILINE)
    followed = set(re.findall(r"`(\w+)`", row))
    assert followed == {each.__name__ for each in KERAS_RULES}
    # Of a model with dense parameters, whose gradients are none of its kind.
    assert followed == {each.__name__ for each in TORCH_RULES} - {"SparseAdam"}


def test_settings_that_the_page_names_are_there():
    known = {name for each in settings() for name in (each.name, *each.aliases)}
    known |= {f"no_{name}" for name in known}
    named = set(re.findall(r"`--(\w+)", PAGE))
    assert len(named) >= 10
    assert named <= known
