"""`--tensorboard_log_dir`: the curves of whole jobs, read as TensorBoard reads them."""

import shutil

import numpy as np
import pytest
from support.curves import curve, read, tags, text
from support.gate import Gate
from support.local_job import LocalJob
from support.thread_job import (
    ThreadJob,
    events,
    held_spec,
    obedient_spec,
    run_job,
    write_records,
)

from elastic.checkpoints.contents import read_manifest
from elastic.checkpoints.cuts import list_cuts
from elastic.master.telemetry import DENSE_UPDATES
from elastic.spec.status import JobPhase, TimeCategory

SYNCHRONOUS = {
    "train/loss", "train/learning_rate", "throughput/samples_per_s", "workers/running",
    "workers/desired", "updates/rejected_gradients", "records/computed_again", "epoch",
    "epoch/loss", "epoch/samples_per_s", "epoch/seconds",
    *(f"time/{category}_s" for category in TimeCategory),
}  # fmt: skip


def test_a_job_writes_its_curves_at_the_steps_of_its_model(tmp_path):
    folder = tmp_path / "events"
    train = write_records(tmp_path / "train.npz")
    test = write_records(tmp_path / "test.npz")
    spec = obedient_spec(
        train, num_epochs=2, tensorboard_log_dir=str(folder), evaluation_data_dir=str(test),
        evaluation_steps=4, evaluation_start_delay_secs=0, records_per_task=40,
    )  # fmt: skip
    status = run_job(spec, tmp_path)
    assert status.phase is JobPhase.SUCCEEDED
    assert tags(folder) == SYNCHRONOUS | {"evaluation/loss", "evaluation/mean_index"}
    # Two epochs of 40 records in minibatches of 8.
    assert [step for step, _ in curve(folder, "train/loss")] == list(range(1, 11))
    assert [value for _, value in curve(folder, "epoch")] == pytest.approx(
        [0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0]
    )
    assert {value for _, value in curve(folder, "workers/running")} == {1.0}
    evaluated = [step for step, _ in curve(folder, "evaluation/mean_index")]
    assert evaluated == [int(e.split()[1]) for e in events(status, "Evaluated")]
    assert evaluated[-1] == 10
    assert "| minibatch_size | `8` |" in text(folder)
    # All of the time between two points was spent on something.
    points = [read(folder).Scalars(f"time/{category}_s") for category in TimeCategory]
    spent_s = np.sum([[event.value for event in curve] for curve in points], axis=0)
    moments_s = [event.wall_time for event in points[0]]
    assert np.diff(spent_s) == pytest.approx(np.diff(moments_s), abs=2e-3)


def test_an_asynchronous_job_has_its_staleness_too(tmp_path):
    folder = tmp_path / "events"
    spec = obedient_spec(
        write_records(tmp_path / "train.npz"), use_async=True, tensorboard_log_dir=str(folder)
    )
    assert run_job(spec, tmp_path).phase is JobPhase.SUCCEEDED
    assert tags(folder) == SYNCHRONOUS | {"updates/staleness_mean", "updates/staleness_max"}
    assert {value for _, value in curve(folder, "updates/staleness_max")} == {0.0}


def test_the_last_update_of_a_long_job_has_a_point(tmp_path):
    """The ones before it come too fast for a point each."""
    folder = tmp_path / "events"
    num_records = 8 * (DENSE_UPDATES + 50)
    spec = obedient_spec(
        write_records(tmp_path / "train.npz", num_records=num_records), num_records,
        tensorboard_log_dir=str(folder), records_per_task=400,
    )  # fmt: skip
    assert run_job(spec, tmp_path).phase is JobPhase.SUCCEEDED
    steps = [step for step, _ in curve(folder, "train/loss")]
    assert steps[:DENSE_UPDATES] == list(range(1, DENSE_UPDATES + 1))
    assert steps[-1] == DENSE_UPDATES + 50
    assert len(steps) < DENSE_UPDATES + 50


def test_a_folder_that_takes_no_events_costs_the_job_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    spec = obedient_spec(
        write_records(tmp_path / "train.npz"), tensorboard_log_dir=str(tmp_path / "file" / "events")
    )
    status = run_job(spec, tmp_path)
    assert status.phase is JobPhase.SUCCEEDED
    [message] = events(status, "TensorBoardNotWritten")
    assert "file/events: Not a directory" in message


