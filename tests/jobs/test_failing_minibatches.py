"""Minibatches that the user's code fails on: tried again, and told whose fault it is."""

import re
from pathlib import Path

import pytest
from support import single_pass
from support.local_job import LocalJob
from support.statuses import each_epoch
from support.thread_job import ZOO, events, obedient_spec, run_job, write_records

from elastic.checkpoints.cuts import read_cut
from elastic.spec.status import JobPhase
from elastic.telemetry.summary import failures_text

FAILS_IN_TRAINING = 1


def limited_spec(data, num_records=64, model_params=(), **settings):
    """A job whose model fails by the size of its minibatches, or as often as it is asked to."""
    spec = obedient_spec(data, num_records, shuffle="none", **{"minibatch_size": 32, **settings})
    params = {"num_records": num_records, **dict(model_params)}
    return spec.model_copy(update={"model_def": "limited.CustomModel", "model_params": params})


def counts(status):
    return read_cut(Path(status.checkpoint)).parameters["counts"].tolist()


@pytest.fixture
def data(tmp_path):
    return write_records(tmp_path / "train.npz", num_records=64)


@pytest.mark.parametrize("mode", ["training", "any"])
def test_a_minibatch_too_large_fails_the_job_with_the_size_that_runs(mode, data, tmp_path):
    """Also where already the master, which tries the model, has no room for a whole minibatch."""
    spec = limited_spec(data, records_per_task=64, model_params={"limit": 8, "mode": mode})
    status = run_job(spec, tmp_path)
    assert (status.phase, status.reason) == (JobPhase.FAILED, "Training")
    assert status.message == (
        "the minibatch fails at 32 records, runs at 8 "
        f"(records [0, 32) of '{data}', none of which is to blame): "
        f"MemoryError: no room for 32 records ({ZOO}/limited.py:44): give --minibatch_size 8, or "
        "--shrink_minibatches to go on with the size that runs"
    )
    assert status.progress.records_done == 0
    assert events(status, "MinibatchFailed") == [
        f"records [0, 32) of '{data}' failed on worker-0: MemoryError: no room for 32 records "
        f"({ZOO}/limited.py:44): {then}"
        for then in (
            "the minibatch is tried again",
            "it is computed in parts, to find the record that fails",
        )
    ]


@pytest.mark.parametrize("settings", [
    pytest.param({}, id="one-worker"),
    pytest.param({"model_params": {"limit": 8, "mode": "any"}}, id="too-large-for-the-master"),
    pytest.param({"num_workers": 2, "grads_to_wait": 2}, id="synchronous"),
    pytest.param({"num_workers": 2, "use_async": True}, id="asynchronous"),
    pytest.param({"get_model_steps": 3, "use_async": True}, id="local-updates"),
])  # fmt: skip
def test_a_job_that_may_shrink_goes_on_with_the_size_that_runs(settings, data, tmp_path):
    settings = {"model_params": {"limit": 8}, **settings}
    spec = limited_spec(
        data, records_per_task=32, num_epochs=2, shrink_minibatches=True, **settings
    )
    status = run_job(spec, tmp_path)
    assert status.phase is JobPhase.SUCCEEDED, status
    assert each_epoch(status) == [(64, 64, 0)] * 2
    assert counts(status) == [2.0] * 64
    assert status.progress.model_version == 16 // settings.get("grads_to_wait", 1)
    assert status.progress.shrunk_minibatch_size == 8
    [shrunk] = events(status, "MinibatchesShrunk")
    assert shrunk == (
        "training fails at 32 records a minibatch and runs at 8, with which it goes on: "
        f"MemoryError: no room for 32 records ({ZOO}/limited.py:44)"
    )
    assert "minibatches shrunk to 8 records" in failures_text(status.progress)


def test_a_minibatch_that_fails_once_is_tried_again_and_counts_whole(data, tmp_path):
    folder = tmp_path / "failures"
    folder.mkdir()
    (folder / "1.fails").touch()
    spec = limited_spec(data, records_per_task=64, model_params={"folder": str(folder)})
    status = run_job(spec, tmp_path)
    assert status.phase is JobPhase.SUCCEEDED
    assert counts(status) == [1.0] * 64
    assert status.progress.model_version == 2, "no update of a part"
    assert failures_text(status.progress) == "1 minibatch tried again"
    [failed] = events(status, "MinibatchFailed")
    assert re.fullmatch(
        r"records \[\d+, \d+\) of .* failed on worker-0: the training step failed: OSError: the "
        rf"network is away \({ZOO}/limited.py:53\): the minibatch is tried again",
        failed,
    )


