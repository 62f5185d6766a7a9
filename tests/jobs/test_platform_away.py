"""A platform that cannot take the master's status for a while, as when the job's disk is full."""

from pathlib import Path

from support.gate import Gate
from support.thread_job import ThreadJob, held_spec, write_records

from elastic.errors import PlatformError
from elastic.master.cuts import read_cut
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
