"""`--metrics_port`: what a running job exports, and that the dashboard asks for nothing else."""

import asyncio
import json
import re
import socket
from pathlib import Path

import pytest
from support import single_pass
from support.gate import Gate
from support.local_job import LocalJob
from support.scraping import free_ports, scrape, value
from support.served_master import ServedMaster
from support.thread_job import (
    ThreadJob,
    events,
    held_spec,
    obedient_spec,
    write_records,
)

from elastic.master.status_board import StatusBoard
from elastic.master.telemetry import COUNTS_NAME, Telemetry
from elastic.policy.tasks.ledger import Ledger, LedgerConfig
from elastic.policy.tasks.records import Shard, Task, TaskKind
from elastic.spec.status import JobPhase, JobStatus, Progress
from elastic.telemetry import prometheus
from elastic.telemetry.meter import LEASE_LOST, STALE, Counts, KeptCounts
from elastic.telemetry.prometheus import series_names

DASHBOARD = Path(__file__).parents[2] / "manifests" / "grafana-dashboard.json"


OF_A_CHOSEN_BATCH = {"elastic_batch_records", "elastic_gradient_noise_records"}
"""Looked at by `test_elastic_batch.py`: no other job has them."""


def queried_names():
    """The metrics that the dashboard's panels and variables ask for."""
    dashboard = json.loads(DASHBOARD.read_text())
    texts = [t["expr"] for panel in dashboard["panels"] for t in panel.get("targets", [])]
    texts += [str(v.get("query", "")) for v in dashboard["templating"]["list"]]
    return {name for text in texts for name in re.findall(r"elastic_[a-z_]+", text)}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """What master and worker of a job export that has done everything there is to measure."""
    folder = tmp_path_factory.mktemp("job")
    gate, port = Gate(folder / "gate"), free_ports(2)
    test = write_records(folder / "test.npz", num_records=8)
    spec = held_spec(
        write_records(folder / "train.npz"), gate, records_per_task=16, metrics_port=port,
        evaluation_data_dir=str(test), evaluation_steps=1, evaluation_start_delay_secs=0,
        recovery_interval=0.1,
    )  # fmt: skip
    with LocalJob(spec, folder) as job, gate:
        gate.allow(0, 4)
        job.wait_until(lambda status: status.metrics and status.progress.model_version == 4)
        job.wait_until(lambda _: value(scrape(port), "elastic_checkpoint_seconds_count") > 0)
        job.wait_until(lambda _: "elastic_evaluation_metric" in scrape(port))
        job.wait_until(lambda _: value(scrape(port), "elastic_updates_total") == 4)
        master, worker = scrape(port), scrape(port + 1)
        gate.open()
        job.succeed()
    return master, worker


def test_the_master_exports_all_of_its_metrics(exported):
    master, _ = exported
    expected = {name for metric in prometheus.MASTER_METRICS for name in series_names(metric)}
    assert {name for name in master if name.startswith("elastic_")} == expected - OF_A_CHOSEN_BATCH


def test_a_worker_exports_all_of_its_metrics(exported):
    _, worker = exported
    expected = {name for metric in prometheus.WORKER_METRICS for name in series_names(metric)}
    assert {name for name in worker if name.startswith("elastic_")} == expected


def test_they_say_how_the_job_stands(exported):
    master, worker = exported
    assert value(master, "elastic_records_committed_total", job_name="job") == 32
    assert value(master, "elastic_model_version") == 4
    assert value(master, "elastic_epoch") == 0
    assert value(master, "elastic_workers", state="running") == 1
    assert value(master, "elastic_task_queue", state="leased") == 1
    assert value(master, "elastic_update_seconds_count") == 4
    assert value(worker, "elastic_worker_step_seconds_count", worker="0") >= 4
    assert value(worker, "elastic_worker_sent_bytes_total") > 0
    assert value(worker, "elastic_worker_received_bytes_total") > 0


@pytest.mark.sampled(2)
def test_the_dashboard_asks_for_nothing_else(exported):
    names = OF_A_CHOSEN_BATCH.union(*exported)
    queried = queried_names()
    assert len(queried) > 15
    assert queried <= names, queried - names


