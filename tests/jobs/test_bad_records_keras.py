"""The same rules where the framework is Keras, whose dataset_fn runs in a graph."""

import re
from pathlib import Path

from support.statuses import each_epoch
from support.thread_job import obedient_spec, run_job, write_records

from elastic.checkpoints.cuts import read_cut
from elastic.spec.status import JobPhase

FAILS_IN_TRAINING, IS_FILTERED, IS_NAN = 1, 3, 4


def _keras_spec(data, **settings):
    spec = obedient_spec(data, shuffle="none", **settings)
    return spec.model_copy(update={"model_def": "obedient_keras.CustomModel"})


def test_failing_and_filtered_records(tmp_path):
    deeds = {13: FAILS_IN_TRAINING, 21: IS_FILTERED, **dict.fromkeys(range(28, 40), IS_FILTERED)}
    data = write_records(tmp_path / "train.npz", deeds)
    status = run_job(_keras_spec(data, skip_bad_records=1, num_epochs=2), tmp_path)
    assert status.phase is JobPhase.FAILED, "one is allowed, and each epoch meets it again"
    assert re.fullmatch(
        rf"record 13 of '{data}' failed on 3 attempts: dataset_fn failed: InvalidArgumentError: "
        r"Error in user-defined function passed to MapDataset:\d+ transformation with iterator: "
        r"SingleElementIterator::BatchV2::FiniteTake::Map: assertion failed: "
        r"\[this record cannot be read\].*: mend the record or the model_def, or allow it with "
        r"--skip_bad_records",
        status.message,
        re.DOTALL,
    )
    status = run_job(_keras_spec(data, skip_bad_records=2, num_epochs=2), tmp_path)
    assert status.phase is JobPhase.SUCCEEDED, status
    assert each_epoch(status) == [(40, 39, 1)] * 2
    counts = read_cut(Path(status.checkpoint)).parameters
    [counts] = counts.values()
    assert counts.tolist() == [0.0 if i in deeds else 2.0 for i in range(40)]


def test_no_record_is_skipped_for_standing_alone(tmp_path):
    bad = [1, 9, 14]
    data = write_records(tmp_path / "train.npz", dict.fromkeys(bad, FAILS_IN_TRAINING))
    params = {"num_records": 40, "bears_one": False}
    status = run_job(_keras_spec(data, skip_bad_records=10, model_params=params), tmp_path)
    assert status.phase is JobPhase.SUCCEEDED, status.message
    assert each_epoch(status) == [(40, 37, 3)]
    [counts] = read_cut(Path(status.checkpoint)).parameters.values()
    assert counts.tolist() == [float(i not in bad) for i in range(40)]


def test_a_nan_loss(tmp_path):
    data = write_records(tmp_path / "train.npz", {13: IS_NAN})
    status = run_job(_keras_spec(data), tmp_path)
    assert status.phase is JobPhase.FAILED
    assert status.message == (
        f"loss is nan at step 2 on task 0 (records [8, 16) of '{data}', epoch 0): "
        "lower the learning rate, clip gradients, or look at the records"
    )
