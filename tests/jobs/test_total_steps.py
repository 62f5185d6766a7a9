"""A schedule that asks for the number of updates is told all of them, tails and groups too."""

from pathlib import Path

import pytest
from support.thread_job import obedient_spec, run_job, write_records

from elastic.checkpoints.cuts import read_cut
from elastic.spec.status import JobPhase

# Of 42 records: ten minibatches of 4, and one of 2.
NUM_RECORDS = 42
MODES = {
    "synchronous": ({}, 22),
    "groups": ({"num_workers": "2"}, 12),
    "large-groups": ({"grads_to_wait": 4}, 6),
    "no-short-one": ({"drop_last": True}, 20),
    "asynchronous": ({"use_async": True, "num_workers": "2"}, 22),
    "local-updates": ({"get_model_steps": 2}, 22),
    "max-steps": ({"max_steps": 5}, 5),
}


@pytest.mark.parametrize("mode", MODES)
def test_it_is_exact(mode, tmp_path):
    settings, expected = MODES[mode]
    spec = obedient_spec(
        write_records(tmp_path / "train.npz", num_records=NUM_RECORDS), NUM_RECORDS,
        records_per_task=15, minibatch_size=4, num_epochs=2,
        model_def="planned.CustomModel", **settings,
    )  # fmt: skip
    status = run_job(spec, tmp_path)
    assert status.phase is JobPhase.SUCCEEDED, status
    assert status.progress.model_version == expected
    values = read_cut(Path(status.checkpoint)).optimizer.values
    assert values["plan"] == [expected, expected]
    assert values["param_groups"][0]["lr"] == pytest.approx(0.01)


def test_a_job_that_gets_more_epochs_keeps_its_last_rate(tmp_path):
    data = write_records(tmp_path / "train.npz")
    spec = obedient_spec(data, model_def="planned.CustomModel")
    run_job(spec, tmp_path)
    status = run_job(spec.model_copy(update={"resume": True, "num_epochs": 2}), tmp_path)
    assert (status.phase, status.progress.model_version) == (JobPhase.SUCCEEDED, 10)
    values = read_cut(Path(status.checkpoint)).optimizer.values
    assert values["plan"] == [5, 10]
    assert values["param_groups"][0]["lr"] == pytest.approx(0.01)
