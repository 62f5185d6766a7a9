"""The reply to a gradient brings the next version along, where memory is shared."""

import asyncio

import numpy as np
import pytest
from support.served_master import TOKEN, ServedMaster

from elastic.policy.replicas import ReplicaId
from elastic.rpc import elastic_pb2 as pb
from elastic.rpc.client import MasterClient

VERDICTS = pb.ReportGradientReply


def _run(scenario, share_memory=True, **settings):
    """Play a scenario, in a thread, of a worker's own client against a fresh master."""

    async def play():
        master = ServedMaster(shuffle="none", **settings)
        async with master.serve() as peer:
            client = MasterClient(lambda: peer.address, TOKEN, 5.0, share_memory=share_memory)
            try:
                await asyncio.to_thread(scenario, master, client)
            finally:
                client.close()

    asyncio.run(asyncio.wait_for(play(), 30))


def _gradient(start, end):
    counts = np.zeros(40, np.float32)
    counts[start:end] = -1 / (end - start)
    return {"counts": counts}, {"steps": np.ones((), np.float32)}


def _header(task, start, version, sequence, wants_model=True):
    return pb.GradientHeader(
        sequence=sequence, task_id=task.task_id, attempt=task.attempt, start=start,
        end=start + 8, model_version=version, loss=0.5, step_s=0.01, wants_model=wants_model,
    )  # fmt: skip


def _begin(client):
    session = client.register(pb.RegisterRequest(worker_index=0, launch=1, host="test", pid=1))
    task = client.get_task(session.key).task
    assert client.get_model(session, None).version == 0
    return session, task


def test_the_reply_to_an_accepted_gradient_has_the_next_version():
    def scenario(master, client):
        session, task = _begin(client)
        for sequence in (1, 2):
            start = 8 * (sequence - 1)
            header = _header(task, start, sequence - 1, sequence)
            reply = client.report_gradient(session, header, *_gradient(start, start + 8))
            pulled = client.model_of(reply)
            assert (reply.verdict, pulled.version) == (VERDICTS.VERDICT_ACCEPTED, sequence)
            expected = [1.0] * (start + 8) + [0.0] * (32 - start)
            assert pulled.parameters["counts"].tolist() == expected
            assert list(pulled.state) == ["steps"]

    _run(scenario)


def test_so_has_the_reply_to_a_stale_one():
    def scenario(master, client):
        session, task = _begin(client)
        client.report_gradient(session, _header(task, 0, 0, 1), *_gradient(0, 8))
        reply = client.report_gradient(session, _header(task, 8, 0, 2), *_gradient(8, 16))
        pulled = client.model_of(reply)
        assert (reply.verdict, pulled.version) == (VERDICTS.VERDICT_STALE, 1)
        assert pulled.parameters["counts"].tolist() == [1.0] * 8 + [0.0] * 32

    _run(scenario)


def test_a_repeated_report_brings_the_model_as_it_is_by_then():
    """The memory that the first reply spoke of was free for other versions in between."""

    def scenario(master, client):
        session, task = _begin(client)
        client.report_gradient(session, _header(task, 0, 0, 1), *_gradient(0, 8))
        replies = [
            client.report_gradient(session, _header(task, 8, 1, 2), *_gradient(8, 16))
            for _ in range(3)
        ]
        assert [reply.verdict for reply in replies] == [VERDICTS.VERDICT_ACCEPTED] * 3
        pulled = client.model_of(replies[-1])
        assert (pulled.version, master.store.version) == (2, 2)
        assert pulled.parameters["counts"].tolist() == [1.0] * 16 + [0.0] * 24

    _run(scenario)


@pytest.mark.parametrize(
    ("share_memory", "wants_model", "grads_to_wait"),
    [
        pytest.param(True, False, 1, id="it-did-not-ask"),
        pytest.param(False, True, 1, id="its-memory-is-elsewhere"),
        pytest.param(True, True, 9, id="the-group-is-open"),
    ],
)
def test_otherwise_the_reply_is_the_verdict_alone(share_memory, wants_model, grads_to_wait):
    def scenario(master, client):
        session, task = _begin(client)
        header = _header(task, 0, 0, 1, wants_model)
        reply = client.report_gradient(session, header, *_gradient(0, 8))
        assert reply.verdict == VERDICTS.VERDICT_ACCEPTED
        assert not reply.HasField("model")
        assert client.model_of(reply) is None

    _run(scenario, share_memory, grads_to_wait=grads_to_wait)


def test_the_version_that_a_lost_worker_read_is_not_kept_for_it():
    """A buffer of the model's size for every worker that was ever lost would fill the memory."""

    async def come_and_go(master, launch):
        reader = master.job.sessions.open(ReplicaId("worker", 1, launch), 1, "lost")
        assert await master.store.packed(reader.key) is not None
        master.job.tasks.lose(reader.replica)

    def scenario(master, client, loop):
        session, task = _begin(client)
        for start in range(20):
            visit = come_and_go(master, start + 1)
            asyncio.run_coroutine_threadsafe(visit, loop).result()
            header = _header(task, start, start, start + 1)
            header.end = start + 1
            reply = client.report_gradient(session, header, *_gradient(start, start + 1))
            assert client.model_of(reply).version == start + 1
        assert len(master.store._buffers._buffers) <= 4

    async def play():
        master = ServedMaster(records_per_task=20)
        async with master.serve() as peer:
            client = MasterClient(lambda: peer.address, TOKEN, 5.0)
            try:
                await asyncio.to_thread(scenario, master, client, asyncio.get_running_loop())
            finally:
                client.close()

    asyncio.run(asyncio.wait_for(play(), 30))


def test_nor_is_one_that_it_was_about_to_read():
    """It waited for an update when it was lost."""

    async def play():
        master = ServedMaster()
        async with master.serve() as peer:
            session = await peer.register()
            async with master.store.lock:
                pulling = peer.call("GetModel", pb.GetModelRequest(session=session))
                reading = asyncio.ensure_future(pulling.read())
                while session not in master.heard:
                    await asyncio.sleep(0.005)
                master.job.tasks.lose(ReplicaId("worker", 0, 1))
            refused = await asyncio.gather(reading, return_exceptions=True)
            assert "unknown session" in str(refused)
        readers = [reader for each in master.store._buffers._buffers for reader in each.readers]
        assert session not in readers

    asyncio.run(asyncio.wait_for(play(), 30))
