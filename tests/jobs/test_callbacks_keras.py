"""Callbacks of Keras, as far as a master can serve them."""

import json
from pathlib import Path

import keras
import numpy as np
import pytest
from support.thread_job import ZOO, obedient_spec, run_job, write_records

from elastic.checkpoints.cuts import read_cut
from elastic.spec.status import JobPhase

UPDATES = 5  # of an epoch


@pytest.fixture
def data(tmp_path):
    return write_records(tmp_path / "train.npz")


def _spec(data, tmp_path, use, values, rate=1.0, **settings):
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"use": use, "values": values, "rate": rate}))
    defaults = {
        "records_per_task": 40,
        "evaluation_data_dir": str(data),
        "num_epochs": len(values),
        "checkpoint_dir": str(tmp_path / "checkpoints"),
    }
    spec = obedient_spec(data, **{**defaults, **settings})
    update = {
        "model_zoo": ZOO,
        "model_def": "steered_keras.custom_model",
        "model_params": {"plan": str(plan)},
    }
    return spec.model_copy(update=update)


def _weight(status):
    return float(read_cut(Path(status.checkpoint)).parameters["weight/kernel"].squeeze())


def test_early_stopping_restores_the_weights_of_the_best_version(data, tmp_path):
    values = [3.0, 1.0, 2.0, 2.0, 0.5]
    stopping = {
        "monitor": "val_value", "mode": "min", "patience": 2, "restore_best_weights": True,
    }  # fmt: skip
    out, at_end = tmp_path / "model.keras", tmp_path / "at-end.keras"
    # Whose hook sees what is exported, also where it is called before the other's.
    use = [["saving", {"path": str(at_end)}], ["EarlyStopping", stopping]]
    spec = _spec(data, tmp_path, use, values, output=str(out))
    status = run_job(spec, tmp_path)
    assert (status.phase, status.reason) == (JobPhase.SUCCEEDED, "EarlyStopping"), status.message
    assert status.message.endswith("updates: it set stop_training at the end of epoch 3")
    assert [each.metrics["value"] for each in status.evaluations] == values[:4]
    assert (status.best.version, status.metrics["value"]) == (10, 1.0)
    assert _weight(status) == 10.0
    for path in (out, at_end):
        model = keras.models.load_model(path)
        assert model(np.ones((1, 1), np.float32)).numpy().item() == pytest.approx(10.0)


def test_model_checkpoint_saves_the_version_that_was_evaluated(data, tmp_path):
    values = [3.0, 1.0, 2.0]
    path = tmp_path / "kept-{epoch:02d}-{val_value:.1f}.keras"
    keeping = {"filepath": str(path), "monitor": "val_value", "mode": "min", "save_best_only": True}
    spec = _spec(data, tmp_path, [["ModelCheckpoint", keeping]], values)
    status = run_job(spec, tmp_path)
    assert status.phase is JobPhase.SUCCEEDED, status.message
    kept = sorted(tmp_path.glob("kept-*"))
    assert [each.name for each in kept] == ["kept-01-3.0.keras", "kept-02-1.0.keras"]
    outputs = [
        keras.models.load_model(each)(np.ones((1, 1), np.float32)).numpy().item() for each in kept
    ]
    # Not those of the updates that were made meanwhile, which the job has kept too.
    assert outputs == [5.0, 10.0]
    assert _weight(status) == 15.0


def test_a_model_can_be_saved_after_every_epoch_without_any_evaluation(data, tmp_path):
    path = tmp_path / "after-{epoch:02d}.keras"
    spec = _spec(
        data, tmp_path, [["ModelCheckpoint", {"filepath": str(path)}]], [1.0] * 2,
        evaluation_data_dir="",
    )  # fmt: skip
    status = run_job(spec, tmp_path)
    assert status.phase is JobPhase.SUCCEEDED, status.message
    one = np.ones((1, 1), np.float32)
    saved = [keras.models.load_model(each) for each in sorted(tmp_path.glob("after-*"))]
    assert [model(one).numpy().item() for model in saved] == [5.0, 10.0]


def test_a_metric_in_a_files_name_is_evaluated(data, tmp_path):
    path = tmp_path / "named-{epoch:02d}-{val_value:.1f}.keras"
    spec = _spec(data, tmp_path, [["ModelCheckpoint", {"filepath": str(path)}]], [3.0, 4.0])
    status = run_job(spec, tmp_path)
    assert status.phase is JobPhase.SUCCEEDED, status.message
    saved = sorted(path.name for path in tmp_path.glob("named-*"))
    assert saved == ["named-01-3.0.keras", "named-02-4.0.keras"]


def test_what_a_hook_writes_to_the_model_is_put_back(data, tmp_path):
    spec = _spec(data, tmp_path, [["overwriting", {}]], [1.0] * 2, evaluation_data_dir="")
    status = run_job(spec, tmp_path)
    assert status.phase is JobPhase.SUCCEEDED, status.message
    assert _weight(status) == 10.0