def test_a_job_that_goes_on_from_a_checkpoint_goes_on_with_its_curves(tmp_path):
    folder = tmp_path / "events"
    train = write_records(tmp_path / "train.npz")
    spec = obedient_spec(train, tensorboard_log_dir=str(folder), records_per_task=40)
    assert ThreadJob(spec, tmp_path / "cuts").run().phase is JobPhase.SUCCEEDED
    before = curve(folder, "train/loss")
    longer = spec.model_copy(update={"resume": True, "num_epochs": 2})
    assert ThreadJob(longer, tmp_path / "cuts").run().phase is JobPhase.SUCCEEDED
    after = curve(folder, "train/loss")
    assert after[:5] == before
    assert [step for step, _ in after] == list(range(1, 11))


def test_a_master_that_is_killed_leaves_one_curve(tmp_path):
    """What was written after the cut that it goes back to is not there twice."""
    folder = tmp_path / "events"
    num_records = 1200
    train = write_records(tmp_path / "train.npz", num_records=num_records, delay_ms=2)
    spec = obedient_spec(
        train,
        num_records,
        tensorboard_log_dir=str(folder),
        recovery_interval=0.5,
        records_per_task=40,
    )
    with LocalJob(spec, tmp_path) as job:
        job.wait_until(lambda status: status.progress.model_version > 60)
        assert job.kill_one("master", 0)
        status = job.succeed()
    assert status.master_restarts == 1
    steps = [step for step, _ in curve(folder, "train/loss")]
    assert steps == list(range(1, num_records // 8 + 1))
    assert len(list(folder.iterdir())) == 2


def test_an_evaluation_that_a_lost_master_has_told_is_not_told_again(tmp_path):
    """Its newest cut was taken in the midst of it, so that it is done again."""
    folder, cuts, kept = (tmp_path / name for name in ("events", "cuts", "kept"))
    gate = Gate(tmp_path / "gate")
    test = write_records(tmp_path / "test.npz")
    spec = held_spec(
        write_records(tmp_path / "train.npz"), gate, mode="evaluation", num_epochs=2,
        tensorboard_log_dir=str(folder), evaluation_data_dir=str(test), recovery_interval=0.05,
        evaluation_at_epoch_end=True, records_per_task=40,
    )  # fmt: skip
    # Its first step only checks the new model.
    gate.allow(0, 1)
    with gate, ThreadJob(spec, cuts) as job:
        job.wait_until(lambda _: any(_evaluated(path) == 5 for path in list_cuts(cuts)))
        shutil.copytree(cuts, kept)
        gate.open()
        assert job.wait().phase is JobPhase.SUCCEEDED
    before = curve(folder, "evaluation/mean_index")
    status = ThreadJob(spec.model_copy(update={"resume": True}), kept).run()
    assert [int(told.split()[1]) for told in events(status, "Evaluated")] == [5, 10]
    assert [step for step, _ in before] == [5, 10]
    assert curve(folder, "evaluation/mean_index") == before
    assert [step for step, _ in curve(folder, "train/loss")] == list(range(1, 11))


def _evaluated(cut):
    """The version that was under evaluation when a cut was taken."""
    evaluating = read_manifest(cut).steering["evaluating"]
    return evaluating and evaluating[0]


def test_an_evaluation_on_other_records_is_told_beside_the_one_before(tmp_path):
    folder = tmp_path / "events"
    train = write_records(tmp_path / "train.npz")
    spec = obedient_spec(
        train, tensorboard_log_dir=str(folder), evaluation_data_dir=str(train), records_per_task=40
    )
    assert run_job(spec, tmp_path).phase is JobPhase.SUCCEEDED
    other = write_records(tmp_path / "other.npz", num_records=8)
    change = {"resume": True, "evaluation_data_dir": str(other)}
    assert run_job(spec.model_copy(update=change), tmp_path).phase is JobPhase.SUCCEEDED
    assert curve(folder, "evaluation/mean_index") == [(5, 19.5), (5, 3.5)]