def test_a_minibatch_that_runs_in_the_end_blames_nobody(data, tmp_path):
    """It fails whole twice, and in one part: the last attempt counts."""
    folder = tmp_path / "failures"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.fails").touch()
    spec = limited_spec(data, records_per_task=64, model_params={"folder": str(folder)})
    status = run_job(spec, tmp_path)
    assert status.phase is JobPhase.SUCCEEDED
    assert (counts(status), status.progress.model_version) == ([1.0] * 64, 2)
    assert status.progress.shrunk_minibatch_size is None


def test_what_fails_is_tried_by_another_worker(tmp_path):
    data = write_records(tmp_path / "train.npz", {60: FAILS_IN_TRAINING}, 64, delay_ms=1)
    spec = limited_spec(data, num_workers=2, minibatch_size=4, records_per_task=4, num_epochs=2)
    status = run_job(spec, tmp_path)
    assert status.phase is JobPhase.FAILED
    failed_on = [
        re.search(r"failed on (worker-\d)", message)[1]
        for message in events(status, "MinibatchFailed")
        if "[60, 64)" in message
    ]
    assert sorted(failed_on) == ["worker-0", "worker-1"]


def test_a_bad_record_is_found_without_an_update_of_a_part(tmp_path):
    data = write_records(tmp_path / "train.npz", {13: FAILS_IN_TRAINING}, 64)
    status = run_job(limited_spec(data, records_per_task=64, skip_bad_records=1), tmp_path)
    assert status.phase is JobPhase.SUCCEEDED
    assert counts(status) == [float(i != 13) for i in range(64)]
    # [0, 13), [14, 32), [32, 64): what is around the record, and no part of it.
    assert status.progress.model_version == 3
    assert status.progress.minibatches_tried_again == 1
    assert status.progress.records_computed_alone > 0


@pytest.mark.parametrize("bad", [
    pytest.param([12], id="one"),
    pytest.param([1, 62], id="whose-neighbours-begin-and-end-a-minibatch"),
    pytest.param([1, 3, *range(32, 64)], id="others-between-them-and-a-whole-minibatch"),
])  # fmt: skip
def test_no_record_is_skipped_for_standing_alone_before_batch_normalisation(bad, tmp_path):
    data = write_records(tmp_path / "train.npz", dict.fromkeys(bad, FAILS_IN_TRAINING), 64)
    spec = limited_spec(
        data, records_per_task=64, skip_bad_records=40, model_params={"is_normalised": True}
    )
    status = run_job(spec, tmp_path)
    assert status.phase is JobPhase.SUCCEEDED, status.message
    assert counts(status) == [float(i not in bad) for i in range(64)]
    assert each_epoch(status) == [(64, 64 - len(bad), len(bad))]
    skipped = events(status, "RecordSkipped")
    assert all("cannot be read" in told for told in skipped), "not that it was alone"


@pytest.mark.parametrize("skip", [0, 3])
def test_an_epoch_that_ends_with_one_record_says_what_helps(skip, tmp_path):
    """A minibatch of one that the job itself makes is its size's fault, not the record's."""
    data = write_records(tmp_path / "train.npz", num_records=65)
    spec = limited_spec(data, 65, skip_bad_records=skip, model_params={"is_normalised": True})
    status = run_job(spec, tmp_path)
    assert status.phase is JobPhase.FAILED
    assert re.match(
        r"the minibatch fails at 1 record, runs at 2 \(record 64 of .*, which is not to blame\): .*"
        r"more than 1 value .*--drop_last, or take a --minibatch_size that leaves no single",
        status.message,
    )
    assert events(status, "RecordSkipped") == []


