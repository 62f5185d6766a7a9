"""Evaluation at the end of a job: each record once, however slow it is and whoever dies."""

import numpy as np
import pytest
from support.gate import Gate
from support.local_job import LocalJob
from support.thread_job import events, held_spec, obedient_spec, run_job, write_records

from elastic.spec.status import JobPhase


def test_a_slow_evaluation_is_no_hang(tmp_path):
    """A task of it takes longer than the hang timeout; its minibatches do not by far."""
    train = write_records(tmp_path / "train.npz")
    test = write_records(tmp_path / "test.npz", delay_ms=150)
    spec = obedient_spec(
        train, evaluation_data_dir=str(test), hang_timeout=4, minibatch_size=2,
        records_per_task=40,
    )  # fmt: skip
    status = run_job(spec, tmp_path)
    assert status.phase is JobPhase.SUCCEEDED
    assert events(status, "WorkerHung") == []
    assert status.metrics["mean_index"] == pytest.approx(19.5, abs=1e-12)


def test_each_record_is_evaluated_once_whoever_is_killed(tmp_path):
    train = write_records(tmp_path / "train.npz")
    test = write_records(tmp_path / "test.npz", num_records=240)
    gate = Gate(tmp_path / "gate")
    spec = held_spec(
        train, gate, 240, "evaluation", evaluation_data_dir=str(test), num_workers="2",
        minibatch_size=5,
    )  # fmt: skip
    with LocalJob(spec, tmp_path) as job, gate:
        for index in (0, 1):
            # The first step checks the model, the second evaluates a quarter of a task.
            gate.allow(index, 2)
        job.wait_until(lambda _: gate.waits_for(0, 1) == gate.waits_for(1, 1) == 3)
        job.wait_until(lambda status: status.reason == "Evaluating")
        for index in (0, 1):
            assert job.kill_one("worker", index)
            job.wait_until(lambda _, n=index: gate.waits_for(n, 2) == 3)
        gate.open()
        status = job.succeed()
    assert status.workers_lost == 2
    assert status.metrics["mean_index"] == pytest.approx(np.mean(range(240)), abs=1e-6)
    assert events(status, "Evaluated") == [
        f"version 4 on 240 records: loss -0.1667, mean_index {np.mean(range(240)):.4f}"
    ]


def test_a_finished_job_resumed_with_other_records_is_evaluated_on_them(tmp_path):
    train = write_records(tmp_path / "train.npz")
    others = [
        str(write_records(tmp_path / f"test-{count}.npz", num_records=count)) for count in (20, 30)
    ]
    spec = obedient_spec(train, evaluation_data_dir=others[0], job_name="again")
    first = run_job(spec, tmp_path)
    assert first.metrics["mean_index"] == pytest.approx(9.5)
    same = run_job(spec.model_copy(update={"resume": True}), tmp_path)
    assert same.metrics == first.metrics
    assert not events(same, "Evaluated"), "nothing is computed again"
    update = {"resume": True, "evaluation_data_dir": others[1]}
    other = run_job(spec.model_copy(update=update), tmp_path)
    assert other.metrics["mean_index"] == pytest.approx(14.5)
    assert other.progress.model_version == first.progress.model_version


@pytest.mark.parametrize(
    ("settings", "evaluated"),
    [
        pytest.param({}, [5, 10, 15, 20], id="each-that-is-due"),
        pytest.param({"evaluation_start_delay_secs": 3600}, [20], id="start-delay"),
        pytest.param({"evaluation_throttle_secs": 3600}, [5, 20], id="throttle"),
        pytest.param(
            {"evaluation_throttle_secs": 3600, "evaluation_at_epoch_end": True},
            [5, 10, 15, 20],
            id="epoch-ends-wait-for-no-time",
        ),
    ],
)
def test_delays_are_honoured(settings, evaluated, tmp_path):
    train = write_records(tmp_path / "train.npz")
    test = write_records(tmp_path / "test.npz", num_records=2)
    spec = obedient_spec(
        train, evaluation_data_dir=str(test), num_epochs=4, records_per_task=40,
        **{"evaluation_steps": 5, "evaluation_start_delay_secs": 0, **settings},
    )  # fmt: skip
    status = run_job(spec, tmp_path)
    assert [each.version for each in status.evaluations] == evaluated
    assert [each.epoch for each in status.evaluations] == [v // 5 - 1 for v in evaluated]
