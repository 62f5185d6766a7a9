"""What nobody has foreseen in an answer ends this life of the master, and costs no worker."""

import asyncio
import itertools

import pytest
from support.served_master import PATIENCE_S, ServedMaster
from support.thread_job import ThreadJob, events, obedient_spec, write_records

from elastic.errors import ModelDefError
from elastic.master.servicer import FAULTY, MasterServicer
from elastic.rpc import elastic_pb2 as pb
from elastic.spec.status import JobPhase


def _failing(error, times=1000):
    """`get_task` that fails so many times at first."""
    answer, faults = MasterServicer.get_task, itertools.repeat(error, times)

    async def fails(self, request):
        for fault in faults:
            raise fault
        return await answer(self, request)

    return fails


def _job(folder):
    return ThreadJob(obedient_spec(write_records(folder / "train.npz")), folder / "cuts")


def test_the_master_ends_with_its_fault_and_no_worker_does(tmp_path, monkeypatch):
    """Its platform starts the next one, and ends a job whose masters make no progress."""
    monkeypatch.setattr(MasterServicer, "get_task", _failing(RuntimeError("a hole in the ledger")))
    job = _job(tmp_path)
    with pytest.raises(RuntimeError, match="a hole in the ledger"):
        job.run()
    assert not job.runner.statuses[-1].phase.is_final
    assert not events(job.runner.statuses[-1], "WorkerFailed")


def test_a_fault_of_the_users_ends_the_job_with_its_reason(tmp_path, monkeypatch):
    fault = ModelDefError("ids of 'users' have to be whole numbers")
    monkeypatch.setattr(MasterServicer, "get_task", _failing(fault, times=1))
    status = _job(tmp_path).run()
    assert (status.phase, status.reason) == (JobPhase.FAILED, "ModelDef")
    assert status.message.startswith(str(fault))


@pytest.mark.parametrize("method", ["GetModel", "GetRows"])
def test_whoever_met_it_is_told_to_try_the_next_master(monkeypatch, method):
    def breaks(self, key, is_step=True):
        raise RuntimeError("a hole in the ledger")

    async def play():
        master = ServedMaster()
        monkeypatch.setattr(MasterServicer, "_session", breaks)
        request = pb.GetModelRequest() if method == "GetModel" else pb.GetRowsRequest()
        async with master.serve() as peer:
            refusal = await peer.refusal(peer.call(method, request))
        assert str(master.reception.failure) == "a hole in the ledger"
        return refusal

    told = asyncio.run(asyncio.wait_for(play(), PATIENCE_S))
    assert told == ("UNAVAILABLE", FAULTY)
