"""Records that fail, make no example or make the loss NaN, and readers that fail."""

import re
from pathlib import Path

import numpy as np
import pytest
from support.gate import Gate
from support.statuses import each_epoch
from support.thread_job import (
    ZOO,
    ThreadJob,
    events,
    held_spec,
    obedient_spec,
    run_job,
    write_records,
)

from elastic.checkpoints.cuts import read_cut
from elastic.spec.status import JobPhase, JobStatus

FAILS_IN_TRAINING, FAILS_IN_EVALUATION, IS_FILTERED, IS_NAN, HAS_NAN_GRADIENT = range(1, 6)


def _failure(index):
    """What the model's dataset_fn raises."""
    return f"dataset_fn failed: ValueError: record {index} cannot be read ({ZOO}/obedient.py:74)"


def _poisoned(index, source, attempts=3, failure=None):
    return (
        f"record {index} of '{source}' failed on {attempts} attempts: "
        f"{failure or _failure(index)}: mend the record or the model_def, or allow it with "
        "--skip_bad_records"
    )


def _counts(status):
    return read_cut(Path(status.checkpoint)).parameters["counts"].tolist()


@pytest.mark.parametrize("attempts", [1, 3])
def test_a_record_that_always_fails_is_named(attempts, tmp_path):
    data = write_records(tmp_path / "train.npz", {13: FAILS_IN_TRAINING})
    status = run_job(obedient_spec(data, max_task_failures=attempts), tmp_path)
    assert (status.phase, status.reason) == (JobPhase.FAILED, "Training")
    assert status.message == _poisoned(13, data, attempts)
    assert status.worker_failures == 0, "the worker itself is fine"


def test_a_record_may_be_skipped_and_the_audit_says_so(tmp_path):
    data = write_records(tmp_path / "train.npz", {13: FAILS_IN_TRAINING})
    status = run_job(obedient_spec(data, skip_bad_records=1), tmp_path)
    assert status.phase is JobPhase.SUCCEEDED
    assert each_epoch(status) == [(40, 39, 1)]
    assert status.progress.skipped == 1
    assert events(status, "RecordSkipped") == [
        f"record 13 of '{data}' failed for good: {_failure(13)}"
    ]
    assert _counts(status) == [index != 13 for index in range(40)]


def test_an_error_that_names_a_file_of_no_utf8_is_told_as_any_other(tmp_path):
    data = write_records(tmp_path / "train.npz", {13: FAILS_IN_TRAINING})
    status = run_job(
        obedient_spec(data, model_def="misnamed.CustomModel", skip_bad_records=1), tmp_path
    )
    assert (status.phase, status.worker_failures) == (JobPhase.SUCCEEDED, 0)
    [skipped] = events(status, "RecordSkipped")
    assert r"OSError: cannot open caf\udce9.png" in skipped
    assert JobStatus.model_validate_json(status.model_dump_json()) == status


def test_the_bad_record_may_be_among_the_first(tmp_path):
    deeds = dict.fromkeys((0, 5), FAILS_IN_TRAINING)
    data = write_records(tmp_path / "train.npz", deeds)
    status = run_job(obedient_spec(data, skip_bad_records=2), tmp_path)
    assert status.phase is JobPhase.SUCCEEDED
    assert each_epoch(status) == [(40, 38, 2)]
    assert _counts(status) == [index not in deeds for index in range(40)]


def test_a_bad_record_among_the_first_is_named(tmp_path):
    data = write_records(tmp_path / "train.npz", {0: FAILS_IN_TRAINING})
    status = run_job(obedient_spec(data), tmp_path)
    assert (status.phase, status.reason) == (JobPhase.FAILED, "Training")
    assert status.message == _poisoned(0, data)


def test_a_dataset_fn_that_always_fails_ends_the_job_before_it_starts(tmp_path):
    data = write_records(tmp_path / "train.npz", dict.fromkeys(range(40), FAILS_IN_TRAINING))
    status = run_job(obedient_spec(data, skip_bad_records=40), tmp_path)
    assert (status.phase, status.reason) == (JobPhase.FAILED, "ModelDef")
    assert status.message.startswith(_failure(0))


@pytest.mark.parametrize("grads_to_wait", [1, 3])
def test_the_last_record_of_an_epoch_may_be_the_bad_one(grads_to_wait, tmp_path):
    data = write_records(tmp_path / "train.npz", {39: FAILS_IN_TRAINING})
    spec = obedient_spec(
        data, skip_bad_records=2, num_epochs=2, shuffle="none", grads_to_wait=grads_to_wait
    )
    status = run_job(spec, tmp_path)
    assert status.phase is JobPhase.SUCCEEDED
    assert each_epoch(status) == [(40, 39, 1)] * 2
    assert _counts(status) == [2.0] * 39 + [0.0]