def test_counters_do_not_fall_when_a_master_is_killed(tmp_path):
    """Prometheus takes one that falls for one that began at 0, and adds all of it once more."""
    gate, port = Gate(tmp_path / "gate"), free_ports()
    # No cut comes in time: the job goes back to its first record.
    spec = held_spec(
        write_records(tmp_path / "train.npz"), gate, records_per_task=40, metrics_port=port
    )
    names = ("elastic_updates_total", "elastic_records_committed_total")
    with LocalJob(spec, tmp_path) as job, gate:
        gate.allow(0, 4)
        told = job.wait_until(lambda status: status.progress.model_version == 4).progress
        job.wait_until(lambda _: value(scrape(port), "elastic_updates_total") == 4)
        before = scrape(port)
        assert job.kill_one("master", 0)
        job.wait_until(lambda status: status.master_restarts == 1)
        job.wait_until(lambda _: answers(port))
        after = scrape(port)
        gate.open()
        status = job.succeed()
    assert status.progress.computed_again == told.records_done > 0
    for name in names:
        assert value(after, name) >= value(before, name) > 0
    assert value(after, "elastic_master_restarts_total") == 1


@pytest.mark.parametrize(
    ("scraped", "told", "begun_with"),
    [
        pytest.param({LEASE_LOST: 2}, 10, {LEASE_LOST: 2, STALE: 8}, id="refused-since"),
        pytest.param({LEASE_LOST: 2, STALE: 9}, 10, {LEASE_LOST: 2, STALE: 9}, id="told-late"),
        pytest.param({}, 10, {STALE: 10}, id="never-scraped"),
        pytest.param({}, 0, {}, id="none"),
    ],
)
def test_refused_gradients_are_at_least_those_of_the_status(tmp_path, scraped, told, begun_with):
    """Prometheus may have asked last long before the master died."""
    spec = obedient_spec(write_records(tmp_path / "train.npz"), metrics_port=free_ports())
    env = ThreadJob(spec, tmp_path / "cuts").environment
    env.runner.publish_status(JobStatus(job_name="job", progress=Progress(rejected_gradients=told)))
    KeptCounts(env.recovery_dir.with_name(COUNTS_NAME)).keep(Counts(rejected=scraped))
    telemetry = Telemetry(env, StatusBoard.open(spec, env.runner), is_first_life=False)
    telemetry.start()
    telemetry.attach(ServedMaster().job)
    assert telemetry.sample().counts.rejected == begun_with
    asyncio.run(telemetry.close())


def answers(port):
    try:
        return "elastic_updates_total" in scrape(port)
    except OSError:
        return False


def test_a_port_in_use_ends_the_job_before_it_begins(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        spec = obedient_spec(write_records(tmp_path / "train.npz"), metrics_port=port)
        status = ThreadJob(spec, tmp_path / "cuts").run()
    assert status.phase is JobPhase.FAILED
    assert f"metrics_port={port} cannot be listened at" in status.message
    assert "0 for no metrics" in status.message


def test_a_worker_whose_port_is_in_use_works_without(tmp_path):
    port = free_ports(2)
    spec = obedient_spec(write_records(tmp_path / "train.npz"), metrics_port=port)
    with socket.create_server(("127.0.0.1", port + 1)), LocalJob(spec, tmp_path) as job:
        status = job.succeed()
        assert "worker 0 serves no metrics" in job.logs()
    assert events(status, "WorkerFailed") == []


def test_a_job_of_one_pass_tells_its_records(tmp_path):
    """Those of its one pass: it trains none."""
    data = single_pass.write_records(tmp_path / "data.npz", 50)
    single_pass.save_model(tmp_path / "model.safetensors")
    spec = single_pass.single_pass_spec("evaluate", data, tmp_path / "model.safetensors")
    env = ThreadJob(spec, tmp_path / "cuts").environment
    telemetry = Telemetry(env, StatusBoard.open(spec, env.runner), is_first_life=True)
    ledger = Ledger([Shard("s", 0, 50)], LedgerConfig(10, 1, kind=TaskKind.EVALUATION))
    telemetry.attach_pass(ServedMaster().job, ledger)
    done, _ = ledger.lease("a"), ledger.lease("b")
    ledger.commit([ledger.stage(done.task_id, 0, done.records.start, done.records.end)])
    sample = telemetry.sample()
    assert (sample.counts.records_committed, sample.tasks) == (10, {"queued": 3, "leased": 1})
    while isinstance(task := ledger.lease("b"), Task):
        ledger.commit([ledger.stage(task.task_id, 0, task.records.start, task.records.end)])
    ledger.lose_worker("b")
    task = ledger.lease("c")
    ledger.commit([ledger.stage(task.task_id, 1, task.records.start, task.records.end)])
    assert telemetry.sample().counts.records_committed == 50
