"""By columns as by records: what fails is found, named and skipped, and nothing else is lost."""

from pathlib import Path

import numpy as np
import pytest
from support.single_pass import logits_in, logits_of, predicted_rows, save_model, single_pass_spec
from support.single_pass import write_records as write_predicted
from support.statuses import each_epoch
from support.thread_job import ZOO, events, obedient_spec, run_job, write_records

from elastic.checkpoints.cuts import read_cut
from elastic.spec.status import JobPhase

FAILS_IN_TRAINING, FAILS_IN_EVALUATION, IS_FILTERED, IS_NAN = range(1, 5)


def column_spec(data, **settings):
    return obedient_spec(data, model_def="obedient_columns.CustomModel", **settings)


def _counts(status):
    return read_cut(Path(status.checkpoint)).parameters["counts"].tolist()


def _failure(index):
    return (
        f"batch_fn failed: ValueError: record {index} cannot be read ({ZOO}/obedient_columns.py:22)"
    )


@pytest.mark.parametrize("shuffle", ["records", "none"])
def test_the_record_at_fault_is_found_named_and_skipped(shuffle, tmp_path):
    data = write_records(tmp_path / "train.npz", {13: FAILS_IN_TRAINING})
    spec = column_spec(data, skip_bad_records=2, shuffle=shuffle, num_epochs=2)
    status = run_job(spec, tmp_path)
    assert status.phase is JobPhase.SUCCEEDED
    assert each_epoch(status) == [(40, 39, 1)] * 2
    assert (
        events(status, "RecordSkipped")
        == [f"record 13 of '{data}' failed for good: {_failure(13)}"] * 2
    )
    assert _counts(status) == [0.0 if index == 13 else 2.0 for index in range(40)]


def test_a_record_that_may_not_be_skipped_ends_the_job(tmp_path):
    data = write_records(tmp_path / "train.npz", {13: FAILS_IN_TRAINING})
    status = run_job(column_spec(data, max_task_failures=2), tmp_path)
    assert (status.phase, status.reason) == (JobPhase.FAILED, "Training")
    assert status.message == (
        f"record 13 of '{data}' failed on 2 attempts: {_failure(13)}: mend the record or the "
        "model_def, or allow it with --skip_bad_records"
    )


def test_a_row_that_cannot_be_read_is_skipped_alone(tmp_path):
    """In a chunk of text whose other rows count."""
    data = tmp_path / "train.csv"
    rows = [f"{index},0,0\n" for index in range(40)]
    rows[17] = "17,none,0\n"
    data.write_text("index,deed,delay_ms\n" + "".join(rows))
    params = {"types": {"deed": "int64"}}
    spec = column_spec(data, skip_bad_records=1, data_reader_params=params)
    status = run_job(spec, tmp_path)
    assert status.phase is JobPhase.SUCCEEDED, status.message
    assert each_epoch(status) == [(40, 39, 1)]
    [skipped] = events(status, "RecordSkipped")
    assert f"{data}, line 19 (record 17): column 'deed' holds 'none', which is no int64" in skipped
    assert _counts(status) == [index != 17 for index in range(40)]


def test_rows_that_are_left_out_count_as_done(tmp_path):
    filtered = [*range(8, 16), 20, *range(32, 40)]
    data = write_records(tmp_path / "train.npz", dict.fromkeys(filtered, IS_FILTERED))
    spec = column_spec(data, evaluation_data_dir=str(data), shuffle="none", minibatch_size=4)
    status = run_job(spec, tmp_path)
    assert status.phase is JobPhase.SUCCEEDED
    assert each_epoch(status) == [(40, 40, 0)]
    assert _counts(status) == [index not in filtered for index in range(40)]
    kept = [index for index in range(40) if index not in filtered]
    assert status.metrics["mean_index"] == pytest.approx(np.mean(kept), abs=1e-12)


def test_data_without_any_example_is_said_at_the_start(tmp_path):
    data = write_records(tmp_path / "train.npz", dict.fromkeys(range(40), IS_FILTERED))
    status = run_job(column_spec(data), tmp_path)
    assert (status.phase, status.reason) == (JobPhase.FAILED, "ModelDef")
    assert status.message.startswith("batch_fn made no example of the first 8 records")


def test_a_record_that_fails_in_evaluation_is_in_no_metric(tmp_path):
    train = write_records(tmp_path / "train.npz")
    test = write_records(tmp_path / "test.npz", {39: FAILS_IN_EVALUATION})
    spec = column_spec(train, evaluation_data_dir=str(test), skip_bad_records=1)
    status = run_job(spec, tmp_path)
    assert status.phase is JobPhase.SUCCEEDED
    assert status.metrics["mean_index"] == pytest.approx(np.mean(range(39)), abs=1e-12)


def test_what_is_not_finite_names_its_records(tmp_path):
    data = write_records(tmp_path / "train.npz", {13: IS_NAN})
    status = run_job(column_spec(data, shuffle="none"), tmp_path)
    assert status.phase is JobPhase.FAILED
    assert f"records [8, 16) of '{data}'" in status.message


def test_the_last_short_minibatch_may_be_left_out(tmp_path):
    data = write_records(tmp_path / "train.npz", num_records=43)
    spec = column_spec(
        data, model_params={"num_records": 43}, drop_last=True, num_epochs=2, num_workers=2
    )
    status = run_job(spec, tmp_path)
    assert status.phase is JobPhase.SUCCEEDED
    assert each_epoch(status) == [(43, 40, 0)] * 2
    assert sum(_counts(status)) == 80


FAILS, IS_DROPPED, IS_DOUBLED = 1, 2, 3


def predict(tmp_path, deeds, **settings):
    """Run one prediction by columns; gives the status, its rows, and what is right."""
    data = write_predicted(tmp_path / "data.npz", 50, deeds)
    path = tmp_path / "model.safetensors"
    model = save_model(path)
    spec = single_pass_spec(
        "predict", data, path, model_def="single_pass_columns.CustomModel", **settings
    )
    status = run_job(spec, tmp_path / "cuts")
    return status, logits_of(model, data)


def test_predictions_have_their_rows_but_for_those_left_out_and_those_skipped(tmp_path):
    gone = {3: IS_DROPPED, 17: FAILS, **dict.fromkeys(range(20, 30), IS_DROPPED)}
    status, expected = predict(tmp_path, gone, skip_bad_records=1)
    assert status.phase is JobPhase.SUCCEEDED, status.message
    rows = predicted_rows(Path(status.predictions))
    left = [index for index in range(50) if index not in gone]
    assert list(rows) == left
    np.testing.assert_allclose(logits_in(rows), expected[left], atol=1e-6)


def test_two_examples_of_one_predicted_record_are_an_error_that_names_it(tmp_path):
    status, _ = predict(tmp_path, {6: IS_DOUBLED})
    assert status.phase is JobPhase.FAILED
    assert "record 6 of" in status.message
    assert "batch_fn made 2 examples of 1 records" in status.message
