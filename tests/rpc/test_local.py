"""Calls by a socket of the machine: as by gRPC, whoever calls, and whatever becomes of either."""

import asyncio
import contextlib
import gc
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic.rpc import local
from elastic.rpc.local import AsyncLocalChannel, LocalCallError, LocalChannel, LocalListener
from elastic.rpc.wire import CallRefusedError

TOKEN = "the-token-of-this-job"
LARGE = bytes(range(256)) * 12_000
"""More than a socket takes at once."""
LONG_S = 60.0
CLIENTS = pytest.mark.parametrize("client", ["waits", "goes on"])


class Answers:
    """Answers by the path: itself, the request, late, never, or with a fault."""

    def __init__(self):
        self.cancelled = asyncio.Event()
        self.has_begun = asyncio.Event()
        self.may_go_on = asyncio.Event()

    async def answer(self, path, request):
        match path:
            case "/echo":
                return request
            case "/refuse":
                raise CallRefusedError(grpc.StatusCode.ABORTED, "not größer")
            case "/fail":
                raise KeyError("a fault")
            case "/late":
                self.has_begun.set()
                await self.may_go_on.wait()
                return b"late"
            case "/never":
                self.has_begun.set()
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    self.cancelled.set()
                    raise
        raise CallRefusedError(grpc.StatusCode.UNIMPLEMENTED, path)


@contextlib.asynccontextmanager
async def listening(answers=None, token=TOKEN):
    name = local.new_name()
    listener = LocalListener(name, answers or Answers(), token)
    await listener.start()
    try:
        yield name
    finally:
        await listener.stop(0)


class Client:
    """Either client, as one that is awaited."""

    def __init__(self, kind, name, token=TOKEN):
        self._waits = kind == "waits"
        self.channel = (LocalChannel if self._waits else AsyncLocalChannel)(name, token)

    async def call(self, path, request=b"", timeout=LONG_S):
        method = self.channel.unary_unary(path, bytes, bytes)
        if self._waits:
            return await asyncio.to_thread(method, request, timeout=timeout)
        return await method(request, timeout=timeout)

    async def close(self):
        if self._waits:
            self.channel.close()
        else:
            await self.channel.close()


def run(scenario):
    return asyncio.run(asyncio.wait_for(scenario(), LONG_S))


async def status_of(calling):
    with pytest.raises(LocalCallError) as error:
        await calling
    assert isinstance(error.value, grpc.RpcError)
    return error.value.code(), error.value.details()


@CLIENTS
@pytest.mark.parametrize("request_bytes", [b"", b"x", LARGE], ids=["none", "one", "many"])
def test_what_is_asked_and_answered_is_whole(client, request_bytes):
    async def scenario():
        async with listening() as name:
            mine = Client(client, name)
            for _ in range(3):
                assert await mine.call("/echo", request_bytes) == request_bytes
            await mine.close()

    run(scenario)


@CLIENTS
def test_calls_side_by_side_get_their_own_answers(client):
    async def scenario():
        async with listening() as name:
            mine = Client(client, name)
            asked = [str(i).encode() * (1 + 1000 * i) for i in range(20)]
            assert await asyncio.gather(*(mine.call("/echo", each) for each in asked)) == asked
            await mine.close()

    run(scenario)


@CLIENTS
@pytest.mark.parametrize(
    ("path", "code", "told"),
    [
        ("/refuse", grpc.StatusCode.ABORTED, "not größer"),
        ("/fail", grpc.StatusCode.UNKNOWN, "KeyError: 'a fault'"),
        ("/other", grpc.StatusCode.UNIMPLEMENTED, "/other"),
    ],
)
def test_a_refusal_has_its_status_and_the_next_call_its_answer(client, path, code, told):
    async def scenario():
        async with listening() as name:
            mine = Client(client, name)
            assert await status_of(mine.call(path)) == (code, told)
            assert await mine.call("/echo", b"next") == b"next"
            await mine.close()

    run(scenario)


@CLIENTS
def test_nobody_is_answered_without_the_token(client):
    async def scenario():
        async with listening() as name:
            for token in ("another", "", TOKEN + "x"):
                mine = Client(client, name, token)
                code, _ = await status_of(mine.call("/echo", b"x"))
                assert code is grpc.StatusCode.UNAVAILABLE
                await mine.close()

    run(scenario)


