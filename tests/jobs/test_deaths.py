"""Processes of a job that hang, crash or are killed: what is said, and exact counts."""

import contextlib
import os
import re
import signal
import time

import numpy as np
import pytest
from support.datasets import prepared_dir
from support.gate import Gate
from support.local_job import LocalJob, end_and_wait, make_spec, suspend
from support.statuses import each_epoch
from support.thread_job import ZOO, events, held_spec, obedient_spec, write_records

from elastic.checkpoints.cuts import list_cuts, newest_cut
from elastic.platforms.local.processes import find_members
from elastic.spec.status import JobPhase

NUM_RECORDS = 200
HANG_S = 5.0
"""No shorter than the stall of a whole machine that a master forgives."""


def _held(tmp_path, gate, **settings):
    data = write_records(tmp_path / "train.npz", num_records=NUM_RECORDS, delay_ms=2.5)
    return held_spec(data, gate, NUM_RECORDS, records_per_task=40, **settings)


def _check_exact(job, epochs):
    status = job.succeed()
    assert job.parameters()["counts"].tolist() == [float(epochs)] * NUM_RECORDS
    assert each_epoch(status) == [(NUM_RECORDS, NUM_RECORDS, 0)] * epochs
    return status


def _trained(records):
    return lambda status: status.progress.records_done >= records


def _supervisor(job):
    """The pid of the supervisor; who starts one is there as well for an instant."""

    def supervisors():
        members = find_members(job.directory.submission().uid)
        return [member.pid for member in members if member.replica is None]

    job.wait_until(lambda _: len(supervisors()) == 1)
    [pid] = supervisors()
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


def test_a_new_worker_does_not_train_on_data_that_changed_meanwhile(tmp_path):
    gate = Gate(tmp_path / "gate")
    spec = _held(tmp_path, gate, max_worker_failures=0)
    data = spec.training_data_dir
    with LocalJob(spec, tmp_path) as job, gate:
        gate.allow(0, 2)
        job.wait_until(lambda _: gate.waits_for(0, 1) == 3)
        # As many records, of the same names, types and sizes.
        write_records(data, num_records=NUM_RECORDS, delay_ms=2.25)
        os.kill(job.pids("worker")[0], signal.SIGKILL)
        gate.open()
        status = job.wait()
    assert (status.phase, status.reason) == (JobPhase.FAILED, "WorkerFailures")
    assert status.progress.records_done == 16
    assert status.message == (
        "workers failed 1 times (max_worker_failures=0); the first was worker-0: "
        f"{data} is not the file whose records were counted, it has other contents: leave data "
        "alone while a job runs, give all its machines the same, and start the job again"
    )


def test_a_hung_worker_is_fenced_and_replaced(tmp_path):
    """Its supervisor hangs too, so that it comes back before it is killed, and is refused."""
    gate = Gate(tmp_path / "gate")
    spec = _held(tmp_path, gate, num_workers="2", num_epochs=3, hang_timeout=HANG_S)
    with LocalJob(spec, tmp_path) as job, gate:
        # Worker 1 stays in its first step, which has the time of a start: its task keeps the job
        # from ending. Worker 0 will hang in its third.
        job.wait_until(lambda _: gate.waits_for(0, 1) == gate.waits_for(1, 1) == 1)
        supervisor, hung = _supervisor(job), job.pids("worker")[0]
        suspend(supervisor)
        gate.allow(0, 2)
        job.wait_until(lambda _: gate.waits_for(0, 1) == 3)
        suspend(hung)
        status = job.wait_until(lambda s: events(s, "WorkerHung"))
        [message] = events(status, "WorkerHung")
        told = re.fullmatch(
            r"worker-0 gave no progress for (\d+\.\d) s \(limit (\d+\.\d) s\) and is replaced",
            message,
        )
        assert told, message
        assert float(told[1]) >= float(told[2]) >= HANG_S
        gate.allow(0, 3, launch=1)
        gate.allow(0, NUM_RECORDS)
        os.kill(hung, signal.SIGCONT)
        log = job.directory.logs_path / "worker-0.log"
        job.wait_until(lambda _: "has forgotten this session" in log.read_text())
        # It has registered again and is in a step that nothing but a kill ends: else it might leave
        # by itself when it is asked to.
        job.wait_until(lambda _: gate.waits_for(0, 1) == 4)
        os.kill(supervisor, signal.SIGCONT)
        job.wait_until(lambda s: s.workers[0].launch == 2 and s.workers[0].records_done > 0)
        gate.open()
        status = _check_exact(job, 3)
    assert events(status, "WorkerHung") == [message]
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
    """Of the steps of two workers at least half count, and the steps of 6 epochs are 150."""
    checkpoints, gate = tmp_path / "checkpoints", Gate(tmp_path / "gate")
    spec = _held(
        tmp_path,
        gate,
        num_workers="2",
        num_epochs=6,
        checkpoint_dir=str(checkpoints),
        checkpoint_steps=1,
        keep_checkpoint_max=3,
    )
    with LocalJob(spec, tmp_path) as job, gate:
        _allow_both(gate, 20)
        job.wait_until(_trained(40))
        end_and_wait(_supervisor(job))
        # Without one, the death of the master is the end of the job.
        job.wait_until(lambda _: job.directory.supervisor_lock.is_held())
        _allow_both(gate, 40)
        job.wait_until(_trained(250))
        supervisor = _supervisor(job)
        # Its next master would write checkpoints while we look at them.
        suspend(supervisor)
        end_and_wait(job.pids("master")[0])
        _check_newest(checkpoints)
        os.kill(supervisor, signal.SIGCONT)
        _allow_both(gate, 60)
        status = job.wait_until(lambda s: s.master_restarts == 1 and _trained(400)(s))
        assert status.workers_lost == status.worker_failures == 0

        _kill_all(job)
        _check_newest(checkpoints)
        status = job.status()
        assert (status.phase, status.reason) == (JobPhase.RECOVERING, "NoMaster")
        assert status.message == (
            "no process of this job is alive; `elastic train --resume` goes on from its last cut"
        )
        gate.open()
        job.platform.submit(job.spec.model_copy(update={"resume": True}))
        status = _check_exact(job, 6)
        job.wait_until_gone()
    assert events(status, "Resumed")[-1].startswith(f"resumed from {checkpoints}/version-")
    assert [path.name for path in list_cuts(checkpoints)] == sorted(
        (path.name for path in checkpoints.iterdir()), reverse=True
    )
    assert len(list_cuts(checkpoints)) == 3


