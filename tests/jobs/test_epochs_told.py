"""Each epoch of a whole job tells its mean training loss, its speed and its time."""

import pytest
from support.curves import curve
from support.thread_job import events, obedient_spec, run_job, write_records

from elastic.spec.status import JobPhase
from elastic.telemetry.summary import audit_lines

# Each record counts once an epoch, and its loss is minus the number of times that it has counted.
LOSSES = [0.0, -1.0, -2.0]


@pytest.mark.parametrize("mode", [{}, {"num_workers": "2"}, {"use_async": True}])
def test_in_status_events_and_curves(mode, tmp_path):
    folder = tmp_path / "events"
    spec = obedient_spec(
        write_records(tmp_path / "train.npz"), num_epochs=3, tensorboard_log_dir=str(folder), **mode
    )
    status = run_job(spec, tmp_path)
    assert status.phase is JobPhase.SUCCEEDED
    assert [(each.epoch, each.records) for each in status.epochs] == [(0, 40), (1, 40), (2, 40)]
    assert [each.loss for each in status.epochs] == pytest.approx(LOSSES)
    assert status.progress.mean_loss == pytest.approx(-2.0)
    for each in status.epochs:
        assert each.seconds > 0
        assert each.samples_per_s == pytest.approx(each.records / each.seconds, rel=0.1)
    versions = [each.version for each in status.epochs]
    for name in ("loss", "seconds", "samples_per_s"):
        assert [step for step, _ in curve(folder, f"epoch/{name}")] == versions
    assert [value for _, value in curve(folder, "epoch/loss")] == pytest.approx(LOSSES)
    told = events(status, "EpochEnded")
    assert len(told) == 3
    assert told[1].startswith("epoch 1: loss -1, ")
    assert told[1].endswith("; 40 records, all counted once")
    assert audit_lines(status) == ["epochs 0 to 2, each: 40 records, all counted once"]


def test_a_job_that_goes_on_from_a_cut_keeps_them(tmp_path):
    data = write_records(tmp_path / "train.npz")
    # Of five updates an epoch: the cut is in the midst of the second.
    spec = obedient_spec(data, num_epochs=2, max_steps=7)
    first = run_job(spec, tmp_path)
    assert [each.epoch for each in first.epochs] == [0]
    assert first.progress.mean_loss == -1.0
    status = run_job(spec.model_copy(update={"resume": True, "max_steps": 0}), tmp_path)
    assert status.epochs[0] == first.epochs[0]
    assert [each.loss for each in status.epochs] == [0.0, -1.0]


@pytest.mark.parametrize("mode", [{}, {"num_workers": "2"}, {"use_async": True}])
def test_the_training_metrics_are_those_of_all_records(mode, tmp_path):
    folder = tmp_path / "events"
    spec = obedient_spec(
        write_records(tmp_path / "train.npz"), num_epochs=2, tensorboard_log_dir=str(folder),
        model_def="measured.CustomModel", train_metrics=True, minibatch_size=7, **mode,
    )  # fmt: skip
    status = run_job(spec, tmp_path)
    assert status.phase is JobPhase.SUCCEEDED, status
    expected = {"index_mean": 19.5, "index_seen": 40.0}
    assert [each.metrics for each in status.epochs] == [expected, expected]
    told = events(status, "EpochEnded")[1]
    assert told.startswith("epoch 1: loss -1, index_mean 19.5, index_seen 40, ")
    assert [value for _, value in curve(folder, "train_metrics/index_seen")] == [40.0, 40.0]


def test_a_job_that_goes_on_in_an_epoch_has_the_metrics_of_all_of_it(tmp_path):
    spec = obedient_spec(
        write_records(tmp_path / "train.npz"), model_def="measured.CustomModel",
        train_metrics=True, max_steps=2,
    )  # fmt: skip
    assert not run_job(spec, tmp_path).epochs
    status = run_job(spec.model_copy(update={"resume": True, "max_steps": 0}), tmp_path)
    assert status.epochs[0].metrics == {"index_mean": 19.5, "index_seen": 40.0}


def test_metrics_that_the_module_does_not_have_are_an_error(tmp_path):
    spec = obedient_spec(
        write_records(tmp_path / "train.npz"), model_def="unmeasured.CustomModel",
        train_metrics=True,
    )  # fmt: skip
    status = run_job(spec, tmp_path)
    assert (status.phase, status.message) == (
        JobPhase.FAILED,
        "--train_metrics asks for metrics, and module unmeasured has no eval_metrics_fn: define "
        "it, or leave the flag out",
    )
