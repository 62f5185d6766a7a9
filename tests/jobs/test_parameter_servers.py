"""Jobs with parameter servers: what they tell, what they leave, and who may end when."""

import json
import signal
from collections import Counter

import numpy as np
import pytest
from safetensors.numpy import load_file
from support.datasets import prepared_dir
from support.gate import Gate
from support.local_job import LocalJob, end_and_wait, make_spec, suspend
from support.scraping import free_ports, scrape, value
from support.statuses import each_epoch
from support.thread_job import ZOO

from elastic.checkpoints.cuts import list_cuts, version_of
from elastic.policy.replicas import ReplicaPhase
from elastic.spec.status import JobPhase

NUM_RECORDS = 101


def spec_of(**settings):
    params = {"num_records": NUM_RECORDS, **settings.pop("model_params", {})}
    defaults = {"num_epochs": 2, "num_workers": 2, "num_ps": 2, "model_zoo": str(ZOO)}
    return make_spec(
        settings.pop("model_def", "spread_counting_torch.CustomModel"),
        prepared_dir("counting", num_records=NUM_RECORDS) / "train.npz",
        model_params=params,
        **{**defaults, **settings},
    )


def counted(job, num_epochs):
    """That each record is as often in the parameters as there were epochs."""
    for name, counts in job.parameters().items():
        np.testing.assert_array_equal(counts, num_epochs, err_msg=name)


def kinds(status):
    return Counter(event.kind for event in status.events)


def test_a_server_that_dies_costs_no_other_process_its_life(tmp_path):
    """Its log names its launches; evaluation, commit log and export are as without a death."""
    gate, log = Gate(tmp_path / "gate"), tmp_path / "commits.jsonl"
    spec = spec_of(
        model_params={"gate": str(gate.folder), "free_records": NUM_RECORDS},
        evaluation_data_dir=str(prepared_dir("counting", num_records=NUM_RECORDS) / "train.npz"),
        evaluation_at_epoch_end=True,
        commit_log=str(log),
        output=str(tmp_path / "model.safetensors"),
        hang_timeout=3600,
    )
    with LocalJob(spec, tmp_path) as job, gate:
        # What is evaluated is a cut, which may be written after it counts as done.
        cuts = job.directory.path / "cuts"
        job.wait_until(
            lambda status: (
                status.progress.records_done >= NUM_RECORDS
                and version_of(list_cuts(cuts)[0]) == status.progress.model_version
            )
        )
        others = job.pids("worker"), job.pids("master"), job.pids("ps")[0]
        end_and_wait(job.pids("ps")[1])
        status = job.wait_until(lambda status: status.phase is JobPhase.RECOVERING)
        assert status.reason == "ParametersLost"
        assert "back to its newest cut" in status.message
        job.wait_until(lambda status: kinds(status)["Resumed"])
        gate.open()
        status = job.succeed()
        told = [each for each in job.directory.observed() if each.replica.id.role != "ps"]
        pids = {(e.replica.id.role, e.replica.id.index): e.replica.pid for e in told}
        assert pids == {
            **{("worker", index): pid for index, pid in others[0].items()},
            **{("master", index): pid for index, pid in others[1].items()},
        }
        counted(job, 2)
        assert job.cut().state["frozen"].tolist() == [1.0] * 5
        lines = [line.text for line in job.platform.logs("job", ["ps-1"], False, None)]
    assert sum("launch 1 of ps-1" in line for line in lines) == 1
    assert sum("launch 2 of ps-1" in line for line in lines) == 1
    assert each_epoch(status) == [(NUM_RECORDS, NUM_RECORDS, 0)] * 2
    assert kinds(status)["ServerLost"] == kinds(status)["ServerStarted"] == 1
    assert status.workers_lost == status.master_restarts == status.worker_failures == 0
    # Nothing had counted since the cut.
    assert (status.servers_lost, status.progress.computed_again) == (1, 0)
    rows = {(row.role, row.index): row for row in status.workers}
    assert rows["ps", 1].launch == 2
    assert rows["ps", 0].launch == rows["worker", 0].launch == 1
    assert {row.phase for row in status.workers} == {str(ReplicaPhase.SUCCEEDED)}
    assert status.metrics["mean_count"] == 2
    assert {
        name: set(a.reshape(-1)) for name, a in load_file(spec.output).items() if "parts" in name
    } == {f"parts.{part}": {2.0} for part in range(3)}
    # Lines of what was lost are not there, so each record stands behind one update an epoch.
    commits = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["version"] for line in commits] == list(range(1, len(commits) + 1))
    for epoch in range(2):
        records = Counter(
            record
            for line in commits
            if line["epoch"] == epoch
            for _, start, end in line["records"]
            for record in range(start, end)
        )
        assert records == Counter(range(NUM_RECORDS))


@pytest.mark.parametrize(("before", "after"), [(2, 0), (0, 2)])
def test_a_job_goes_on_with_other_servers(before, after, tmp_path):
    spec = spec_of(num_ps=before, num_epochs=1)
    with LocalJob(spec, tmp_path) as job:
        job.succeed()
        counted(job, 1)
    spec = spec_of(num_ps=after, resume=True)
    with LocalJob(spec, tmp_path) as job:
        status = job.succeed()
        counted(job, 2)
    assert kinds(status)["Resumed"] == 1


def test_a_job_that_servers_cannot_do_does_not_start(tmp_path):
    with LocalJob(spec_of(num_ps=4), tmp_path) as job:
        status = job.wait()
    assert (status.phase, status.reason) == (JobPhase.FAILED, "ModelDef")
    assert status.message == (
        "num_ps=4 are more servers than the model's 3 parameters can be spread over: give fewer"
    )
    assert status.progress.model_version == 0


@pytest.mark.soak
def test_a_server_that_is_stopped_is_replaced(tmp_path):
    """Twenty seconds without a word of it have to pass."""
    gate = Gate(tmp_path / "gate")
    spec = spec_of(
        model_params={"gate": str(gate.folder), "free_records": NUM_RECORDS}, hang_timeout=3600
    )
    with LocalJob(spec, tmp_path) as job, gate:
        job.wait_until(lambda status: status.progress.records_done >= NUM_RECORDS)
        suspend(job.pids("ps")[0])
        gate.open()
        status = job.succeed()
        counted(job, 2)
    assert kinds(status)["ServerHung"] == 1


def test_a_server_that_is_asked_to_end_is_lost_like_any_other(tmp_path):
    """What had counted since the first cut, which is of no record, is computed again."""
    gate, port = Gate(tmp_path / "gate"), free_ports()
    spec = spec_of(
        model_params={"gate": str(gate.folder), "free_records": NUM_RECORDS},
        hang_timeout=3600,
        recovery_interval=3600,
        metrics_port=port,
    )
    with LocalJob(spec, tmp_path) as job, gate:
        job.wait_until(lambda status: status.progress.records_done >= NUM_RECORDS)
        assert job.kill_one("ps", 0, signal.SIGTERM)
        job.wait_until(lambda status: kinds(status)["Resumed"])
        again = "elastic_records_computed_again_total"
        job.wait_until(lambda _: value(scrape(port), again) == NUM_RECORDS)
        assert value(scrape(port), "elastic_servers_lost_total", role="ps") == 1
        gate.open()
        status = job.succeed()
        counted(job, 2)
    assert (status.servers_lost, status.progress.computed_again) == (1, NUM_RECORDS)