def test_a_worker_that_dies_while_there_is_no_master_is_told(tmp_path):
    gate = Gate(tmp_path / "gate")
    with LocalJob(_held(tmp_path, gate, num_workers="2"), tmp_path) as job, gate:
        _allow_both(gate, 4)
        job.wait_until(lambda s: len([w for w in s.workers if w.records_done]) == 2)
        supervisor = _supervisor(job)
        suspend(supervisor)
        end_and_wait(job.pids("master")[0])
        end_and_wait(job.pids("worker")[1])
        os.kill(supervisor, signal.SIGCONT)
        gate.open()
        status = _check_exact(job, 1)
    assert (status.master_restarts, status.workers_lost, status.worker_failures) == (1, 1, 0)
    how = "was killed: ended from outside by SIGKILL"
    assert events(status, "WorkerLost") == [f"worker-1 {how}"]
    assert events(status, "MasterRestarted") == [f"the master was restarted: the one before {how}"]


def _allow_both(gate, num_steps):
    for worker in (0, 1):
        gate.allow(worker, num_steps)


def _check_newest(checkpoints):
    """Whatever its master was doing: the newest checkpoint is whole, and of one moment."""
    damaged = []
    _, cut = newest_cut([checkpoints], None, damaged.append)
    assert damaged == []
    done = cut.ledger["epoch"] * NUM_RECORDS + cut.ledger["committed"]
    assert cut.parameters["counts"].sum() == done


def test_a_resumed_job_ends_with_the_same_parameters(tmp_path):
    """One worker, Adam, everything killed after its last cut: as if nothing had happened."""
    gate = Gate(tmp_path / "gate")
    spec = make_spec(
        "held_digits.CustomModel",
        prepared_dir("digits") / "train.npz",
        model_zoo=str(ZOO),
        model_params={"gate": str(gate.folder)},
        num_epochs=2,
        minibatch_size=16,
        records_per_task=200,
        seed=3,
        hang_timeout=3600,
        # So long that the next steps come before the next cut.
        recovery_interval=3,
        # Equal thread counts add up in equal order.
        envs={"OMP_NUM_THREADS": "1"},
    )
    with LocalJob(spec, tmp_path / "killed") as job, gate:
        gate.allow(0, 20)
        job.wait_until(
            lambda _: "version-0000000020" in [p.name for p in list_cuts(job.directory.cuts_path)]
        )
        gate.allow(0, 60)
        job.wait_until(_trained(40 * 16))
        _kill_all(job)
        gate.open()
        job.platform.submit(spec.model_copy(update={"resume": True}))
        job.succeed()
        parameters = job.parameters()
    with LocalJob(spec, tmp_path / "whole") as job:
        job.succeed()
        expected = job.parameters()
    assert list(parameters) == list(expected)
    for name, array in expected.items():
        np.testing.assert_allclose(parameters[name], array, rtol=0, atol=1e-6, err_msg=name)