@pytest.mark.sampled(2)
def test_rates_follow_the_callbacks_that_set_them(data, tmp_path):
    spec = _spec(data, tmp_path, [["schedule", {"rates": [1.0, 10.0, 100.0]}]], [1.0] * 3)
    status = run_job(spec, tmp_path)
    assert status.phase is JobPhase.SUCCEEDED, status.message
    # Epoch by epoch, to the update.
    assert _weight(status) == UPDATES * 111.0
    plateau = {"monitor": "val_value", "mode": "min", "factor": 0.5, "patience": 1, "min_lr": 0.0}
    spec = _spec(data, tmp_path, [["ReduceLROnPlateau", plateau]], [1.0] * 3, checkpoint_dir="")
    status = run_job(spec, tmp_path / "other")
    rate = read_cut(Path(status.checkpoint)).optimizer.tensors["learning_rate"]
    assert float(rate) == pytest.approx(0.25)


@pytest.mark.sampled(2)
def test_a_schedule_goes_on_where_the_job_does(data, tmp_path):
    use = [["schedule", {"rates": [1.0, 10.0, 100.0]}]]
    run_job(_spec(data, tmp_path, use, [1.0] * 3, max_steps=7), tmp_path)
    status = run_job(_spec(data, tmp_path, use, [1.0] * 2, resume=True), tmp_path)
    assert _weight(status) == UPDATES * 11.0
    status = run_job(_spec(data, tmp_path, use, [1.0] * 3, resume=True), tmp_path)
    assert _weight(status) == UPDATES * 111.0


def test_lambda_callbacks_see_epochs(data, tmp_path):
    path = tmp_path / "calls"
    spec = _spec(
        data, tmp_path, [["lambda", {"path": str(path)}], ["TerminateOnNaN", {}]], [2.0, 1.0],
        evaluation_at_epoch_end=True,
    )  # fmt: skip
    status = run_job(spec, tmp_path)
    assert status.phase is JobPhase.SUCCEEDED, status.message
    calls = [json.loads(line) for line in path.read_text().splitlines()]
    assert calls == [[epoch, ["loss", "val_loss", "val_value"]] for epoch in (0, 1)]


def test_the_metrics_of_training_are_in_the_logs_as_after_fit(data, tmp_path):
    path, saved = tmp_path / "calls", tmp_path / "{epoch}-{value:.0f}.keras"
    stopping = {"monitor": "value", "mode": "min", "patience": 1}
    use = [
        ["lambda", {"path": str(path)}], ["EarlyStopping", stopping],
        ["ModelCheckpoint", {"filepath": str(saved)}],
    ]  # fmt: skip
    spec = _spec(data, tmp_path, use, [3.0] * 4, train_metrics=True, evaluation_data_dir="")
    status = run_job(spec, tmp_path)
    assert (status.phase, status.reason) == (JobPhase.SUCCEEDED, "EarlyStopping"), status.message
    calls = [json.loads(line) for line in path.read_text().splitlines()]
    assert calls == [[epoch, ["loss", "value"]] for epoch in (0, 1)]
    assert sorted(each.name for each in tmp_path.glob("*.keras")) == ["1-3.keras", "2-3.keras"]


@pytest.mark.parametrize(
    ("use", "settings", "words"),
    [
        pytest.param(
            [["batches", {}]], {},
            "callbacks gives a LambdaCallback, whose hook on_train_batch_end cannot be called: ",
            id="batches",
        ),
        pytest.param(
            [["BackupAndRestore", {"backup_dir": "/nowhere"}]], {},
            "callbacks gives a BackupAndRestore, whose hook on_train_batch_end cannot be called",
            id="backup",
        ),
        pytest.param(
            [["ModelCheckpoint", {"filepath": "/x.keras", "save_freq": 10}]], {},
            "callbacks gives a ModelCheckpoint, whose hook on_train_batch_end cannot be called",
            id="saving-by-batches",
        ),
        pytest.param(
            [["schedule", {"rates": [1.0]}]], {"get_model_steps": 2},
            "callbacks gives a LearningRateScheduler, but with get_model_steps above 1 workers",
            id="local-updates",
        ),
        pytest.param(
            [["EarlyStopping", {"monitor": "loss", "restore_best_weights": True}]], {},
            "callbacks gives a EarlyStopping that restores the best weights by 'loss'",
            id="best-by-training-loss",
        ),
        pytest.param(
            [["EarlyStopping", {"monitor": "accuracy"}]], {},
            "callbacks gives a EarlyStopping that watches 'accuracy': of the training records only",
            id="training-metric",
        ),
        pytest.param(
            [["EarlyStopping", {"monitor": "accuracy"}]], {"train_metrics": True},
            "of the training records only 'loss' and 'value' are told, so watch",
            id="no-such-training-metric",
        ),
        pytest.param(
            [["EarlyStopping", {"monitor": "val_value"}]], {},
            "Keras isn't able to automatically determine whether that metric should be maximized",
            id="no-mode",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_served_is_refused_by_name(use, settings, words, data, tmp_path):
    status = run_job(_spec(data, tmp_path, use, [1.0], **settings), tmp_path)
    assert (status.phase, status.reason) == (JobPhase.FAILED, "ModelDef")
    assert words in status.message