@CLIENTS
def test_an_answer_that_comes_too_late_is_not_that_to_the_next_call(client):
    async def scenario():
        answers = Answers()
        async with listening(answers) as name:
            mine = Client(client, name)
            code, _ = await status_of(mine.call("/late", timeout=0.05))
            assert code is grpc.StatusCode.DEADLINE_EXCEEDED
            answers.may_go_on.set()
            for _ in range(3):
                assert await mine.call("/echo", b"mine") == b"mine"
            await mine.close()

    run(scenario)


@CLIENTS
def test_what_nobody_waits_for_any_more_is_cancelled(client):
    async def scenario():
        answers = Answers()
        async with listening(answers) as name:
            mine = Client(client, name)
            calling = asyncio.ensure_future(mine.call("/never"))
            await answers.has_begun.wait()
            await mine.close()
            code, _ = await status_of(calling)
            assert code is grpc.StatusCode.UNAVAILABLE
            await answers.cancelled.wait()
            code, _ = await status_of(mine.call("/echo"))
            assert code is grpc.StatusCode.CANCELLED

    run(scenario)


@CLIENTS
def test_who_stops_answering_is_away_and_so_is_who_is_not_there(client):
    async def scenario():
        answers = Answers()
        async with listening(answers) as name:
            mine = Client(client, name)
            calling = asyncio.ensure_future(mine.call("/never"))
            await answers.has_begun.wait()
        code, _ = await status_of(calling)
        assert code is grpc.StatusCode.UNAVAILABLE
        code, _ = await status_of(mine.call("/echo"))
        assert code is grpc.StatusCode.UNAVAILABLE
        await mine.close()

    run(scenario)


def test_a_call_that_its_caller_cancels_is_cancelled():
    async def scenario():
        answers = Answers()
        async with listening(answers) as name:
            mine = Client("goes on", name)
            calling = asyncio.ensure_future(mine.call("/never"))
            await answers.has_begun.wait()
            calling.cancel()
            await answers.cancelled.wait()
            assert await mine.call("/echo", b"next") == b"next"
            await mine.close()

    run(scenario)


def test_who_stops_lets_calls_be_answered_for_a_while():
    async def scenario():
        answers, name = Answers(), local.new_name()
        listener = LocalListener(name, answers, TOKEN)
        await listener.start()
        mine = Client("goes on", name)
        calling = asyncio.ensure_future(mine.call("/late"))
        await answers.has_begun.wait()
        stopping = asyncio.ensure_future(listener.stop(LONG_S))
        await asyncio.sleep(0)
        answers.may_go_on.set()
        assert await calling == b"late"
        await stopping
        await mine.close()

    run(scenario)


def test_who_is_retired_makes_no_new_calls_and_answers_the_old_ones():
    async def scenario():
        answers = Answers()
        async with listening(answers) as name:
            channel = LocalChannel(name, TOKEN)
            call = channel.unary_unary("/late", bytes, bytes)
            calling = asyncio.ensure_future(asyncio.to_thread(call, b""))
            await answers.has_begun.wait()
            channel.retire()
            with pytest.raises(LocalCallError) as error:
                call(b"")
            assert error.value.code() is grpc.StatusCode.CANCELLED
            answers.may_go_on.set()
            assert await calling == b"late"

    run(scenario)


def test_what_is_closed_while_it_connects_makes_no_call(monkeypatch):
    async def scenario():
        async with listening() as name:
            channel = LocalChannel(name, TOKEN)
            connect = local._connected

            def connects_late(*parts):
                connection = connect(*parts)
                channel.close()
                return connection

            monkeypatch.setattr(local, "_connected", connects_late)
            call = channel.unary_unary("/never", bytes, bytes)
            code, _ = await status_of(asyncio.to_thread(call, b"", timeout=LONG_S))
            assert code is grpc.StatusCode.CANCELLED

    run(scenario)


def _frame(data):
    return struct.pack("<I", len(data)) + data


def _connection(name, *sent):
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(LONG_S)
    connection.connect("\0" + name)
    with contextlib.suppress(BrokenPipeError):
        for each in sent:
            connection.sendall(each)
    return connection


