"""Evaluation and prediction under faults: each record once, whoever is killed."""

import keras
import numpy as np
import pytest
from support.gate import Gate
from support.local_job import LocalJob, break_at_random
from support.seeds import drawn
from support.single_pass import (
    logits_in,
    logits_of,
    metrics_of,
    predicted_rows,
    save_model,
    single_pass_spec,
    write_records,
)
from support.thread_job import ZOO

from elastic.frameworks import load_framework
from elastic.spec.model_def import SymbolNames, load_model_def
from elastic.spec.platforms import Mode

NUM_RECORDS = 211  # no multiple of a task or a minibatch
FREE_RECORDS = 150
"""From here on workers wait, so that no job ends before its last fault."""
NUM_SEEDS = 10
NUM_DRAWN = 2
NOW = drawn(range(NUM_SEEDS), NUM_DRAWN, "single pass")

SEEDS = [
    pytest.param(seed, marks=[] if seed in NOW else [pytest.mark.soak]) for seed in range(NUM_SEEDS)
]


def broken_job(kind, tmp_path, seed, **settings):
    """Run a job that is broken at random; gives its status, and what was done to it."""
    data = write_records(tmp_path / "data.npz", NUM_RECORDS, seed=seed)
    gate = Gate(tmp_path / "gate")
    spec = single_pass_spec(
        kind, data, tmp_path / "model.safetensors",
        model_params={
            "gate": str(gate.folder), "free_records": FREE_RECORDS, "delay_ms": 20,
        },
        num_workers="1:3",
        # To wait at the gate is no hang.
        hang_timeout=3600, seed=seed, **settings,
    )  # fmt: skip
    with LocalJob(spec, tmp_path) as job, gate:
        faults = break_at_random(job, gate, seed, num_faults=6, max_workers=3)
        return job.succeed(), faults


@pytest.mark.parametrize("seed", SEEDS)
def test_the_metrics_are_those_of_a_plain_evaluation_whatever_dies(tmp_path, seed):
    model = save_model(tmp_path / "model.safetensors", seed)
    status, faults = broken_job("evaluate", tmp_path, seed)
    expected = metrics_of(model, tmp_path / "data.npz")
    assert status.metrics == pytest.approx(expected, abs=1e-6), faults
    assert (status.progress.records_done, status.progress.records_total) == (211, 211), faults


@pytest.mark.parametrize("seed", SEEDS)
def test_each_record_is_predicted_once_whatever_dies(tmp_path, seed):
    model = save_model(tmp_path / "model.safetensors", seed)
    out = tmp_path / "out"
    _, faults = broken_job("predict", tmp_path, seed, prediction_outputs=str(out))
    rows = predicted_rows(out)
    assert list(rows) == list(range(NUM_RECORDS)), faults
    expected = logits_of(model, tmp_path / "data.npz")
    np.testing.assert_allclose(logits_in(rows), expected, atol=1e-6)


def test_keras_metric_objects_are_those_of_all_records_whatever_dies(tmp_path):
    """Their values are no means: only sums that add up exactly give them."""
    write_records(tmp_path / "data.npz", NUM_RECORDS, {5: 2, 77: 2}, seed=3)
    arrays = dict(np.load(tmp_path / "data.npz"))
    definition = load_model_def(ZOO, "single_pass_keras.CustomModel", SymbolNames())
    framework = load_framework("keras")
    records = [{name: array[i] for name, array in arrays.items()} for i in range(NUM_RECORDS)]
    batch = framework.make_batch(definition, records, Mode.EVALUATION)
    model = framework.build_model(definition, {}, batch, 5)
    exported = model.export(str(tmp_path / "model.keras"))
    predictions = model.model(batch.features, training=False)
    metrics = {
        "auc": keras.metrics.AUC(),
        "precision": keras.metrics.Precision(),
        "accuracy": keras.metrics.BinaryAccuracy(),
    }
    for metric in metrics.values():
        metric.update_state(batch.labels, predictions)
    status, faults = broken_keras_job(tmp_path, exported)
    found = {name: status.metrics[name] for name in metrics}
    expected = {name: float(metric.result()) for name, metric in metrics.items()}
    assert found == pytest.approx(expected, abs=1e-6), faults


def broken_keras_job(tmp_path, exported):
    gate = Gate(tmp_path / "gate")
    spec = single_pass_spec(
        "evaluate", tmp_path / "data.npz", exported, model_def="single_pass_keras.CustomModel",
        model_params={"gate": str(gate.folder), "free_records": FREE_RECORDS},
        num_workers="1:2", hang_timeout=3600,
    )  # fmt: skip
    with LocalJob(spec, tmp_path) as job, gate:
        faults = break_at_random(job, gate, 4, num_faults=4, max_workers=2)
        return job.succeed(), faults


def test_a_killed_master_goes_on_with_what_has_its_predictions(tmp_path):
    save_model(tmp_path / "model.safetensors")
    data = write_records(tmp_path / "data.npz", NUM_RECORDS)
    gate = Gate(tmp_path / "gate")
    out = tmp_path / "out"
    spec = single_pass_spec(
        "predict", data, tmp_path / "model.safetensors", prediction_outputs=str(out),
        model_params={"gate": str(gate.folder), "free_records": FREE_RECORDS}, hang_timeout=3600,
    )  # fmt: skip
    with LocalJob(spec, tmp_path) as job, gate:
        job.wait_until(lambda status: status.progress.records_done == FREE_RECORDS)
        written = {path: path.stat().st_mtime_ns for path in out.glob("part-*")}
        assert job.kill_one("master", 0)
        status = job.wait_until(lambda status: status.master_restarts == 1)
        status = job.wait_until(lambda status: status.progress.records_done == FREE_RECORDS)
        gate.open()
        status = job.succeed()
    assert {path: path.stat().st_mtime_ns for path in written} == written
    assert [e.message for e in status.events if e.kind == "Resumed"] == [
        "150 of 211 records have been predicted already"
    ]
    assert list(predicted_rows(out)) == list(range(NUM_RECORDS))


def test_a_worker_that_is_asked_to_leave_gives_its_task_back_whole(tmp_path):
    model = save_model(tmp_path / "model.safetensors")
    data = write_records(tmp_path / "data.npz", 60)
    out = tmp_path / "out"
    spec = single_pass_spec(
        "predict", data, tmp_path / "model.safetensors", prediction_outputs=str(out),
        records_per_task=60, num_workers="1:2", model_params={"delay_ms": 150},
    )  # fmt: skip
    with LocalJob(spec, tmp_path) as job:
        status = job.wait_until(lambda status: any(w.records_done for w in status.workers))
        (busy,) = (worker for worker in status.workers if worker.records_done)
        job.kill_one("worker", busy.index, 15)
        status = job.succeed()
    assert status.worker_failures == 0
    rows = predicted_rows(out)
    np.testing.assert_allclose(logits_in(rows), logits_of(model, data), atol=1e-6)
    assert [path.name for path in out.glob("part-*")] == [
        "part-00000-000000000000-000000000060.csv"
    ]
