"""`--max_steps`: training ends after so many updates exactly, and says what it left out."""

from pathlib import Path

import pytest
from support.thread_job import events, obedient_spec, run_job, write_records

from elastic.checkpoints.cuts import read_cut
from elastic.spec.status import CutShort, JobPhase
from elastic.telemetry.summary import summary_lines

MODES = {
    "synchronous": {},
    "groups": {"grads_to_wait": 2, "num_workers": "2"},
    "asynchronous": {"use_async": True, "num_workers": "2"},
    "local-updates": {"get_model_steps": 3, "num_workers": "2"},
}


def _counted(status):
    return int(read_cut(Path(status.checkpoint)).parameters["counts"].sum())


@pytest.mark.parametrize("mode", MODES)
def test_training_ends_after_so_many_updates_exactly(mode, tmp_path):
    data = write_records(tmp_path / "train.npz")
    spec = obedient_spec(data, minibatch_size=5, num_epochs=3, max_steps=7, **MODES[mode])
    status = run_job(spec, tmp_path)
    assert (status.phase, status.reason) == (JobPhase.SUCCEEDED, "MaxSteps")
    assert status.message == "training ended after 7 updates: max_steps=7"
    progress = status.progress
    assert progress.model_version == 7
    assert progress.records_done == _counted(status)
    assert progress.records_done >= 7 * 5
    assert len(status.audits) == progress.records_done // 40
    if mode == "synchronous":
        assert status.cut_short == CutShort(epoch=0, records=40, committed=35, skipped=0)
        lines = list(summary_lines(status, 0.0))
        assert "MaxSteps: training ended after 7 updates: max_steps=7" in lines
        assert "epoch 0, cut short: 40 records = 35 committed + 0 skipped + 5 left out" in lines


@pytest.mark.parametrize("mode", MODES)
def test_a_resumed_job_goes_on_to_a_higher_bound(mode, tmp_path):
    data = write_records(tmp_path / "train.npz")
    spec = obedient_spec(data, minibatch_size=5, max_steps=2, num_epochs=2, **MODES[mode])
    run_job(spec, tmp_path)
    more = spec.model_copy(update={"resume": True, "max_steps": 3})
    status = run_job(more, tmp_path)
    assert status.progress.model_version == 3
    assert _counted(status) == status.progress.records_done
    whole = spec.model_copy(update={"resume": True, "max_steps": 0})
    status = run_job(whole, tmp_path)
    assert (status.phase, status.reason) == (JobPhase.SUCCEEDED, "Succeeded")
    assert status.cut_short is None
    assert read_cut(Path(status.checkpoint)).parameters["counts"].tolist() == [2.0] * 40


def test_the_model_is_evaluated_and_exported_as_it_is_then(tmp_path):
    data = write_records(tmp_path / "train.npz")
    spec = obedient_spec(
        data, max_steps=2, evaluation_data_dir=str(data), output=str(tmp_path / "model")
    )
    status = run_job(spec, tmp_path)
    assert len(events(status, "Evaluated")) == 1
    assert events(status, "Evaluated")[0].startswith("version 2 on 40 records")
    assert status.export == str(tmp_path / "model.safetensors")
    again = run_job(spec.model_copy(update={"resume": True}), tmp_path)
    assert again.reason == "MaxSteps"
    assert again.metrics == status.metrics
    assert not events(again, "Evaluated"), "nothing is computed again"


def test_a_bound_beyond_the_last_epoch_ends_nothing(tmp_path):
    data = write_records(tmp_path / "train.npz")
    status = run_job(obedient_spec(data, max_steps=5), tmp_path)
    assert (status.reason, status.progress.model_version) == ("Succeeded", 5)
    status = run_job(obedient_spec(data, max_steps=100, job_name="other"), tmp_path / "other")
    assert (status.reason, status.progress.model_version) == ("Succeeded", 5)


def test_a_lower_bound_than_was_trained_is_refused(tmp_path):
    data = write_records(tmp_path / "train.npz")
    spec = obedient_spec(data, max_steps=4)
    run_job(spec, tmp_path)
    status = run_job(spec.model_copy(update={"resume": True, "max_steps": 3}), tmp_path)
    assert (status.phase, status.reason) == (JobPhase.FAILED, "Checkpoint")
    assert status.message.endswith("has 4 updates, this job has max_steps=3: raise it")
