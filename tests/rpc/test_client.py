"""The worker's client against a real servicer: in memory, in chunks, and from one to the other."""

import asyncio
import contextlib
import threading

import grpc
import numpy as np
import pytest
from support.served_master import NUM_RECORDS, PATIENCE_S, TOKEN, ServedMaster

from elastic.errors import RpcError
from elastic.platforms.certificates import make_certificate
from elastic.rpc import client as rpc_client
from elastic.rpc import elastic_pb2 as pb
from elastic.rpc.client import MasterClient, SessionLostError
from elastic.rpc.layout import ModelBuffer
from elastic.rpc.local import LocalListener, new_name
from elastic.rpc.network import NetworkListener
from elastic.rpc.server import SERVER_OPTIONS, MasterHandler, fenced
from elastic.rpc.wire import add_port


@contextlib.asynccontextmanager
async def _served(master, guard=lambda: None, certificate=None):
    server = grpc.aio.server(options=SERVER_OPTIONS)
    handler = MasterHandler(master.reception, TOKEN, guard)
    server.add_generic_rpc_handlers((handler,))
    port = add_port(server, "127.0.0.1:0", certificate)
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


class _Noting(MasterHandler):
    """Notes which methods were called by sockets."""

    def __init__(self, *parts):
        super().__init__(*parts)
        self.called = []

    async def answer(self, path, request):
        self._note(path)
        return await super().answer(path, request)

    async def gather(self, path, requests):
        self._note(path)
        return await super().gather(path, requests)

    async def stream(self, path, request):
        self._note(path)
        async for reply in super().stream(path, request):
            yield reply

    def _note(self, path):
        self.called.append(path.rsplit("/", 1)[1])


@contextlib.asynccontextmanager
async def _listening(master, name, guard=lambda: None):
    """Take the calls of this machine as well, and give what notes them."""
    handler = _Noting(master.reception, TOKEN, guard)
    listener = LocalListener(name, handler, TOKEN)
    await listener.start()
    try:
        yield handler
    finally:
        await listener.stop(0)


@contextlib.asynccontextmanager
async def _listening_elsewhere(certificate=None, guard=lambda: None):
    """A master that takes calls of other machines by sockets too, and what notes them."""
    master = ServedMaster()
    handler = _Noting(master.reception, TOKEN, guard)
    listener = NetworkListener(handler, TOKEN, certificate)
    master.proof.calls_port = await listener.start("127.0.0.1")
    try:
        yield master, handler, listener
    finally:
        await listener.stop(0)


def _work(address, share_memory, certificate=None):
    """Pull, report records [0, 8), and pull again; gives the session and both models."""
    client = MasterClient(lambda: address, TOKEN, PATIENCE_S, share_memory, certificate=certificate)
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


def _pull_from_a_busy_master(monkeypatch, hurried=False, beats=True):
    """Ask for the model while the master keeps the parameters for several times the patience."""
    patience_s = 0.5
    monkeypatch.setattr(rpc_client, "BULK_TIMEOUT_S", 0.1)

    def pull(address):
        client = MasterClient(lambda: address, TOKEN, patience_s, share_memory=False)
        with contextlib.closing(client):
            session = client.register(pb.RegisterRequest(worker_index=0, launch=1))
            if hurried:
                client.hurry(patience_s)
            is_done = threading.Event()

            def beat():
                while not is_done.wait(patience_s / 10):
                    client.heartbeat(session.key)

            heart = threading.Thread(target=beat) if beats else threading.Thread()
            heart.start()
            try:
                return client.get_model(session, None)
            finally:
                is_done.set()
                heart.join()

    async def play():
        master = ServedMaster()
        async with _served(master) as address:
            async with master.store.lock:
                pulling = asyncio.create_task(asyncio.to_thread(pull, address))
                await asyncio.wait([pulling], timeout=4 * patience_s)
            return await pulling

    return asyncio.run(asyncio.wait_for(play(), PATIENCE_S))


def test_a_master_that_answers_heartbeats_is_not_away(monkeypatch):
    assert _pull_from_a_busy_master(monkeypatch).version == 0


@pytest.mark.parametrize(("hurried", "beats"), [(True, True), (False, False)])
def test_one_that_does_not_or_is_no_longer_waited_for_is(monkeypatch, hurried, beats):
    with pytest.raises(RpcError, match=r"the master was away for 0\.5 s"):
        _pull_from_a_busy_master(monkeypatch, hurried, beats)


