"""What real jobs tell from submission to end: by the schema, and of every millisecond."""

import json
import os
import signal
import time

import pytest
from support.local_job import LocalJob, suspend
from support.schema import problems
from support.thread_job import obedient_spec, write_records

from elastic.cli.showing import status_schema
from elastic.policy.accounts import as_of
from elastic.spec.status import JobPhase, TimeCategory, document

SCHEMA = json.loads(json.dumps(status_schema()))
NUM_RECORDS = 100


class RecordedJob(LocalJob):
    """Keeps every status that anybody looked at, as it would have been printed."""

    def __init__(self, spec, home):
        super().__init__(spec, home)
        self.told = []

    def status(self):
        status = super().status()
        self.told.append(as_of(status, time.time()))
        return status


def check(job):
    """Every status keeps to the schema, and its time adds up to the job's life."""
    for status in job.told:
        told = json.loads(json.dumps(document(status), allow_nan=False))
        assert problems(told, SCHEMA) == []
        split = status.time_split
        spent_ms = sum(round(getattr(split, f"{one}_s") * 1000) for one in TimeCategory)
        assert spent_ms == round(split.until_s * 1000) - round(status.submitted_s * 1000)
        if status.ended_s is not None:
            assert round(split.until_s * 1000) == round(status.ended_s * 1000)


def phases(job):
    return {status.phase for status in job.told}


def slow_spec(tmp_path, **settings):
    train = write_records(tmp_path / "train.npz", num_records=NUM_RECORDS, delay_ms=30)
    return obedient_spec(train, num_records=NUM_RECORDS, minibatch_size=5, **settings)


def test_a_job_whose_master_is_killed_tells_of_all_its_time(tmp_path):
    test = write_records(tmp_path / "test.npz", num_records=NUM_RECORDS, delay_ms=20)
    spec = slow_spec(tmp_path, evaluation_data_dir=str(test))
    with RecordedJob(spec, tmp_path) as job:
        job.wait_until(lambda status: status.progress.records_done >= 20)
        [master] = job.pids("master").values()
        killed_s = time.time()
        os.kill(master, signal.SIGKILL)
        job.wait_until(lambda s: s.master_restarts == 1 and s.phase is JobPhase.RUNNING)
        back_s = time.time()
        evaluating = job.wait_until(
            lambda s: s.evaluation is not None and s.evaluation.records_done > 0
        )
        ended = job.succeed()
    check(job)
    assert phases(job) >= {
        JobPhase.STARTING, JobPhase.RUNNING, JobPhase.RECOVERING, JobPhase.SUCCEEDED,
    }  # fmt: skip
    assert evaluating.evaluation.records_total == NUM_RECORDS
    split = job.told[-1].time_split
    assert ended.time_split.recover_s == split.recover_s
    # The looks of master and test are apart by less than this.
    assert split.recover_s == pytest.approx(back_s - killed_s, abs=1.5)
    assert split.evaluate_s >= NUM_RECORDS * 0.02 / 2
    assert split.start_s > 0
    assert split.train_s >= NUM_RECORDS * 0.03 / 2


def test_a_failed_job_tells_of_all_its_time(tmp_path):
    nowhere = {"training_data_dir": str(tmp_path / "none.npz")}
    spec = slow_spec(tmp_path).model_copy(update=nowhere)
    with RecordedJob(spec, tmp_path) as job:
        assert job.wait().phase is JobPhase.FAILED
    check(job)


@pytest.mark.parametrize("has_master", [True, False], ids=["by-its-master", "without-one"])
def test_a_cancelled_job_tells_of_all_its_time(tmp_path, has_master):
    with RecordedJob(slow_spec(tmp_path), tmp_path) as job:
        if has_master:
            job.wait_until(lambda status: status.progress.records_done > 0)
        job.platform.kill(job.spec.job_name, 30.0)
        assert job.wait().phase is JobPhase.CANCELLED
    check(job)


def test_all_work_of_a_job_is_told_before_it_has_any_worker(tmp_path):
    """Schedulers need it of those that wait: they are served by how much work they have."""
    spec = slow_spec(tmp_path, num_epochs=3)
    with RecordedJob(spec, tmp_path) as job:
        job.wait_until(lambda status: job.pids("worker"))
        workers = list(job.pids("worker").values())
        for worker in workers:
            suspend(worker)
        told = job.wait_until(lambda status: status.progress.records_total)
        assert told.phase is JobPhase.STARTING
        assert (told.progress.records_done, told.progress.records_total) == (0, 3 * NUM_RECORDS)
        for worker in workers:
            os.kill(worker, signal.SIGCONT)
        job.succeed()
    check(job)