@pytest.mark.parametrize(
    "sent",
    [
        _frame(b""),
        struct.pack("<I", local.MAX_BYTES + 1),
        _frame(b"wrong"),
        # Whoever has not shown the token keeps nobody busy with more than that.
        struct.pack("<I", len(TOKEN) + 1),
        _frame(TOKEN.encode()) + _frame(b""),
        _frame(TOKEN.encode()) + 2 * _frame(b"\x06/never"),
    ],
    ids=["empty", "too long", "no token", "long token", "no request", "two at once"],
)
def test_who_breaks_the_protocol_is_dropped_and_others_are_not(sent):
    async def scenario():
        async with listening() as name:
            mine = Client("goes on", name)
            assert await mine.call("/echo", b"before") == b"before"
            connection = await asyncio.to_thread(_connection, name, sent)
            with contextlib.closing(connection), contextlib.suppress(ConnectionResetError):
                while await asyncio.to_thread(connection.recv, 1 << 16):
                    pass
            assert await mine.call("/echo", b"after") == b"after"
            await mine.close()

    run(scenario)


def test_a_path_that_is_no_text_is_refused():
    async def scenario():
        async with listening() as name:
            sent = _frame(TOKEN.encode()) + _frame(b"\x02\xff\xfe")
            connection = await asyncio.to_thread(_connection, name, sent)
            with contextlib.closing(connection):
                reply = await asyncio.to_thread(connection.recv, 1 << 16)
            assert reply[4] == grpc.StatusCode.INVALID_ARGUMENT.value[0]

    run(scenario)


@given(st.lists(st.binary(max_size=20), max_size=8), st.booleans())
def test_whatever_comes_harms_nobody(parts, has_token):
    async def scenario():
        async with listening() as name:
            sent = [_frame(TOKEN.encode())] if has_token else []
            connection = await asyncio.to_thread(_connection, name, *sent, *parts)
            connection.close()
            mine = Client("goes on", name)
            assert await mine.call("/echo", b"mine") == b"mine"
            await mine.close()

    run(scenario)


@CLIENTS
@pytest.mark.parametrize(
    "answer",
    [struct.pack("<I", 0), struct.pack("<I", local.MAX_BYTES + 1), struct.pack("<I", 9) + b"short"],
    ids=["empty", "too long", "cut off"],
)
def test_an_answer_that_is_none_is_as_if_the_other_had_gone(client, answer):
    name = local.new_name()
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind("\0" + name)
        listener.listen()

        def answer_once():
            with listener.accept()[0] as connection:
                received = b""
                while not received.endswith(b"question"):
                    received += connection.recv(1 << 16)
                connection.sendall(answer)

        answering = threading.Thread(target=answer_once)
        answering.start()

        async def scenario():
            mine = Client(client, name)
            code, _ = await status_of(mine.call("/echo", b"question"))
            assert code is grpc.StatusCode.UNAVAILABLE
            await mine.close()

        run(scenario)
        answering.join()


@pytest.mark.skipif(os.getuid() != 0, reason="only root may become somebody else")
def test_the_token_is_not_told_to_another_user_who_has_taken_the_name():
    name = local.new_name()
    taker = f"""
import os, socket
os.setuid(65534)
listener = socket.socket(socket.AF_UNIX)
listener.bind({chr(0) + name!r})
listener.listen()
print("ready", flush=True)
connection, _ = listener.accept()
print(len(connection.recv(100)), flush=True)
"""
    command = [sys.executable, "-c", taker]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"

        async def scenario():
            mine = Client("waits", name)
            code, details = await status_of(mine.call("/echo", b"x"))
            assert code is grpc.StatusCode.UNAVAILABLE
            assert "another user (65534)" in details

        run(scenario)
        assert process.stdout.readline() == "0\n"


def test_where_there_are_no_such_sockets_nobody_listens(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")

    async def scenario():
        assert local.new_name() == ""
        listener = LocalListener("", Answers(), TOKEN)
        await listener.start()
        await listener.stop(0)

    run(scenario)


def test_a_name_that_is_taken_leaves_all_to_grpc(caplog):
    async def scenario():
        async with listening() as name:
            second = LocalListener(name, Answers(), TOKEN)
            await second.start()
            await second.stop(0)
            assert "go by gRPC" in caplog.text
            mine = Client("goes on", name)
            assert await mine.call("/echo", b"first") == b"first"
            await mine.close()

    run(scenario)


def test_no_connection_is_left_open():
    def num_sockets():
        gc.collect()
        return sum(each.is_socket() for each in Path("/proc/self/fd").iterdir())

    async def scenario():
        async with listening() as name:
            for kind in ("waits", "goes on"):
                mine = Client(kind, name)
                await asyncio.gather(*(mine.call("/echo", LARGE) for _ in range(4)))
                await mine.close()

    before = num_sockets()
    run(scenario)
    until_s = time.monotonic() + LONG_S
    while num_sockets() > before and time.monotonic() < until_s:
        time.sleep(0.05)
    assert num_sockets() == before
