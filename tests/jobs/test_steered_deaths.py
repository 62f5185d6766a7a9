"""A master that is killed between evaluations, or within one, decides as it would have."""

import contextlib
import json
from pathlib import Path

import pytest
from support.local_job import LocalJob
from support.thread_job import ZOO, events, obedient_spec, write_records

from elastic.checkpoints.contents import read_manifest
from elastic.checkpoints.cuts import list_cuts, read_cut
from elastic.errors import CheckpointError

VALUES = [5.0, 4.0, 3.0, 3.5, 3.5, 4.0, 4.0, 1.0]
UPDATES = 5  # of an epoch
LOG = "log.csv"

TORCH = (
    "steered.CustomModel",
    {"num_records": 40},
    {"monitor": "val_value", "mode": "min", "patience": 3, "restore_best": True},
)
KERAS = (
    "steered_keras.custom_model",
    {},
    {"monitor": "val_value", "mode": "min", "patience": 3, "restore_best_weights": True},
)


def _spec(tmp_path, framework, **settings):
    model_def, params, stopping = framework
    plan = tmp_path / "plan.json"
    use = [["EarlyStopping", stopping]]
    if framework is KERAS:
        use.append(["CSVLogger", {"filename": str(tmp_path / LOG)}])
    plan.write_text(json.dumps({"values": VALUES, "use": use}))
    train = write_records(tmp_path / "train.npz", delay_ms=2)
    test = write_records(tmp_path / "test.npz", delay_ms=25)
    spec = obedient_spec(
        train, records_per_task=40, evaluation_data_dir=str(test), num_epochs=len(VALUES),
        num_workers="2", grads_to_wait=1, **{"recovery_interval": 0.05, **settings},
    )  # fmt: skip
    update = {
        "model_zoo": ZOO,
        "model_def": model_def,
        "model_params": {**params, "plan": str(plan)},
    }
    return spec.model_copy(update=update)


def _is_beyond(job, version):
    """Whether the newest cut is of a later version than the one that it says is evaluated."""
    newest = next(iter(list_cuts(job.directory.cuts_path)), None)
    with contextlib.suppress(CheckpointError):  # removed for a newer one just now
        manifest = read_manifest(newest) if newest else None
        evaluating = manifest and manifest.steering["evaluating"]
        return bool(evaluating) and manifest.version > version == evaluating[0]
    return False


def _kill_master(job):
    restarts = job.status().master_restarts
    assert job.kill_one("master", 0)
    job.wait_until(lambda status: status.master_restarts > restarts)


def _check(status, framework, tmp_path):
    assert status.reason == "EarlyStopping", "\n".join(
        [e.message for e in status.events] + [str(each) for each in status.evaluations]
    )
    assert [each.metrics["value"] for each in status.evaluations] == VALUES[:6]
    assert [each.version for each in status.evaluations] == [UPDATES * n for n in range(1, 7)]
    assert (status.best.version, status.metrics["value"]) == (15, 3.0)
    assert Path(status.checkpoint).parent.name == "best"
    (parameter,) = [
        array for name, array in read_cut(Path(status.checkpoint)).parameters.items()
        if name in ("counts", "weight/kernel")
    ]  # fmt: skip
    assert set(parameter.ravel().tolist()) == {3.0 if parameter.size > 1 else 15.0}
    assert not events(status, "EvaluationLost")
    if framework is KERAS:
        epochs = [line.split(",")[0] for line in (tmp_path / LOG).read_text().splitlines()]
        assert epochs == ["epoch", "0", "1", "2", "3", "4", "5"]


@pytest.mark.parametrize(
    ("framework", "interval_s"),
    [
        pytest.param(TORCH, 0.05, id="torch"),
        pytest.param(KERAS, 0.05, id="keras"),
        # What is gone back to is what was written for the evaluations themselves.
        pytest.param(TORCH, 3600, id="without-other-cuts"),
    ],
)
def test_a_master_killed_between_evaluations_decides_the_same(framework, interval_s, tmp_path):
    with LocalJob(_spec(tmp_path, framework, recovery_interval=interval_s), tmp_path) as job:
        for seen in (1, 3, 4):
            # Told already, and perhaps in a cut, perhaps not.
            job.wait_until(lambda status, n=seen: len(status.evaluations) >= n)
            _kill_master(job)
        status = job.succeed()
    assert status.master_restarts == 3
    _check(status, framework, tmp_path)


@pytest.mark.parametrize("framework", [TORCH, KERAS], ids=["torch", "keras"])
def test_a_master_killed_within_an_evaluation_begins_it_again(framework, tmp_path):
    """The version is an old one by then; later ones are in the cut that is gone back to."""
    with LocalJob(_spec(tmp_path, framework), tmp_path) as job:
        for epoch in (1, 3):
            under_evaluation = UPDATES * (epoch + 1)
            job.wait_until(lambda _, v=under_evaluation: _is_beyond(job, v))
            _kill_master(job)
            resumed = job.wait_until(lambda s, n=epoch: len(s.evaluations) > n)
            assert events(resumed, "Resumed")
        status = job.succeed()
    _check(status, framework, tmp_path)
