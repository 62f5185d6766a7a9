"""Encrypted calls: who shows which certificate, who speaks TLS, and what callers are told."""

import asyncio
import contextlib
import ssl
import time
from dataclasses import replace

import grpc
import numpy as np
import pytest
from support.served_master import PATIENCE_S, TOKEN, ServedMaster

from elastic.errors import RpcError
from elastic.platforms.certificates import make_certificate
from elastic.rpc import elastic_pb2 as pb
from elastic.rpc.client import MasterClient
from elastic.rpc.layout import Layout, Proof
from elastic.rpc.local import LocalListener, new_name
from elastic.rpc.network import NetworkListener, SocketPlace
from elastic.rpc.server import SERVER_OPTIONS, MasterHandler, ServerHandler, fenced
from elastic.rpc.server_client import (
    AsyncServerClient,
    Commit,
    Gradient,
    LoadedShare,
    ServerAwayError,
    ServerClient,
)
from elastic.rpc.wire import add_port
from elastic.spec.values import CERTIFICATE_NAME

OURS = make_certificate("a" * 64)
THEIRS = make_certificate("b" * 64)
REGISTER = pb.RegisterRequest(worker_index=0, launch=1)
MISFITS = [
    pytest.param(THEIRS, OURS, "another certificate than this job's", id="of-another-job"),
    pytest.param(None, OURS, "speaks no TLS.*--no_tls", id="in-clear"),
]
LONG_S = 30.0
"""As patience: who waited for it would end with other words than those that are looked for."""


@contextlib.asynccontextmanager
async def served(handler, certificate):
    server = grpc.aio.server(options=SERVER_OPTIONS)
    server.add_generic_rpc_handlers((handler,))
    port = add_port(server, "127.0.0.1:0", certificate)
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


def master_handler(guard=lambda: None, token=TOKEN):
    return MasterHandler(ServedMaster().reception, token, guard)


class Committer:
    """A server that commits whatever it is asked to."""

    async def commit(self, request):
        return pb.CommitReply(learning_rate=0.5)

    async def stage(self, header, chunks):
        return pb.StageReply(is_stale=False)

    load = pull = copy = leave = put_rows = read_rows = scan_rows = None


COMMIT = Commit("era", 1, (), 0.0, 0, ())
ONE = {"one": np.ones(1, np.float32)}
GRADIENT = Gradient("era", "s", 1, 1, 1, Layout.of(ONE), 1, list(ONE.values()))


def run(play):
    return asyncio.run(asyncio.wait_for(play, PATIENCE_S))


def register(address, certificate, patience_s=LONG_S, token=TOKEN):
    """Register at a master, and say how it went in at most so long."""
    client = MasterClient(
        lambda: address, token, patience_s, share_memory=False, certificate=certificate
    )
    with contextlib.closing(client):
        return client.register(REGISTER)


async def registered(handler, shown, trusted, **settings):
    async with served(handler, shown) as address:
        return await asyncio.to_thread(register, address, trusted, **settings)


def test_a_worker_trusts_the_certificate_of_its_job():
    assert run(registered(master_handler(), OURS, OURS)).key


@pytest.mark.parametrize(("shown", "trusted", "message"), MISFITS)
def test_a_worker_ends_at_once_at_a_master_that_no_waiting_would_make_its_own(
    shown, trusted, message
):
    with pytest.raises(RpcError, match=f"the master cannot be called: .*{message}"):
        run(registered(master_handler(), shown, trusted))


def test_a_caller_in_clear_gets_no_answer_from_a_master_that_encrypts():
    with pytest.raises(RpcError, match="the master was away"):
        run(registered(master_handler(), OURS, None, patience_s=0.0))


def test_the_token_is_asked_for_all_the_same():
    with pytest.raises(RpcError, match=r"UNAUTHENTICATED.*needs this job's token"):
        run(registered(master_handler(token="another"), OURS, OURS))


def test_a_master_that_is_away_or_fenced_is_waited_for_as_in_clear():
    closed = asyncio.Event()

    def guard():
        if not closed.is_set():
            closed.set()
            raise fenced("another one acts")

    assert run(registered(master_handler(guard), OURS, OURS)).key
    assert closed.is_set()
    began_s = time.monotonic()
    with pytest.raises(RpcError, match=r"the master was away for 0\.2 s"):
        register(None, OURS, patience_s=0.2)
    assert time.monotonic() - began_s >= 0.2


def test_parameter_servers_are_called_by_both_sides():
    async def play():
        async with served(ServerHandler(Committer(), TOKEN), OURS) as address:
            master = AsyncServerClient(address, TOKEN, OURS)
            committed = await master.commit(COMMIT, PATIENCE_S)
            await master.close()
            worker = ServerClient(address, TOKEN, OURS)
            is_kept = await asyncio.to_thread(worker.stage, GRADIENT)
            worker.close()
            return committed.learning_rate, committed.failure, is_kept

    assert run(play()) == (0.5, "", True)