def test_one_bad_record_more_than_allowed_fails_the_job(tmp_path):
    deeds = {13: FAILS_IN_TRAINING, 14: FAILS_IN_TRAINING}
    data = write_records(tmp_path / "train.npz", deeds)
    status = run_job(obedient_spec(data, skip_bad_records=1), tmp_path)
    assert status.phase is JobPhase.FAILED
    assert status.message == _poisoned(14, data)


def test_a_record_that_fails_in_evaluation_is_named(tmp_path):
    train = write_records(tmp_path / "train.npz")
    test = write_records(tmp_path / "test.npz", {7: FAILS_IN_EVALUATION})
    status = run_job(obedient_spec(train, evaluation_data_dir=str(test)), tmp_path)
    assert (status.phase, status.reason) == (JobPhase.FAILED, "Training")
    assert status.message == _poisoned(7, test)
    assert each_epoch(status) == [(40, 40, 0)], "training had ended well"


def test_a_model_that_cannot_be_evaluated_is_not_trained_either(tmp_path):
    data = write_records(tmp_path / "train.npz")
    text = (ZOO / "obedient.py").read_text()
    (tmp_path / "mine.py").write_text(f"{text}\n\ndef eval_metrics_fn():\n    return [1]\n")
    spec = obedient_spec(data, evaluation_data_dir=str(data)).model_copy(
        update={"model_zoo": tmp_path, "model_def": "mine.CustomModel"}
    )
    status = run_job(spec, tmp_path)
    assert (status.phase, status.reason) == (JobPhase.FAILED, "ModelDef")
    assert status.message.startswith("eval_metrics_fn returned a list: return a dict of metrics")
    assert status.progress.records_done == 0


def test_a_bad_record_among_the_first_of_the_evaluation_is_skipped(tmp_path):
    train = write_records(tmp_path / "train.npz")
    test = write_records(tmp_path / "test.npz", {0: FAILS_IN_EVALUATION})
    spec = obedient_spec(train, evaluation_data_dir=str(test), skip_bad_records=1)
    status = run_job(spec, tmp_path)
    assert status.phase is JobPhase.SUCCEEDED
    assert status.metrics["mean_index"] == pytest.approx(np.mean(range(1, 40)), abs=1e-12)


def test_a_record_skipped_in_evaluation_is_in_no_metric(tmp_path):
    train = write_records(tmp_path / "train.npz")
    test = write_records(tmp_path / "test.npz", {39: FAILS_IN_EVALUATION, 0: IS_FILTERED})
    spec = obedient_spec(train, evaluation_data_dir=str(test), skip_bad_records=1)
    status = run_job(spec, tmp_path)
    assert status.phase is JobPhase.SUCCEEDED
    assert status.metrics["mean_index"] == pytest.approx(np.mean(range(1, 39)), abs=1e-12)


def test_records_without_an_example_count_as_done(tmp_path):
    filtered = [*range(8, 16), 20, *range(32, 40)]
    data = write_records(tmp_path / "train.npz", dict.fromkeys(filtered, IS_FILTERED))
    spec = obedient_spec(
        data, evaluation_data_dir=str(data), num_epochs=2, grads_to_wait=2, minibatch_size=4,
        shuffle="none",
    )  # fmt: skip
    status = run_job(spec, tmp_path)
    assert status.phase is JobPhase.SUCCEEDED
    assert each_epoch(status) == [(40, 40, 0)] * 2
    assert _counts(status) == [0.0 if i in filtered else 2.0 for i in range(40)]
    kept = [i for i in range(40) if i not in filtered]
    assert status.metrics["mean_index"] == pytest.approx(np.mean(kept), abs=1e-12)


def test_data_without_any_example_is_said_at_the_start(tmp_path):
    data = write_records(tmp_path / "train.npz", dict.fromkeys(range(40), IS_FILTERED))
    status = run_job(obedient_spec(data), tmp_path)
    assert (status.phase, status.reason) == (JobPhase.FAILED, "ModelDef")
    assert status.message == (
        f"dataset_fn made no example of the first 8 records of '{data}': "
        "the model cannot be built without one"
    )


