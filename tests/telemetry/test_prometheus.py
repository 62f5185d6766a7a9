"""The exporters by themselves: names, labels, what a restarted master begins with."""

import math
import socket

import pytest
from prometheus_client import generate_latest
from support.scraping import free_ports, scrape, value

from elastic.errors import JobSpecError
from elastic.telemetry import prometheus
from elastic.telemetry.meter import Counts, JobSample, KeptCounts
from elastic.telemetry.prometheus import (
    MAX_EVALUATION_METRICS,
    JobExporter,
    Kind,
    WorkerExporter,
    serve,
)

ALL = (*prometheus.MASTER_METRICS, *prometheus.WORKER_METRICS)


@pytest.mark.parametrize("metric", ALL, ids=lambda metric: metric.name)
def test_names_follow_the_conventions(metric):
    assert metric.name.startswith("elastic_")
    assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
    if metric.kind is Kind.HISTOGRAM:
        assert metric.name.endswith("_seconds")
    assert metric.help.endswith(".")


def exporter(keep=lambda counts: None, **sample):
    made = JobExporter("digits", keep)
    made.sample = JobSample(**sample)
    return made


def served(made):
    port = free_ports()
    close = serve(made.registry, "127.0.0.1", port)
    try:
        return scrape(port)
    finally:
        close()


def test_what_is_known_is_told_and_nothing_else():
    samples = served(exporter(workers={"desired": 2, "running": 1}, counts=Counts(updates=7)))
    assert value(samples, "elastic_updates_total", job_name="digits") == 7
    assert value(samples, "elastic_workers", state="running") == 1
    assert "elastic_loss" not in samples
    assert "elastic_epoch" not in samples


def test_reasons_are_counted_from_0_on():
    samples = served(exporter(counts=Counts(rejected={"stale": 3})))
    rejected = {labels["reason"]: v for labels, v in samples["elastic_gradients_rejected_total"]}
    assert rejected == {"stale": 3, "lease_lost": 0}
    exits = {labels["reason"] for labels, _ in samples["elastic_worker_exits_total"]}
    assert exits == {"Completed", "UserError", "Killed", "OutOfMemory", "NeverStarted"}


def test_a_user_cannot_have_more_series_than_a_prometheus_takes():
    many = {f"metric_{i}": float(i) for i in range(10 * MAX_EVALUATION_METRICS)}
    told = served(exporter(evaluation=many))["elastic_evaluation_metric"]
    assert len(told) == MAX_EVALUATION_METRICS


def test_what_is_no_number_is_told_as_prometheus_tells_it():
    assert math.isnan(value(served(exporter(loss=float("nan"))), "elastic_loss"))


def test_a_port_in_use_is_said_with_its_number():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(JobSpecError, match=f"metrics_port={port} cannot be listened at"):
            serve(exporter().registry, "127.0.0.1", port)


def test_counts_are_kept_before_they_are_told(tmp_path):
    """So that a master that is killed right after an answer does not begin below it."""
    kept = KeptCounts(tmp_path / "counts.json")
    assert kept.load() is None
    counts = Counts(10, 2, 5, {"stale": 1}, {"Killed": 2})
    made = exporter(kept.keep, counts=counts)
    assert not (tmp_path / "counts.json").exists()
    generate_latest(made.registry)
    assert KeptCounts(tmp_path / "counts.json").load() == counts


def test_counts_that_cannot_be_kept_are_told_all_the_same(tmp_path):
    made = exporter(KeptCounts(tmp_path / "gone" / "counts.json").keep, counts=Counts(updates=3))
    assert value(served(made), "elastic_updates_total") == 3


def test_damaged_counts_are_none(tmp_path):
    (tmp_path / "counts.json").write_text("{")
    assert KeptCounts(tmp_path / "counts.json").load() is None


def test_a_worker_tells_its_steps():
    worker = WorkerExporter("digits", 3)
    worker.computed(0.2)
    worker.pulled(0.01)
    worker.pushed(0.02, 400)
    worker.received(800)
    samples = served(worker)
    own = {"job_name": "digits", "worker": "3"}
    assert value(samples, "elastic_worker_step_seconds_sum", **own) == pytest.approx(0.2)
    assert value(samples, "elastic_worker_push_seconds_count", **own) == 1
    assert value(samples, "elastic_worker_sent_bytes_total", **own) == 400
    assert value(samples, "elastic_worker_received_bytes_total", **own) == 800