@pytest.mark.parametrize(("shown", "trusted", "message"), MISFITS)
def test_a_parameter_server_of_others_is_not_taken_for_one_that_is_away(shown, trusted, message):
    async def play():
        said = []
        async with served(ServerHandler(Committer(), TOKEN), shown) as address:
            master = AsyncServerClient(address, TOKEN, trusted)
            said += await asyncio.gather(master.commit(COMMIT, PATIENCE_S), return_exceptions=True)
            await master.close()
            worker = ServerClient(address, TOKEN, trusted)
            said += await asyncio.gather(
                asyncio.to_thread(worker.stage, GRADIENT), return_exceptions=True
            )
            worker.close()
        return said

    for error in run(play()):
        assert not isinstance(error, ServerAwayError)
        with pytest.raises(RpcError, match=f"a parameter server cannot be called: .*{message}"):
            raise error


def test_what_is_shown_is_the_certificate_and_the_newest_tls():
    """As any other program sees it that connects, and that knows nothing of gRPC."""

    async def play():
        async with served(master_handler(), OURS) as address:
            host, port = address.split(":")
            context = ssl.create_default_context(cadata=OURS.chain)
            context.set_alpn_protocols(["h2"])
            _, writer = await asyncio.open_connection(
                host, int(port), ssl=context, server_hostname=CERTIFICATE_NAME
            )
            found = writer.get_extra_info("ssl_object")
            seen = found.version(), found.getpeercert(binary_form=True)
            writer.transport.abort()
            return seen

    version, shown = run(play())
    assert (version, shown) == ("TLSv1.3", ssl.PEM_cert_to_DER_cert(OURS.chain))


class LoadedOnThisMachine(Committer):
    """One that is loaded as well, and takes calls at a name."""

    def __init__(self, calls_at):
        self._proof = Proof(calls_at)

    async def load(self, header, chunks):
        async for _ in chunks:
            pass
        reply = pb.LoadReply()
        self._proof.give(reply)
        return reply


def test_servers_of_this_machine_are_called_by_their_socket():
    name = new_name()

    async def play():
        handler = ServerHandler(LoadedOnThisMachine(name), TOKEN)
        listener = LocalListener(name, handler, TOKEN)
        await listener.start()
        async with served(handler, OURS) as address:
            master = AsyncServerClient(address, TOKEN, OURS)
            share = LoadedShare("era", 1, ONE, ONE, {}, {}, {}, 0, is_synchronous=True)
            proof, failure = await master.load(share)
            assert failure == ""
            worker = ServerClient(address, TOKEN, OURS, SocketPlace(proof.calls_at))
        # Nobody serves by gRPC any more.
        committed = await master.commit(COMMIT, PATIENCE_S)
        is_kept = await asyncio.to_thread(worker.stage, replace(GRADIENT, shared=pb.SharedBuffer()))
        await listener.stop(0)
        with pytest.raises(ServerAwayError):
            await master.commit(COMMIT, PATIENCE_S)
        with pytest.raises(ServerAwayError):
            await asyncio.to_thread(worker.stage, replace(GRADIENT, shared=pb.SharedBuffer()))
        await master.close()
        worker.close()
        return committed.learning_rate, is_kept

    assert run(play()) == (0.5, True)


@pytest.mark.parametrize("certificate", [None, OURS], ids=["clear", "TLS"])
def test_servers_elsewhere_are_called_by_sockets_and_by_grpc_once_those_break(certificate):
    async def play():
        handler = ServerHandler(Committer(), TOKEN)
        listener = NetworkListener(handler, TOKEN, certificate)
        place = SocketPlace("", "127.0.0.1", await listener.start("127.0.0.1"))
        async with served(handler, certificate) as address:
            pass
        # Nobody serves by gRPC now.
        worker = await asyncio.to_thread(ServerClient, address, TOKEN, certificate, place)
        assert await asyncio.to_thread(worker.stage, GRADIENT)
        await listener.stop(0)
        with pytest.raises(ServerAwayError):
            await asyncio.to_thread(worker.stage, GRADIENT)
        worker.close()
        listener = NetworkListener(handler, TOKEN, certificate)
        place = replace(place, port=await listener.start("127.0.0.1"))
        async with served(handler, certificate) as address:
            worker = await asyncio.to_thread(ServerClient, address, TOKEN, certificate, place)
            await listener.stop(0)
            with pytest.raises(ServerAwayError):
                await asyncio.to_thread(worker.stage, GRADIENT)
            assert await asyncio.to_thread(worker.stage, GRADIENT)
            worker.close()
            # Whose port is found to lead nowhere loses no call.
            worker = await asyncio.to_thread(ServerClient, address, TOKEN, certificate, place)
            assert await asyncio.to_thread(worker.stage, GRADIENT)
            worker.close()

    run(play())
