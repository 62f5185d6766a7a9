"""What the version before has left of a job, on one machine and in a cluster, is gone on with.

`support/older` is what elastic wrote on 2026-11-23: the folder of a job of the model `numbered`,
which two workers ended at `max_steps=13`, within the third of its three epochs of 40 records, and
the ConfigMaps of one like it. Neither is ever made anew.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from support.local_job import LocalJob
from support.statuses import each_epoch
from support.thread_job import obedient_spec

from elastic.checkpoints.cuts import list_cuts, read_cut
from elastic.cli.main import main
from elastic.platforms.base import JobControl
from elastic.platforms.kubernetes.objects.manifests import (
    control_of,
    last_words_of,
    spec_of,
    status_of,
    submission_of,
)
from elastic.spec.job import WorkerRange
from elastic.spec.status import JobPhase

OLDER = Path(__file__).parents[1] / "support" / "older"
NUM_RECORDS = 40


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Where jobs are kept, with that of the version before."""
    folder = tmp_path / "jobs" / "counting"
    shutil.copytree(OLDER / "counting", folder)
    (folder / "logs").mkdir()
    monkeypatch.setenv("ELASTIC_HOME", str(tmp_path))
    monkeypatch.setenv("ELASTIC_PLATFORM", "local")
    return tmp_path


def test_a_job_is_resumed_within_its_epoch(home):
    (path,) = list_cuts(home / "jobs" / "counting" / "cuts")
    counts = read_cut(path).parameters["counts"]
    assert (counts.min(), counts.max(), counts.sum()) == (2, 3, 104)
    spec = obedient_spec(
        "numbers", NUM_RECORDS, model_def="numbered.CustomModel",
        data_reader_params={"num_records": NUM_RECORDS}, job_name="counting", num_epochs=3,
        minibatch_size=4, num_workers="1:2", resume=True,
    )  # fmt: skip
    with LocalJob(spec, home) as job:
        status = job.succeed()
        np.testing.assert_array_equal(job.parameters()["counts"], 3)
    assert each_epoch(status) == [(NUM_RECORDS, NUM_RECORDS, 0)] * 3
    assert [event.kind for event in status.events].count("TrainingEnded") == 1
    # Each update adds one to what it counts, and the loss of a record is what it had before.
    assert [epoch.loss for epoch in status.epochs] == [0, -1, -2]


def test_its_status_is_shown(home, capsys):
    assert main(["status", "counting"]) == 0
    text = capsys.readouterr().out
    assert "Succeeded" in text
    assert "training ended after 13 updates: max_steps=13" in text
    assert main(["status", "counting", "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["phase"], told["progress"]["records_done"]) == ("Succeeded", 104)


def test_its_config_maps_are_read():
    record = json.loads((OLDER / "record.json").read_text())
    status = json.loads((OLDER / "status.json").read_text())
    spec = spec_of(record)
    assert (spec.job_name, spec.max_steps) == ("counting", 13)
    assert spec.num_workers == WorkerRange(minimum=1, maximum=2)
    submission = submission_of(record)
    assert (submission.uid, submission.owner, submission.queue_system) == ("b0c5e1f2", None, None)
    assert control_of(record) == JobControl(num_workers=2)
    assert last_words_of(status) == {"worker-0": "OSError: the disk is full"}
    published = status_of(status)
    assert (published.phase, published.reason) == (JobPhase.SUCCEEDED, "MaxSteps")
    assert published.progress.records_done == 104
