"""A job that grows and shrinks while it runs."""

from support.datasets import prepared_dir
from support.local_job import LocalJob, make_spec
from support.thread_job import events

from elastic.cli.main import main
from elastic.platforms.base import ReplicaPhase

NUM_RECORDS = 200


def test_a_job_grows_and_shrinks_without_a_loss(tmp_path, capsys):
    spec = make_spec(
        "counting.counting_torch.CustomModel",
        prepared_dir("counting", num_records=NUM_RECORDS) / "train.npz",
        model_params={"num_records": NUM_RECORDS, "delay_ms": 40},
        num_workers="1:3",
        num_epochs=12,
    )

    def elastic(*arguments):
        code = main([*arguments, "--platform=local"], open_platform=lambda _: job.platform)
        return code, capsys.readouterr()

    with LocalJob(spec, tmp_path) as job:
        assert elastic("scale", "job", "1")[0] == 0
        job.wait_until(lambda s: s.progress.records_done and s.desired_workers == 1)
        code, printed = elastic("scale", "job", "4")
        assert code == 2
        assert printed.err == (
            "error: 4 workers are outside the range 1:3 of job 'job': choose a number within it, "
            "or submit the job with another --num_workers MIN:MAX\n"
        )
        code, printed = elastic("scale", "job", "3")
        assert (code, printed.out) == (0, "job job: 1 → 3 workers\n")
        job.wait_until(lambda s: len(s.workers) == 3 and all(w.records_done for w in s.workers))
        code, printed = elastic("scale", "job", "1")
        assert (code, printed.out) == (0, "job job: 3 → 1 worker\n")
        status = job.succeed()
        assert job.parameters()["counts"].tolist() == [12.0] * NUM_RECORDS
    # They left by themselves.
    left = [message for message in events(status, "WorkerLeft") if "worker-0" not in message]
    assert sorted(left)[-2:] == ["worker-1 has left", "worker-2 has left"]
    assert (status.workers_lost, status.worker_failures) == (0, 0)
    ended = [o.replica for o in job.directory.observed() if o.replica.id.index > 0]
    assert [replica.phase for replica in ended] == [ReplicaPhase.SUCCEEDED] * 2
