"""A job that grows and shrinks while it runs."""

from support.gate import Gate
from support.local_job import LocalJob
from support.thread_job import events, held_spec, write_records

from elastic.cli.main import main
from elastic.platforms.base import ReplicaPhase

NUM_RECORDS = 200
PATIENTLY = "--timeout=600"


def test_a_job_grows_and_shrinks_without_a_loss(tmp_path, capsys):
    gate = Gate(tmp_path / "gate")
    data = write_records(tmp_path / "train.npz", num_records=NUM_RECORDS, delay_ms=2)
    spec = held_spec(data, gate, NUM_RECORDS, num_workers="1:3", num_epochs=3, records_per_task=40)

    def elastic(*arguments):
        code = main([*arguments, "--platform=local"], open_platform=lambda *_: job.platform)
        return code, capsys.readouterr()

    def has_trained(index):
        return lambda s: len(s.workers) > index and s.workers[index].records_done > 0

    with LocalJob(spec, tmp_path) as job, gate:
        assert elastic("scale", "job", "1", PATIENTLY)[0] == 0
        # Whom the master had launched before it was asked has left already, or could not yet.
        before = job.status()
        gate.allow(0, 2)
        job.wait_until(lambda s: has_trained(0)(s) and s.desired_workers == 1)
        code, printed = elastic("scale", "job", "4")
        assert code == 2
        assert printed.err == (
            "error: 4 workers are outside the range 1:3 of job 'job': choose a number within it, "
            "or submit the job with another --num_workers MIN:MAX\n"
        )
        code, printed = elastic("scale", "job", "3", PATIENTLY)
        assert (code, printed.out) == (0, "job job: 1 → 3 workers\n")
        # One after the other, so that nobody's gradient makes another's stale for ever. Worker 0
        # keeps its task, and the job cannot end.
        for index in (1, 2):
            gate.allow(index, 3)
            job.wait_until(has_trained(index))
        assert len(job.status().workers) == 3
        for index in (1, 2):
            gate.allow(index, 3 * NUM_RECORDS)
        code, printed = elastic("scale", "job", "1", PATIENTLY)
        assert (code, printed.out) == (0, "job job: 3 → 1 worker\n")
        # They leave by themselves.
        job.wait_until(
            lambda s: len(events(s, "WorkerLeft")) >= len(events(before, "WorkerLeft")) + 2
        )
        gate.open()
        status = job.succeed()
        assert job.parameters()["counts"].tolist() == [3.0] * NUM_RECORDS
    left = [message for message in events(status, "WorkerLeft") if "worker-0" not in message]
    assert sorted(left[-2:]) == ["worker-1 has left", "worker-2 has left"]
    assert (status.workers_lost, status.worker_failures) == (before.workers_lost, 0)
    ended = [o.replica for o in job.directory.observed() if o.replica.id.index > 0]
    assert [replica.phase for replica in ended] == [ReplicaPhase.SUCCEEDED] * 2
