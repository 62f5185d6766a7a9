"""A platform that cannot take the master's status for a while, as when the job's disk is full."""

import threading
from pathlib import Path

import pytest
from support.gate import Gate
from support.thread_job import PATIENCE_S, ThreadJob, held_spec, write_records

from elastic.checkpoints.cuts import read_cut
from elastic.errors import PlatformError
from elastic.spec.status import JobPhase


def test_a_status_that_cannot_be_published_is_published_later(tmp_path):
    data, gate = write_records(tmp_path / "train.npz", num_records=100), Gate(tmp_path / "gate")
    job = ThreadJob(held_spec(data, gate, 100, num_epochs=3), tmp_path / "cuts")
    publish, refused = job.runner.publish_status, []

    def publish_or_fail(status):
        # Away in the middle of the job, and again when it ends.
        trained = status.progress.records_done
        if len(refused) < 2 * (1 + status.phase.is_final) and trained:
            refused.append(status.phase)
            raise PlatformError("cannot write status.json: No space left on device")
        publish(status)

    job.runner.publish_status = publish_or_fail
    with job, gate:
        gate.allow(0, 5)
        job.wait_until(lambda statuses: statuses and statuses[-1].progress.records_done > 0)
        gate.open()
        status = job.wait()
    assert refused == [JobPhase.RUNNING] * 2 + [JobPhase.SUCCEEDED] * 2
    assert status.phase is JobPhase.SUCCEEDED
    told = {s.progress.records_done for s in job.runner.statuses}
    assert any(0 < records < 300 for records in told), "progress was told in between"
    assert read_cut(Path(status.checkpoint)).parameters["counts"].tolist() == [3.0] * 100


def test_a_master_that_can_no_longer_decide_about_its_workers_ends(tmp_path):
    """Its supervisor starts the next one; a job whose status says Running would wait for ever."""
    data, gate = write_records(tmp_path / "train.npz"), Gate(tmp_path / "gate")
    job = ThreadJob(held_spec(data, gate, num_epochs=50), tmp_path / "cuts")
    has_failed = threading.Event()

    def fail():
        has_failed.set()
        raise RuntimeError("dictionary changed size during iteration")

    with job, gate:
        job.wait_until(lambda statuses: statuses and statuses[-1].workers)
        job.runner.control = fail
        assert has_failed.wait(PATIENCE_S)
        gate.open()
        with pytest.raises(RuntimeError, match="dictionary changed size"):
            job.wait()
    assert not job.runner.statuses[-1].phase.is_final
