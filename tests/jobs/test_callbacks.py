"""What callbacks see, what they end, and which version is left as the best."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from support.thread_job import ZOO, events, obedient_spec, run_job, write_records

from elastic.checkpoints.cuts import list_cuts, read_cut
from elastic.spec.status import JobPhase
from elastic.telemetry.summary import summary_lines

NUM_RECORDS = 40
UPDATES = 5  # of an epoch


@pytest.fixture
def data(tmp_path):
    return write_records(tmp_path / "train.npz")


def _spec(data, tmp_path, use, values, **settings):
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"use": use, "values": values}))
    defaults = {
        "records_per_task": 40,
        "evaluation_data_dir": str(data),
        "num_epochs": len(values),
        "checkpoint_dir": str(tmp_path / "checkpoints"),
    }
    spec = obedient_spec(data, **{**defaults, **settings})
    return spec.model_copy(
        update={
            "model_zoo": ZOO,
            "model_def": "steered.CustomModel",
            "model_params": {"num_records": NUM_RECORDS, "plan": str(plan)},
        }
    )


def _stopping(**arguments):
    return ["EarlyStopping", {"monitor": "val_value", "mode": "min", **arguments}]


def _values(status):
    return [each.metrics["value"] for each in status.evaluations]


def test_hooks_are_called_in_their_order_with_what_they_are_about(data, tmp_path):
    path = tmp_path / "calls"
    spec = _spec(
        data, tmp_path, [["Recorder", {"path": str(path)}]], [5.0, 4.0],
        evaluation_at_epoch_end=True,
    )  # fmt: skip
    status = run_job(spec, tmp_path)
    assert (status.phase, status.reason) == (JobPhase.SUCCEEDED, "Succeeded")
    calls = [json.loads(line) for line in path.read_text().splitlines()]
    names = ["loss", "val_loss", "val_value"]
    by_epoch = [call for call in calls if call[0] in ("evaluation_end", "epoch_end")]
    # The loss of a record in epoch e is -e before its update.
    assert by_epoch == [
        ["evaluation_end", UPDATES, 1, 5.0],
        ["epoch_end", 0, names, 0.0],
        ["evaluation_end", 2 * UPDATES, 2, 4.0],
        ["epoch_end", 1, names, -1.0],
    ]
    rest = [call for call in calls if call not in by_epoch]
    assert rest == [["train_begin"], ["epoch_begin", 0], ["epoch_begin", 1], ["train_end"]]


def test_without_evaluation_an_epoch_has_its_training_loss(data, tmp_path):
    path = tmp_path / "calls"
    spec = _spec(
        data, tmp_path, [["Recorder", {"path": str(path), "stop_at": 1}]], [1.0] * 4,
        evaluation_data_dir="",
    )  # fmt: skip
    status = run_job(spec, tmp_path)
    assert (status.phase, status.reason) == (JobPhase.SUCCEEDED, "Recorder")
    assert status.message == "Recorder ended training after 10 updates: enough"
    ends = [json.loads(line) for line in path.read_text().splitlines() if "epoch_end" in line]
    assert ends == [["epoch_end", 0, ["loss"], 0.0], ["epoch_end", 1, ["loss"], -1.0]]
    assert status.progress.records_done == 2 * NUM_RECORDS
    assert status.cut_short is None


@pytest.mark.parametrize("is_evaluated", [True, False], ids=["evaluated", "not-evaluated"])
def test_metrics_of_the_training_records_are_told_by_their_names(data, tmp_path, is_evaluated):
    path = tmp_path / "calls"
    spec = _spec(
        data, tmp_path, [["Recorder", {"path": str(path)}]], [5.0], train_metrics=True,
        evaluation_at_epoch_end=is_evaluated,
    )  # fmt: skip
    status = run_job(spec, tmp_path)
    assert status.phase is JobPhase.SUCCEEDED, status.message
    (end,) = [json.loads(line) for line in path.read_text().splitlines() if "epoch_end" in line]
    names = ["loss", "val_loss", "val_value", "value"] if is_evaluated else ["loss", "value"]
    assert end == ["epoch_end", 0, names, 0.0]


def test_early_stopping_leaves_the_best_version(data, tmp_path):
    values = [3.0, 1.0, 2.0, 2.0, 0.5, 0.1]
    out = tmp_path / "model"
    spec = _spec(
        data, tmp_path, [_stopping(patience=2, restore_best=True)], values, output=str(out)
    )
    status = run_job(spec, tmp_path)
    assert (status.phase, status.reason) == (JobPhase.SUCCEEDED, "EarlyStopping")
    assert "val_value has not improved on 1 in 2 evaluations, the last of version 20" in (
        status.message
    )
    assert _values(status) == values[:4]
    # It went on meanwhile; what it trained counts, and is not in the model.
    assert 20 <= status.progress.model_version <= 25
    assert (status.best.version, status.best.epoch, status.best.value) == (10, 1, 1.0)
    best = tmp_path / "checkpoints" / "best" / "version-0000000010"
    assert status.best.checkpoint == status.checkpoint == str(best)
    assert f"best: val_value 1 at version 10, in {best}" in list(summary_lines(status, 0.0))
    assert read_cut(best).parameters["counts"].tolist() == [2.0] * NUM_RECORDS
    np.testing.assert_array_equal(load_file(f"{out}.safetensors")["counts"], [2.0] * NUM_RECORDS)
    assert status.metrics["value"] == 1.0
    newest = list_cuts(tmp_path / "checkpoints")[0]
    assert read_cut(newest).version == status.progress.model_version


def test_without_restoring_the_last_version_is_left(data, tmp_path):
    spec = _spec(data, tmp_path, [_stopping(patience=1)], [1.0, 1.0, 1.0, 1.0])
    status = run_job(spec, tmp_path)
    assert status.reason == "EarlyStopping"
    assert status.best is None
    assert not (tmp_path / "checkpoints" / "best").exists()
    assert read_cut(Path(status.checkpoint)).version == status.progress.model_version
    assert events(status, "Evaluated")[-1].startswith(f"version {status.progress.model_version} ")


def test_the_best_checkpoint_outlives_the_others_and_can_be_used(data, tmp_path):
    values = [3.0, 1.0, 2.0, 1.0]
    use = [["BestCheckpoint", {"monitor": "value", "mode": "min"}]]
    spec = _spec(data, tmp_path, use, values, checkpoint_steps=3, keep_checkpoint_max=1)
    status = run_job(spec, tmp_path)
    folder = tmp_path / "checkpoints"
    assert [path.name for path in list_cuts(folder)] == ["version-0000000020"]
    assert [path.name for path in list_cuts(folder / "best")] == ["version-0000000010"]
    assert status.checkpoint == str(folder / "version-0000000020")
    # Its parameters begin another job.
    other = _spec(
        data, tmp_path, [], [1.0], checkpoint_filename_for_init=str(folder / "best"),
        checkpoint_dir="",
    )  # fmt: skip
    status = run_job(other, tmp_path / "other")
    assert read_cut(Path(status.checkpoint)).parameters["counts"].tolist() == [3.0] * NUM_RECORDS
    # And where nothing newer is left, the job goes on from it.
    shutil.rmtree(folder / "version-0000000020")
    shutil.rmtree(tmp_path / "cuts")
    status = run_job(_spec(data, tmp_path, use, values, resume=True), tmp_path)
    assert events(status, "Resumed") == [
        f"resumed from {folder}/best/version-0000000010 (version 10)"
    ]
    assert status.progress.model_version == 20
    assert read_cut(Path(status.checkpoint)).parameters["counts"].tolist() == [4.0] * NUM_RECORDS
    assert (status.best.version, _values(status)) == (10, values)


def test_a_stopped_job_stays_so_until_its_callback_is_changed(data, tmp_path):
    values = [1.0, 2.0, 3.0, 0.5]
    spec = _spec(data, tmp_path, [_stopping(patience=1, restore_best=True)], values)
    first = run_job(spec, tmp_path)
    again = run_job(spec.model_copy(update={"resume": True}), tmp_path)
    assert (again.reason, again.message) == (first.reason, first.message)
    assert again.progress.model_version == first.progress.model_version
    assert (again.checkpoint, again.metrics) == (first.checkpoint, first.metrics)
    assert not events(again, "Evaluated"), "nothing is computed again"
    spec = _spec(data, tmp_path, [_stopping(patience=9, restore_best=True)], values, resume=True)
    status = run_job(spec, tmp_path)
    assert (status.reason, status.progress.model_version) == ("Succeeded", 20)
    assert (status.best.version, status.best.value) == (20, 0.5)


def test_a_callback_that_fails_fails_the_job(data, tmp_path, caplog):
    spec = _spec(data, tmp_path, [["Failing", {}]], [1.0, 1.0])
    status = run_job(spec, tmp_path)
    assert (status.phase, status.reason) == (JobPhase.FAILED, "ModelDef")
    where = f"{ZOO}/steered.py"
    assert status.message.startswith(
        "on_epoch_end of the callback Failing failed: RuntimeError: the callback's own mistake in "
        f"epoch 0 ({where}:"
    )
    assert f'File "{where}"' in caplog.text
    assert "raise RuntimeError" in caplog.text


def test_a_callback_that_takes_long_is_told_and_waited_for(data, tmp_path):
    patience_s = 0.5
    spec = _spec(
        data, tmp_path, [["Slow", {"seconds": 3 * patience_s}]], [1.0, 1.0],
        hang_timeout=patience_s,
    )  # fmt: skip
    status = run_job(spec, tmp_path)
    assert status.phase is JobPhase.SUCCEEDED
    [message] = events(status, "CallbackSlow")
    line = (ZOO / "steered.py").read_text().splitlines().index("        time.sleep(self.seconds)")
    assert message == (
        "on_epoch_end of the callback Slow has taken more than 0.5 s (Slow.on_epoch_end "
        f"({ZOO}/steered.py:{line + 1})), and training waits for it"
    )
    assert events(status, "WorkerHung") == [], "who waits for the master does not hang"


@pytest.mark.parametrize(
    ("use", "settings", "message"),
    [
        pytest.param(
            [["Misnamed", {}]], {},
            "callbacks gives a Misnamed with the hook on_batch_end, which nobody calls: they are "
            "on_train_begin, on_epoch_begin, on_evaluation_end, on_epoch_end, on_train_end",
            id="a-hook-that-nobody-calls",
        ),
        pytest.param(
            [_stopping()], {"evaluation_data_dir": ""},
            "the callback EarlyStopping watches val_value, and nothing is evaluated: name the "
            "evaluation records with --evaluation_data_dir",
            id="nothing-is-evaluated",
        ),
        pytest.param(
            [_stopping(monitor="val_valeu")], {},
            "the callback EarlyStopping watches val_valeu, which no evaluation gives: there are "
            "val_loss, val_value",
            id="no-such-metric",
        ),
        pytest.param(
            [_stopping(restore_best=True), ["BestCheckpoint", {"monitor": "val_loss"}]], {},
            "the callbacks choose the best version by val_loss (min) and val_value (min): let them "
            "watch one metric",
            id="two-bests",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_served_is_refused_by_name(use, settings, message, data, tmp_path):
    status = run_job(_spec(data, tmp_path, use, [1.0], **settings), tmp_path)
    assert (status.phase, status.reason) == (JobPhase.FAILED, "ModelDef")
    assert status.message == message
