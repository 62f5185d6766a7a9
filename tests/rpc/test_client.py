"""The worker's client against a real servicer: in memory, in chunks, and from one to the other."""

import asyncio
import contextlib

import grpc
import numpy as np
import pytest
from support.served_master import NUM_RECORDS, PATIENCE_S, TOKEN, ServedMaster

from elastic.master.model_buffers import ModelBuffer
from elastic.rpc import elastic_pb2 as pb
from elastic.rpc.client import MasterClient
from elastic.rpc.server import SERVER_OPTIONS, MasterHandler


@contextlib.asynccontextmanager
async def _served(master):
    server = grpc.aio.server(options=SERVER_OPTIONS)
    server.add_generic_rpc_handlers((MasterHandler(master._servicer, TOKEN),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


def _work(address, share_memory):
    """Pull, report records [0, 8), and pull again; gives the session and both models."""
    client = MasterClient(lambda: address, TOKEN, PATIENCE_S, share_memory)
    with contextlib.closing(client):
        session = client.register(pb.RegisterRequest(worker_index=0, launch=1))
        task = client.get_task(session.key).task
        first = client.get_model(session, None)
        before = first.parameters["counts"].copy()
        gradient = np.zeros(NUM_RECORDS, np.float32)
        gradient[:8] = -1 / 8
        header = pb.GradientHeader(
            sequence=1, task_id=task.task_id, attempt=task.attempt, start=0, end=8,
            model_version=first.version, loss=0.5, step_s=0.01,
        )  # fmt: skip
        state = {name: array + 1 for name, array in first.state.items()}
        reply = client.report_gradient(session, header, {"counts": gradient}, state)
        assert reply.verdict == pb.ReportGradientReply.VERDICT_ACCEPTED
        second = client.get_model(session, first.version)
        assert client.get_model(session, second.version) is None
        return session, before, second.parameters["counts"].copy()


def _run(share_memory):
    async def play():
        master = ServedMaster()
        async with _served(master) as address:
            return await asyncio.to_thread(_work, address, share_memory)

    return asyncio.run(asyncio.wait_for(play(), PATIENCE_S))


def _check_counted(before, after):
    assert before.tolist() == [0] * NUM_RECORDS
    assert after.tolist() == [1] * 8 + [0] * (NUM_RECORDS - 8)


@pytest.mark.parametrize("share_memory", [True, False])
def test_a_step_in_memory_and_in_chunks(share_memory):
    session, before, after = _run(share_memory)
    assert session.shares_memory == share_memory
    _check_counted(before, after)


def test_a_master_without_memory_to_share_sends_chunks(monkeypatch):
    monkeypatch.setattr(ModelBuffer, "handle", lambda _self: None)
    session, before, after = _run(share_memory=True)
    assert session.shares_memory
    _check_counted(before, after)