def test_a_bad_record_is_found_wherever_the_order_has_it(tmp_path):
    data = write_records(tmp_path / "train.npz", {13: FAILS_IN_TRAINING}, 64)
    spec = limited_spec(data, skip_bad_records=1).model_copy(update={"shuffle": "records"})
    status = run_job(spec, tmp_path)
    assert status.phase is JobPhase.SUCCEEDED, status.message
    assert counts(status) == [float(i != 13) for i in range(64)]
    assert events(status, "RecordSkipped")[0].startswith("record 13 of ")


def test_an_evaluation_goes_on_with_the_size_that_runs(tmp_path):
    """Its metrics are the same whatever the minibatches."""
    data = write_records(tmp_path / "train.npz", num_records=64)
    spec = limited_spec(
        data, evaluation_data_dir=str(data), evaluation_steps=1, evaluation_start_delay_secs=0,
        records_per_task=32, model_params={"limit": 8, "mode": "evaluation"},
    )  # fmt: skip
    status = run_job(spec, tmp_path)
    assert status.phase is JobPhase.SUCCEEDED, status
    assert status.metrics["mean_index"] == pytest.approx(31.5, abs=1e-12)
    assert status.progress.shrunk_minibatch_size is None, "training has its own size"
    assert len(events(status, "MinibatchesShrunk")) == 1, "later evaluations begin with that size"


@pytest.mark.parametrize("kind", ["evaluate", "predict"])
def test_a_single_pass_goes_on_with_the_size_that_runs(kind, tmp_path):
    data = single_pass.write_records(tmp_path / "records.npz")
    model = single_pass.save_model(tmp_path / "model.safetensors")
    spec = single_pass.single_pass_spec(
        kind, data, tmp_path / "model.safetensors", minibatch_size=16, records_per_task=16,
        model_params={"limit": 4},
        **({} if kind == "evaluate" else {"prediction_outputs": str(tmp_path / "out")}),
    )  # fmt: skip
    status = run_job(spec, tmp_path)
    assert status.phase is JobPhase.SUCCEEDED, status
    assert status.progress.shrunk_minibatch_size == 4
    assert status.progress.minibatches_tried_again > 0
    [shrunk] = events(status, "MinibatchesShrunk")
    assert re.fullmatch(
        r"(evaluation|prediction) fails at 16 records a minibatch and runs at 4, with which it "
        rf"goes on: MemoryError: no room for 16 records \({ZOO}/.*\)",
        shrunk,
    )
    if kind == "evaluate":
        assert status.metrics == pytest.approx(single_pass.metrics_of(model, data), abs=1e-6)
    else:
        rows = single_pass.predicted_rows(tmp_path / "out")
        expected = single_pass.logits_of(model, data)
        assert single_pass.logits_in(rows) == pytest.approx(expected, abs=1e-6)


def test_a_prediction_that_leaves_records_out_fails_in_nothing(tmp_path):
    data = single_pass.write_records(tmp_path / "records.npz", deeds={3: 2, 17: 2})
    single_pass.save_model(tmp_path / "model.safetensors")
    spec = single_pass.single_pass_spec(
        "predict", data, tmp_path / "model.safetensors", prediction_outputs=str(tmp_path / "out")
    )
    status = run_job(spec, tmp_path)
    assert status.phase is JobPhase.SUCCEEDED, status
    assert len(single_pass.predicted_rows(tmp_path / "out")) == 48
    assert (failures_text(status.progress), events(status, "MinibatchFailed")) == ("", [])


def test_a_worker_that_dies_in_the_search_loses_nothing(data, tmp_path):
    folder = tmp_path / "deaths"
    folder.mkdir()
    (folder / "16.dies").touch()
    (folder / "8.dies").touch()
    spec = limited_spec(
        data, records_per_task=64, model_params={"limit": 8, "folder": str(folder)},
        shrink_minibatches=True,
    )  # fmt: skip
    with LocalJob(spec, tmp_path) as job:
        status = job.succeed()
        assert job.parameters()["counts"].tolist() == [1.0] * 64
    assert list(folder.iterdir()) == [], "it has died of both sizes"
    assert status.workers_lost == 2
    assert each_epoch(status) == [(64, 64, 0)]
    assert (status.progress.model_version, status.progress.shrunk_minibatch_size) == (8, 8)