def test_who_only_looks_after_its_session_finds_the_next_master_at_another_address():
    """As a worker does while a parameter server is away: that one may be lost with the master."""

    async def play():
        addresses = []
        client = MasterClient(lambda: addresses[-1], TOKEN, PATIENCE_S, share_memory=False)
        with contextlib.closing(client):
            async with _served(ServedMaster()) as address:
                addresses.append(address)
                request = pb.RegisterRequest(worker_index=0, launch=1)
                session = await asyncio.to_thread(client.register, request)
                await asyncio.to_thread(client.check_session, session)
            async with _served(ServedMaster()) as address:
                addresses.append(address)
                await asyncio.to_thread(client.check_session, session)
                with pytest.raises(SessionLostError):
                    await asyncio.to_thread(client.check_session, session)

    asyncio.run(asyncio.wait_for(play(), PATIENCE_S))


def test_who_is_told_that_a_master_is_fenced_finds_the_next_one_at_the_same_address():
    """A connection through a Service stays with the pod that it was made to."""
    closed = threading.Event()

    def guard():
        if closed.is_set():
            raise fenced("another one acts")

    async def play():
        older, newer = ServedMaster(), ServedMaster()
        ends = []

        async with _served(older, guard) as old_address, _served(newer) as new_address:
            targets = [old_address]

            async def connect(reader, writer):
                host, port = targets[-1].split(":")
                far_reader, far_writer = await asyncio.open_connection(host, int(port))
                ends.append(asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer)))

            service = await asyncio.start_server(connect, "127.0.0.1", 0)
            host, port = service.sockets[0].getsockname()
            client = MasterClient(lambda: f"{host}:{port}", TOKEN, PATIENCE_S, share_memory=False)
            request = pb.RegisterRequest(worker_index=0, launch=1)
            with contextlib.closing(client):
                await asyncio.to_thread(client.register, request)
                targets.append(new_address)
                closed.set()
                session = await asyncio.to_thread(client.register, request)
                assert newer.job.sessions.find(session.key) is not None
                assert older.job.sessions.find(session.key) is None
            service.close()
            await asyncio.gather(*ends)

    asyncio.run(asyncio.wait_for(play(), PATIENCE_S))


async def _pump(reader, writer):
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


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


# -- by a socket of the machine ----------------------------------------------------------------


def test_a_session_on_the_masters_machine_calls_by_its_socket():
    name = new_name()

    async def play():
        master = ServedMaster(calls_at=name)
        async with _served(master) as address, _listening(master, name) as noting:
            worked = await asyncio.to_thread(_work, address, True)
            return worked, noting.called

    (_, before, after), called = asyncio.run(asyncio.wait_for(play(), PATIENCE_S))
    _check_counted(before, after)
    assert called == ["GetTask", "GetModel", "ReportGradient", "GetModel", "GetModel"]


def test_who_is_not_on_it_or_may_not_share_its_memory_calls_by_grpc():
    name = new_name()

    async def play():
        master = ServedMaster(calls_at=name)
        async with _served(master) as address, _listening(master, name) as noting:
            worked = await asyncio.to_thread(_work, address, False)
            return worked, noting.called

    (_, before, after), called = asyncio.run(asyncio.wait_for(play(), PATIENCE_S))
    _check_counted(before, after)
    assert called == []


def test_where_nobody_answers_at_the_socket_the_session_goes_on_by_grpc_and_the_next_one_by_it():
    name = new_name()

    async def play():
        master = ServedMaster(calls_at=name)
        async with _served(master) as address:
            client = MasterClient(lambda: address, TOKEN, PATIENCE_S)
            request = pb.RegisterRequest(worker_index=0, launch=1)
            with contextlib.closing(client):
                async with _listening(master, name) as first:
                    session = await asyncio.to_thread(client.register, request)
                    await asyncio.to_thread(client.heartbeat, session.key)
                reply = await asyncio.to_thread(client.get_task, session.key)
                assert reply.HasField("task")
                assert first.called == ["Heartbeat"]
                async with _listening(master, name) as second:
                    session = await asyncio.to_thread(client.register, request)
                    await asyncio.to_thread(client.heartbeat, session.key)
                    assert second.called == ["Heartbeat"]

    asyncio.run(asyncio.wait_for(play(), PATIENCE_S))


