"""Processes of a job that hang, crash or are killed: what is said, and exact counts."""

import contextlib
import os
import re
import signal
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from support.datasets import prepared_dir
from support.local_job import LocalJob, make_spec
from support.thread_job import ZOO, ThreadJob, events, obedient_spec, write_records

from elastic.master.cuts import list_cuts, newest_cut, read_cut
from elastic.spec.status import JobPhase

NUM_RECORDS = 200


def _counting(**settings):
    return make_spec(
        "counting.counting_torch.CustomModel",
        prepared_dir("counting", num_records=NUM_RECORDS) / "train.npz",
        model_params={"num_records": NUM_RECORDS, "delay_ms": 20},
        **settings,
    )


def _check_exact(job, epochs):
    status = job.succeed()
    assert job.parameters()["counts"].tolist() == [float(epochs)] * NUM_RECORDS
    assert [(a.committed, a.skipped) for a in status.audits] == [(NUM_RECORDS, 0)] * epochs
    return status


def _trained(records):
    return lambda status: status.progress.records_done >= records


def _supervisor(job):
    [pid] = [
        process.pid for process in job.processes() if "ELASTIC_REPLICA" not in process.environ()
    ]
    return pid


def _kill_all(job):
    """End everything at the same moment, so that nobody can start anything anew."""
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for process in job.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, number)
    job.wait_until_gone()
    # The dying show no environment any more, but hold their locks a while longer.
    while job.directory.supervisor_lock.is_held():
        time.sleep(0.01)


def test_a_hung_worker_is_fenced_and_replaced(tmp_path):
    """Its supervisor hangs too, so that it comes back before it is killed, and is refused."""
    with LocalJob(_counting(num_workers="2", num_epochs=3, hang_timeout=1), tmp_path) as job:
        job.wait_until(
            lambda s: all(w.records_done >= 16 for w in s.workers) and len(s.workers) == 2
        )
        supervisor, hung = _supervisor(job), job.pids("worker")[0]
        os.kill(supervisor, signal.SIGSTOP)
        os.kill(hung, signal.SIGSTOP)
        status = job.wait_until(lambda s: events(s, "WorkerHung"))
        [message] = events(status, "WorkerHung")
        assert re.fullmatch(
            r"worker-0 gave no progress for \d+\.\d s \(limit 1\.0 s\) and is replaced", message
        )
        os.kill(hung, signal.SIGCONT)
        log = job.directory.logs_path / "worker-0.log"
        job.wait_until(lambda _: "has forgotten this session" in log.read_text())
        os.kill(supervisor, signal.SIGCONT)
        status = _check_exact(job, 3)
    assert events(status, "WorkerLost") == ["worker-0 was killed: deleted (SIGKILL)"]
    assert events(status, "WorkerStarted") == ["worker-0 is started again (launch 2)"]
    assert (status.workers_lost, status.worker_failures) == (1, 0)


@pytest.mark.parametrize(
    ("how", "allowed", "first"),
    [
        pytest.param(
            "raise",
            1,
            "making the model with the parameters {'num_records': 40, 'how': 'raise'} failed: "
            f"RuntimeError: no accelerator in this process ({ZOO}/fragile.py:18)",
            id="raises",
        ),
        pytest.param("segfault", 0, "crashed with SIGSEGV", id="segfaults"),
    ],
)
def test_workers_that_fail_again_and_again_fail_the_job(how, allowed, first, tmp_path):
    spec = obedient_spec(
        write_records(tmp_path / "train.npz"),
        model_params={"num_records": 40, "how": how},
        max_worker_failures=allowed,
    ).model_copy(update={"model_def": "fragile.CustomModel"})
    with LocalJob(spec, tmp_path) as job:
        status = job.wait()
        assert (status.phase, status.reason) == (JobPhase.FAILED, "WorkerFailures")
        assert status.message == (
            f"workers failed {allowed + 1} times (max_worker_failures={allowed}); "
            f"the first was worker-0: {first}"
        )
        assert status.worker_failures == allowed + 1
        assert events(status, "WorkerFailed") == [f"worker-0 failed: {first}"] * (allowed + 1)
        if how == "raise":
            _resume_with_a_mended_model(job)


def _resume_with_a_mended_model(job):
    """A job that goes on after it failed has its allowance of failures anew."""
    spec = job.spec.model_copy(
        update={
            "resume": True,
            "model_def": "obedient.CustomModel",
            "model_params": {"num_records": 40},
        }
    )
    job.platform.submit(spec)
    status = job.succeed()
    assert status.worker_failures == 0


def test_a_job_survives_its_supervisor_its_master_and_everything(tmp_path):
    checkpoints = tmp_path / "checkpoints"
    spec = _counting(
        num_workers="2",
        num_epochs=3,
        checkpoint_dir=str(checkpoints),
        checkpoint_steps=1,
        keep_checkpoint_max=3,
        recovery_interval=600,
    )
    with LocalJob(spec, tmp_path) as job:
        job.wait_until(_trained(40))
        supervisor = psutil.Process(_supervisor(job))
        supervisor.kill()
        supervisor.wait()
        # Without one, the death of the master is the end of the job.
        job.wait_until(lambda _: job.directory.supervisor_lock.is_held())
        job.wait_until(_trained(150))
        master = psutil.Process(job.pids("master")[0])
        master.kill()
        master.wait()
        _check_newest(checkpoints)
        status = job.wait_until(lambda s: s.master_restarts == 1 and _trained(250)(s))
        assert status.workers_lost == status.worker_failures == 0

        _kill_all(job)
        _check_newest(checkpoints)
        status = job.status()
        assert (status.phase, status.reason) == (JobPhase.RECOVERING, "NoMaster")
        assert status.message == (
            "no process of this job is alive; `elastic train --resume` goes on from its last cut"
        )
        job.platform.submit(job.spec.model_copy(update={"resume": True}))
        status = _check_exact(job, 3)
        job.wait_until_gone()
    assert events(status, "Resumed")[-1].startswith(f"resumed from {checkpoints}/version-")
    assert [path.name for path in list_cuts(checkpoints)] == sorted(
        (path.name for path in checkpoints.iterdir()), reverse=True
    )
    assert len(list_cuts(checkpoints)) == 3


def _check_newest(checkpoints):
    """Whatever its master was doing: the newest checkpoint is whole, and of one moment."""
    damaged = []
    _, cut = newest_cut([checkpoints], None, damaged.append)
    assert damaged == []
    done = cut.ledger["epoch"] * NUM_RECORDS + cut.ledger["committed"]
    assert cut.parameters["counts"].sum() == done


def test_a_resumed_job_ends_with_the_same_parameters(tmp_path):
    """One worker, Adam, everything killed: as if nothing had happened."""
    spec = make_spec(
        "digits.digits_torch.CustomModel",
        prepared_dir("digits") / "train.npz",
        num_epochs=2,
        minibatch_size=16,
        records_per_task=200,
        seed=3,
        # Equal thread counts add up in equal order.
        envs={"OMP_NUM_THREADS": "1"},
    )
    with LocalJob(spec, tmp_path / "killed") as job:
        job.wait_until(_trained(500))
        job.wait_until(lambda _: list_cuts(job.directory.cuts_path))
        _kill_all(job)
        job.platform.submit(spec.model_copy(update={"resume": True}))
        job.succeed()
        parameters = job.parameters()
    status = ThreadJob(spec, tmp_path / "whole").run()
    expected = read_cut(Path(status.checkpoint)).parameters
    assert list(parameters) == list(expected)
    for name, array in expected.items():
        np.testing.assert_allclose(parameters[name], array, rtol=0, atol=1e-6, err_msg=name)
