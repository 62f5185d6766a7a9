"""A schedule that asks for the number of updates is told all of them, tails and groups too."""

from pathlib import Path

import pytest
from support.local_job import LocalJob
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


def planned_spec(tmp_path, module, **settings):
    data = write_records(tmp_path / "train.npz", num_records=NUM_RECORDS)
    defaults = {"records_per_task": 15, "minibatch_size": 4, "num_epochs": 2}
    return obedient_spec(
        data, NUM_RECORDS, model_def=f"{module}.CustomModel", **{**defaults, **settings}
    )


@pytest.mark.parametrize("mode", MODES)
def test_it_is_exact(mode, tmp_path):
    settings, expected = MODES[mode]
    status = run_job(planned_spec(tmp_path, "planned", **settings), tmp_path)
    assert status.phase is JobPhase.SUCCEEDED, status
    assert status.progress.model_version == expected
    values = read_cut(Path(status.checkpoint)).optimizer.values
    assert values["plan"] == [expected, expected]
    assert values["param_groups"][0]["lr"] == pytest.approx(0.01)


@pytest.mark.parametrize("mode", ["groups", "no-short-one", "max-steps"])
def test_it_is_exact_in_keras(mode, tmp_path):
    settings, expected = MODES[mode]
    status = run_job(planned_spec(tmp_path, "planned_keras", **settings), tmp_path)
    assert status.phase is JobPhase.SUCCEEDED, status
    assert status.progress.model_version == expected
    tensors = read_cut(Path(status.checkpoint)).optimizer.tensors
    assert tensors["last_rate"] == pytest.approx(0.01, rel=1e-4)


def test_servers_are_told_it_too(tmp_path):
    spec = planned_spec(tmp_path, "planned_spread_torch", num_workers="2", num_ps=2)
    with LocalJob(spec, tmp_path) as job:
        assert job.succeed().progress.model_version == 12
        values = job.cut().optimizer.values
    assert values["plan"] == [12, 12]
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