@pytest.mark.parametrize(
    ("deed", "what"),
    [
        pytest.param(IS_NAN, "loss is nan", id="loss"),
        pytest.param(
            HAS_NAN_GRADIENT,
            "loss is -0, but the gradient of 'counts' is not finite",
            id="gradient",
        ),
    ],
)
def test_what_is_not_finite_ends_the_job_and_poisons_nothing(deed, what, tmp_path):
    data = write_records(tmp_path / "train.npz", {13: deed})
    checkpoints = tmp_path / "checkpoints"
    spec = obedient_spec(data, shuffle="none", checkpoint_dir=str(checkpoints), checkpoint_steps=1)
    status = run_job(spec, tmp_path)
    assert (status.phase, status.reason) == (JobPhase.FAILED, "Training")
    assert status.message == (
        f"{what} at step 2 on task 0 (records [8, 16) of '{data}', epoch 0): "
        "lower the learning rate, clip gradients, or look at the records"
    )
    # Whoever resumes with another learning rate begins where all was well.
    [checkpoint] = checkpoints.iterdir()
    assert read_cut(checkpoint).parameters["counts"].tolist() == [1.0] * 8 + [0.0] * 32


def test_a_step_that_changes_what_is_not_trained_ends_the_job_and_no_record_is_to_blame(tmp_path):
    """It shows in the second step: until then the teacher follows what it equals."""
    zoo = tmp_path / "zoo"
    zoo.mkdir()
    (zoo / "taught.py").write_text(
        "from obedient import *\n"
        "class Taught(CustomModel):\n"
        "    def __init__(self, num_records):\n"
        "        super().__init__(num_records)\n"
        "        self.teacher = nn.Parameter(torch.zeros(num_records), requires_grad=False)\n"
        "    def forward(self, features):\n"
        "        with torch.no_grad():\n"
        "            self.teacher.lerp_(self.counts, 0.5)\n"
        "        return super().forward(features)\n"
    )
    (zoo / "obedient.py").symlink_to(ZOO / "obedient.py")
    data = write_records(tmp_path / "train.npz")
    spec = obedient_spec(data, skip_bad_records=40).model_copy(
        update={"model_zoo": zoo, "model_def": "taught.Taught"}
    )
    status = run_job(spec, tmp_path)
    assert (status.phase, status.reason) == (JobPhase.FAILED, "Training")
    assert status.message.startswith("a step changes teacher, which is not trained")
    assert status.progress.skipped == 0
    assert not events(status, "MinibatchFailed")
    assert status.worker_failures == 0


def test_a_reader_that_raises_is_named(tmp_path):
    zoo = tmp_path / "zoo"
    zoo.mkdir()
    (zoo / "reading.py").write_text(
        "import os\n"
        "from obedient import *\n"
        "class Reader:\n"
        "    def create_shards(self):\n"
        "        return {'table': (0, 40)}\n"
        "    def read_records(self, task):\n"
        "        for index in range(task.start, task.end):\n"
        "            if index == 13:\n"
        "                raise OSError('no such row')\n"
        "            yield {'index': index, 'deed': 0, 'delay_ms': 0}\n"
        "def custom_data_reader(data_origin, records_per_task):\n"
        "    return Reader()\n"
    )
    (zoo / "obedient.py").symlink_to(ZOO / "obedient.py")
    spec = obedient_spec("table").model_copy(
        update={"model_zoo": zoo, "model_def": "reading.CustomModel", "skip_bad_records": 0}
    )
    status = run_job(spec, tmp_path)
    assert status.phase is JobPhase.FAILED
    failure = (
        "table, records [13, 14), record 13: read_records of the custom_data_reader failed: "
        f"OSError: no such row ({zoo}/reading.py:9)"
    )
    assert status.message == _poisoned(13, "table", failure=failure)


def test_data_that_changes_while_the_job_runs_is_not_trained_on(tmp_path):
    data, gate = write_records(tmp_path / "train.npz", num_records=400), Gate(tmp_path / "gate")
    with ThreadJob(held_spec(data, gate, 400), tmp_path / "cuts") as job, gate:
        # The third step is the last of its task, so nothing is read ahead while we write.
        gate.allow(0, 2)
        job.wait_until(lambda _: gate.waits_for(0) == 3)
        write_records(data, num_records=400)
        gate.open()
        status = job.wait()
    assert status.phase is JobPhase.FAILED
    assert re.fullmatch(
        rf"record \d+ of '{data}' failed on 3 attempts: {data} was written to while the "
        "job reads it, so its records are no longer the ones that were counted: leave data alone "
        "while a job runs, and start the job again: mend the record or the model_def, or allow it "
        "with --skip_bad_records",
        status.message,
    )