def test_a_heartbeat_at_a_master_that_was_replaced_ends_the_call_that_waits_there():
    """As one that was stopped, and holds a call: its place was given to another one."""
    name, is_fenced = new_name(), threading.Event()

    def guard():
        if is_fenced.is_set():
            raise fenced("another one acts")

    async def play():
        older, newer = ServedMaster(calls_at=name), ServedMaster()
        addresses = []
        client = MasterClient(lambda: addresses[-1], TOKEN, PATIENCE_S)
        async with (
            _served(older, guard) as old_address,
            _listening(older, name, guard),
            _served(newer) as new_address,
            older.store.lock,
        ):
            addresses.append(old_address)
            request = pb.RegisterRequest(worker_index=0, launch=1)
            with contextlib.closing(client):
                session = await asyncio.to_thread(client.register, request)
                has_come = older.note_begin_of("get_model")
                waiting = asyncio.create_task(asyncio.to_thread(client.get_model, session, None))
                await has_come.wait()
                addresses.append(new_address)
                is_fenced.set()
                await asyncio.to_thread(client.check_session, session)
                with pytest.raises(SessionLostError):
                    await waiting

    asyncio.run(asyncio.wait_for(play(), PATIENCE_S))


def test_a_call_that_was_answered_too_late_leaves_the_session_at_the_socket(monkeypatch):
    """A callback of the user's may keep the master from answering for as long as it likes."""
    name = new_name()

    async def play():
        master = ServedMaster(calls_at=name)
        async with _served(master) as address, _listening(master, name) as noting:
            client = MasterClient(lambda: address, TOKEN, PATIENCE_S)
            request = pb.RegisterRequest(worker_index=0, launch=1)
            with contextlib.closing(client):
                session = await asyncio.to_thread(client.register, request)
                with monkeypatch.context() as patched:
                    patched.setattr(rpc_client, "BULK_TIMEOUT_S", 0.2)
                    async with master.store.lock:
                        pulling = asyncio.create_task(
                            asyncio.to_thread(client.get_model, session, None)
                        )
                        await asyncio.wait([pulling], timeout=1.0)
                    await pulling
                assert client.num_retries > 0
                await asyncio.to_thread(client.heartbeat, session.key)
                assert set(noting.called) == {"GetModel", "Heartbeat"}

    asyncio.run(asyncio.wait_for(play(), PATIENCE_S))


# -- by sockets from another machine -------------------------------------------------------------

OF_A_STEP = ["GetTask", "GetModel", "ReportGradient", "GetModel", "GetModel"]


@pytest.mark.parametrize("certificate", [None, make_certificate("ours")], ids=["clear", "TLS"])
def test_a_session_elsewhere_calls_by_sockets(certificate):
    async def play():
        async with (
            _listening_elsewhere(certificate) as (master, noting, _),
            _served(master, certificate=certificate) as address,
        ):
            worked = await asyncio.to_thread(_work, address, False, certificate)
            return worked, noting.called

    (session, before, after), called = asyncio.run(asyncio.wait_for(play(), PATIENCE_S))
    assert not session.shares_memory
    _check_counted(before, after)
    assert called == OF_A_STEP


@pytest.mark.parametrize("how", ["nobody listens there", "who listens there is another one"])
def test_where_the_port_cannot_be_used_all_goes_by_grpc(how):
    """As where a rule of the network lets one port through, or a mesh takes all others."""

    async def play():
        async with (
            _listening_elsewhere() as (master, noting, listener),
            _listening_elsewhere(make_certificate("theirs")) as (_, _, other),
            _served(master) as address,
        ):
            if how.startswith("nobody"):
                await listener.stop(0)
            else:
                master.proof.calls_port = other._listening.getsockname()[1]
            worked = await asyncio.to_thread(_work, address, False)
            return worked, noting.called

    (_, before, after), called = asyncio.run(asyncio.wait_for(play(), PATIENCE_S))
    _check_counted(before, after)
    assert called == []


@pytest.mark.parametrize("num_calls", [1, 2, 3, 4])
def test_a_session_whose_sockets_break_goes_on_by_grpc_and_counts_once(num_calls):
    """The listener ends as so many calls have come, the last of which is not answered by it."""

    async def play():
        async with (
            _listening_elsewhere() as (master, noting, listener),
            _served(master) as address,
        ):
            note = noting._note

            def breaks(path):
                note(path)
                if len(noting.called) == num_calls:
                    for line in listener._serving.values():
                        line._connection.shut_down()

            noting._note = breaks
            worked = await asyncio.to_thread(_work, address, False)
            return worked, noting.called

    (_, before, after), called = asyncio.run(asyncio.wait_for(play(), PATIENCE_S))
    _check_counted(before, after)
    assert called == OF_A_STEP[:num_calls]
