"""Calls by sockets: as by gRPC, whoever calls from where, and whatever becomes of either."""

import asyncio
import contextlib
import gc
import os
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import grpc
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic.platforms.certificates import make_certificate
from elastic.rpc import elastic_pb2 as pb
from elastic.rpc import local, network
from elastic.rpc.local import AsyncLocalChannel, LocalChannel, LocalListener
from elastic.rpc.network import NetworkChannel, NetworkListener
from elastic.rpc.sockets import MAX_BYTES, Connection, SocketCallError
from elastic.rpc.wire import CallRefusedError, Laid, Pieces, encode_data

TOKEN = "the-token-of-this-job"
LARGE = bytes(range(256)) * 12_000
"""More than a socket takes at once."""
LONG_S = 60.0
OURS = make_certificate("ours")
CERTIFICATES = {"in clear": None, "encrypted": OURS}
LOCAL = ("waits", "goes on")
ELSEWHERE = tuple(CERTIFICATES)
CLIENTS = pytest.mark.parametrize("client", [*LOCAL, *ELSEWHERE])
STREAMS = pytest.mark.parametrize("client", ELSEWHERE)


class Answers:
    """Answers by the path: itself, the request, late, never, or with a fault."""

    def __init__(self):
        self.cancelled = asyncio.Event()
        self.has_begun = asyncio.Event()
        self.may_go_on = asyncio.Event()
        self.num_taken = 0

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

    async def gather(self, path, requests):
        """All requests, joined or laid; or an answer by the first of them alone."""
        if path == "/lay":
            return await self._laid(requests)
        if path != "/join":
            return await self.answer(path, bytes(await anext(requests)))
        parts = []
        try:
            async for request in requests:
                self.num_taken += 1
                self.has_begun.set()
                parts.append(bytes(request))
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return b"".join(parts)

    async def _laid(self, requests):
        """How many requests were laid, and the data of all, of so many bytes as the first says."""
        requests = aiter(requests)
        buffer = np.zeros(int(await anext(requests)), np.uint8)
        requests.lie_in(buffer.data)
        num_laid, at = 0, 0
        async for request in requests:
            num_laid += isinstance(request, Laid)
            data = request.data if isinstance(request, Laid) else data_in(request)
            lies_at = np.frombuffer(data, np.uint8).ctypes.data - buffer.ctypes.data
            if isinstance(request, Laid) and len(data):
                assert lies_at == at
            buffer[at : at + len(data)] = np.frombuffer(data, np.uint8)
            at += len(data)
        assert at == len(buffer)
        return num_laid.to_bytes(4) + buffer.tobytes()

    async def stream(self, path, request):
        """The request, byte after byte or in pieces; or one reply, and then an answer."""
        if path == "/apart":
            for i in range(len(request)):
                yield request[i : i + 1]
        elif path == "/pieces":
            for _ in range(3):
                yield Pieces([request, memoryview(request), b"", request])
        elif path == "/reused":
            room = bytearray(len(request))
            for i in range(3):
                room[:] = bytes([i]) * len(room)
                yield Pieces([memoryview(room)])
            room[:] = b"x" * len(room)
        else:
            yield b"first"
            yield await self.answer(path, request)


def data_in(request):
    """The data of a message, by the protocol's own words."""
    return pb.GradientChunk.FromString(bytes(request)).data


@contextlib.asynccontextmanager
async def listening(answers=None, token=TOKEN, kind=LOCAL[0], certificate=OURS):
    """What a `Client` of the kind calls; gives where."""
    answers = answers or Answers()
    if kind in LOCAL:
        place = local.new_name()
        listener = LocalListener(place, answers, token)
        await listener.start()
    else:
        shown = certificate if CERTIFICATES[kind] else None
        listener = NetworkListener(answers, token, shown)
        place = await listener.start("127.0.0.1")
    try:
        yield place
    finally:
        await listener.stop(0)


class Client:
    """Any client, as one that is awaited."""

    def __init__(self, kind, place, token=TOKEN):
        self._waits = kind != "goes on"
        if kind in LOCAL:
            self.channel = (LocalChannel if self._waits else AsyncLocalChannel)(place, token)
        else:
            self.channel = NetworkChannel("127.0.0.1", place, token, CERTIFICATES[kind])

    async def call(self, path, request=b"", timeout=LONG_S):
        method = self.channel.unary_unary(path, bytes, bytes)
        if self._waits:
            return await asyncio.to_thread(method, request, timeout=timeout)
        return await method(request, timeout=timeout)

    async def upload(self, path, requests, timeout=LONG_S):
        method = self.channel.stream_unary(path, bytes, bytes)
        return await asyncio.to_thread(method, requests, timeout=timeout)

    async def download(self, path, request=b"", timeout=LONG_S):
        method = self.channel.unary_stream(path, bytes, bytes)
        return await asyncio.to_thread(lambda: list(method(request, timeout=timeout)))

    async def close(self):
        if self._waits:
            self.channel.close()
        else:
            await self.channel.close()


def run(scenario):
    return asyncio.run(asyncio.wait_for(scenario(), LONG_S))


async def status_of(calling):
    with pytest.raises(SocketCallError) as error:
        await calling
    assert isinstance(error.value, grpc.RpcError)
    return error.value.code(), error.value.details()


@CLIENTS
@pytest.mark.parametrize("request_bytes", [b"", b"x", LARGE], ids=["none", "one", "many"])
def test_what_is_asked_and_answered_is_whole(client, request_bytes):
    async def scenario():
        async with listening(kind=client) as name:
            mine = Client(client, name)
            for _ in range(3):
                assert await mine.call("/echo", request_bytes) == request_bytes
            await mine.close()

    run(scenario)


@CLIENTS
def test_calls_side_by_side_get_their_own_answers(client):
    async def scenario():
        async with listening(kind=client) as name:
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
        async with listening(kind=client) as name:
            mine = Client(client, name)
            assert await status_of(mine.call(path)) == (code, told)
            assert await mine.call("/echo", b"next") == b"next"
            await mine.close()

    run(scenario)


@CLIENTS
def test_nobody_is_answered_without_the_token(client):
    async def scenario():
        async with listening(kind=client) as name:
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
        async with listening(answers, kind=client) as name:
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
        async with listening(answers, kind=client) as name:
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
        async with listening(answers, kind=client) as name:
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


@CLIENTS
def test_who_stops_lets_calls_be_answered_for_a_while(client):
    async def scenario():
        answers = Answers()
        if client in LOCAL:
            place = local.new_name()
            listener = LocalListener(place, answers, TOKEN)
            await listener.start()
        else:
            listener = NetworkListener(answers, TOKEN, CERTIFICATES[client])
            place = await listener.start("127.0.0.1")
        mine = Client(client, place)
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
            with pytest.raises(SocketCallError) as error:
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


def _connected(kind, place):
    if kind in LOCAL:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect("\0" + place)
    else:
        connection = socket.create_connection(("127.0.0.1", place))
    connection.settimeout(LONG_S)
    if kind == "encrypted":
        context = ssl.create_default_context(cadata=OURS.chain)
        connection = context.wrap_socket(connection, server_hostname="elastic-job")
    return connection


def _connection(kind, place, *sent):
    connection = _connected(kind, place)
    # Whoever is dropped while it sends is told so in any of these ways.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError, ssl.SSLEOFError):
        for each in sent:
            connection.sendall(each)
    return connection


ANY_LISTENER = pytest.mark.parametrize("kind", [LOCAL[0], *ELSEWHERE])


@ANY_LISTENER
@pytest.mark.parametrize(
    "sent",
    [
        _frame(b""),
        struct.pack("<I", MAX_BYTES + 1),
        _frame(b"wrong"),
        # Whoever has not shown the token keeps nobody busy with more than that.
        struct.pack("<I", len(TOKEN) + 1),
        _frame(TOKEN.encode()) + _frame(b""),
        _frame(TOKEN.encode()) + 2 * _frame(b"\x00\x06/never"),
    ],
    ids=["empty", "too long", "no token", "long token", "no request", "two at once"],
)
def test_who_breaks_the_protocol_is_dropped_and_others_are_not(sent, kind):
    async def scenario():
        async with listening(kind=kind) as place:
            mine = Client(kind, place)
            assert await mine.call("/echo", b"before") == b"before"
            connection = await asyncio.to_thread(_connection, kind, place, sent)
            with contextlib.closing(connection):
                # From elsewhere the second call waits for the answer to the first.
                is_dropped = kind == LOCAL[0] or not sent.endswith(b"/never")
                with contextlib.suppress(ConnectionResetError, ssl.SSLEOFError):
                    while is_dropped and await asyncio.to_thread(connection.recv, 1 << 16):
                        pass
            assert await mine.call("/echo", b"after") == b"after"
            await mine.close()

    run(scenario)


def test_a_path_that_is_no_text_is_refused():
    async def scenario():
        async with listening() as place:
            sent = _frame(TOKEN.encode()) + _frame(b"\x00\x02\xff\xfe")
            connection = await asyncio.to_thread(_connection, LOCAL[0], place, sent)
            with contextlib.closing(connection):
                reply = await asyncio.to_thread(connection.recv, 1 << 16)
            assert reply[4] == grpc.StatusCode.INVALID_ARGUMENT.value[0]

    run(scenario)


@ANY_LISTENER
@settings(deadline=None)
@given(parts=st.lists(st.binary(max_size=20), max_size=8), has_token=st.booleans())
def test_whatever_comes_harms_nobody(kind, parts, has_token):
    async def scenario():
        async with listening(kind=kind) as place:
            sent = [_frame(TOKEN.encode())] if has_token else []
            connection = await asyncio.to_thread(_connection, kind, place, *sent, *parts)
            connection.close()
            mine = Client(kind, place)
            assert await mine.call("/echo", b"mine") == b"mine"
            await mine.close()

    run(scenario)


@CLIENTS
@pytest.mark.parametrize(
    "answer",
    [struct.pack("<I", 0), struct.pack("<I", MAX_BYTES + 1), struct.pack("<I", 9) + b"short"],
    ids=["empty", "too long", "cut off"],
)
def test_an_answer_that_is_none_is_as_if_the_other_had_gone(client, answer):
    if client in LOCAL:
        place = local.new_name()
        listener = socket.socket(socket.AF_UNIX)
        listener.bind("\0" + place)
        listener.listen()
    else:
        listener = socket.create_server(("127.0.0.1", 0))
        place = listener.getsockname()[1]

    def answer_once():
        connection = listener.accept()[0]
        if client == "encrypted":
            context = network._server_context(OURS)
            connection = context.wrap_socket(connection, server_side=True)
        with connection:
            received = b""
            while not received.endswith(b"question"):
                received += connection.recv(1 << 16)
            connection.sendall(answer)

    with contextlib.closing(listener):
        answering = threading.Thread(target=answer_once)
        answering.start()

        async def scenario():
            mine = Client(client, place)
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
    def sockets():
        gc.collect()
        opened = (each.readlink() for each in Path("/proc/self/fd").iterdir() if each.is_socket())
        return {each.name for each in opened}

    async def scenario():
        for kind in (*LOCAL, *ELSEWHERE):
            async with listening(kind=kind) as place:
                mine = Client(kind, place)
                await asyncio.gather(*(mine.call("/echo", LARGE) for _ in range(4)))
                if kind in ELSEWHERE:
                    await mine.upload("/join", [LARGE, LARGE])
                    await mine.download("/pieces", LARGE)
                await mine.close()

    # What tests before this one left open may close meanwhile.
    before = sockets()
    run(scenario)
    until_s = time.monotonic() + LONG_S
    while sockets() - before and time.monotonic() < until_s:
        time.sleep(0.05)
    assert not sockets() - before


# -- calls of more than one message --------------------------------------------------------------


@STREAMS
@pytest.mark.parametrize(
    "sent",
    [[b"x"], [b"", b"y"], [LARGE] * 5, [bytes([i]) * (1 + 300_000 * (i % 3)) for i in range(20)]],
    ids=["one", "an empty one first", "large ones", "of any size"],
)
def test_what_is_uploaded_is_whole(client, sent):
    async def scenario():
        async with listening(kind=client) as place:
            mine = Client(client, place)
            for _ in range(3):
                assert await mine.upload("/join", sent) == b"".join(sent)
            await mine.close()

    run(scenario)


@STREAMS
def test_what_is_downloaded_is_whole(client):
    async def scenario():
        async with listening(kind=client) as place:
            mine = Client(client, place)
            for part in (b"part", LARGE):
                assert await mine.download("/pieces", part) == [part * 3] * 3
            assert await mine.download("/apart", b"") == []
            assert await mine.download("/apart", b"xyz") == [b"x", b"y", b"z"]
            await mine.close()

    run(scenario)


@STREAMS
def test_a_reply_lies_in_memory_that_is_used_again_for_the_next(client):
    async def scenario():
        async with listening(kind=client) as place:
            mine = Client(client, place)
            replies = mine.channel.unary_stream("/reused", bytes, bytes)(LARGE, timeout=LONG_S)
            for i in range(3):
                # What is sent ahead of who reads must be what it was.
                await asyncio.sleep(0.05)
                assert await asyncio.to_thread(next, replies) == bytes([i]) * len(LARGE)
            assert await asyncio.to_thread(next, replies, None) is None
            await mine.close()

    run(scenario)


@STREAMS
def test_uploads_side_by_side_are_not_mixed_up(client):
    async def scenario():
        async with listening(kind=client) as place:
            mine = Client(client, place)
            sent = [[bytes([i]) * 500_000] * 8 for i in range(8)]
            joined = await asyncio.gather(*(mine.upload("/join", each) for each in sent))
            assert joined == [b"".join(each) for each in sent]
            await mine.close()

    run(scenario)


@STREAMS
def test_pieces_are_sent_as_they_lie(client):
    async def scenario():
        async with listening(kind=client) as place:
            mine = Client(client, place)
            few = Pieces([b"head", memoryview(LARGE), b"", LARGE])
            many = Pieces([bytes([i % 256]) for i in range(5_000)])
            joined = b"".join([*few, *many])
            assert await mine.upload("/join", [few, many]) == joined
            await mine.close()

    run(scenario)


@STREAMS
@pytest.mark.parametrize(
    ("parts", "num_laid"),
    [
        ([LARGE], 1),
        ([LARGE] * 4, 4),
        ([b"x" * size for size in (1, 127, 128, 16_383, 16_384, 1 << 20)], 6),
        ([], 0),
        ([b"", b"xyz", b""], 2),
    ],
    ids=["one", "large ones", "heads of any length", "none", "empty ones"],
)
def test_data_is_received_where_it_is_to_lie(client, parts, num_laid):
    async def scenario():
        async with listening(kind=client) as place:
            mine = Client(client, place)
            for _ in range(2):
                sent = [
                    str(sum(map(len, parts))).encode(),
                    *(encode_data([each]) for each in parts),
                ]
                reply = await mine.upload("/lay", sent)
                assert reply[4:] == b"".join(parts)
                assert int.from_bytes(reply[:4]) == num_laid
            await mine.close()

    run(scenario)


@STREAMS
def test_what_is_written_otherwise_lies_elsewhere_and_so_does_all_behind_it(client):
    """A length with a byte too many, as other encoders may write it: nothing lies over another."""

    async def scenario():
        async with listening(kind=client) as place:
            mine = Client(client, place)
            odd = b"\x12\x83\x00abc"
            sent = [b"9", encode_data([b"xyz"]), odd, encode_data([b"uvw"])]
            reply = await mine.upload("/lay", sent)
            assert (reply[:4], reply[4:]) == ((1).to_bytes(4), b"xyzabcuvw")
            await mine.close()

    run(scenario)


@STREAMS
def test_an_upload_that_is_refused_before_its_end_leaves_the_connection_to_the_next(client):
    async def scenario():
        async with listening(kind=client) as place:
            mine = Client(client, place)
            for path, code in (
                ("/refuse", grpc.StatusCode.ABORTED),
                ("/fail", grpc.StatusCode.UNKNOWN),
            ):
                assert (await status_of(mine.upload(path, [LARGE] * 20)))[0] is code
                assert await mine.upload("/echo", [b"first", LARGE]) == b"first"
            assert len(mine.channel._idle) == 1
            await mine.close()

    run(scenario)


@STREAMS
def test_a_download_that_is_refused_gives_what_came_before_and_leaves_the_connection(client):
    async def scenario():
        async with listening(kind=client) as place:
            mine = Client(client, place)
            replies = mine.channel.unary_stream("/refuse", bytes, bytes)(b"", timeout=LONG_S)
            assert await asyncio.to_thread(next, replies) == b"first"
            assert await status_of(asyncio.to_thread(next, replies)) == (
                grpc.StatusCode.ABORTED,
                "not größer",
            )
            assert len(mine.channel._idle) == 1
            assert await mine.call("/echo", b"next") == b"next"
            await mine.close()

    run(scenario)


@STREAMS
def test_a_download_that_nobody_wants_any_more_ends(client):
    async def scenario():
        answers = Answers()
        async with listening(answers, kind=client) as place:
            mine = Client(client, place)
            replies = mine.channel.unary_stream("/never", bytes, bytes)(b"", timeout=LONG_S)
            assert await asyncio.to_thread(next, replies) == b"first"
            # The first is here before who sent it goes on to the next, which is to be cancelled.
            await answers.has_begun.wait()
            replies.close()
            await answers.cancelled.wait()
            assert await mine.call("/echo", b"next") == b"next"
            await mine.close()

    run(scenario)


@STREAMS
@pytest.mark.parametrize("how", ["what makes the requests fails", "the connection is closed"])
def test_an_upload_that_breaks_off_is_cancelled(client, how):
    async def scenario():
        answers = Answers()
        async with listening(answers, kind=client) as place:
            mine = Client(client, place)

            def requests():
                yield LARGE
                asyncio.run_coroutine_threadsafe(answers.has_begun.wait(), loop).result(LONG_S)
                if how == "the connection is closed":
                    mine.channel.close()
                    yield LARGE
                raise KeyError("a fault of the caller's")

            loop = asyncio.get_running_loop()
            with pytest.raises((KeyError, SocketCallError)):
                await mine.upload("/join", requests())
            await answers.cancelled.wait()
            await mine.close()

    run(scenario)


@STREAMS
def test_an_upload_to_one_that_stops_ends_as_if_it_had_gone(client):
    async def scenario():
        answers = Answers()
        async with listening(answers, kind=client) as place:
            mine = Client(client, place)
            is_over = threading.Event()

            def requests():
                yield LARGE
                assert is_over.wait(LONG_S)
                while True:
                    yield LARGE

            uploading = asyncio.ensure_future(mine.upload("/join", requests()))
            await answers.has_begun.wait()
        is_over.set()
        code, _ = await status_of(uploading)
        assert code is grpc.StatusCode.UNAVAILABLE
        await mine.close()

    run(scenario)


@STREAMS
def test_who_sends_nothing_more_in_the_middle_is_given_up(client, monkeypatch):
    monkeypatch.setattr(network, "STALL_S", 0.2)

    async def scenario():
        answers = Answers()
        async with listening(answers, kind=client) as place:
            # A call whose second message is announced, and does not come.
            begun = _frame(b"\x01\x05/joinfirst") + struct.pack("<I", 100)
            connection = await asyncio.to_thread(
                _connection, client, place, _frame(TOKEN.encode()), begun
            )
            with contextlib.closing(connection):
                await answers.cancelled.wait()
                assert await asyncio.to_thread(connection.recv, 1) == b""

    run(scenario)


# -- who is not let in ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answering", "calling"),
    [("in clear", "encrypted"), ("encrypted", "in clear"), ("encrypted", "encrypted")],
)
def test_who_does_not_encrypt_alike_or_shows_another_certificate_is_not_reached(
    answering, calling, monkeypatch
):
    monkeypatch.setattr(network, "INTRODUCTION_S", 1.0)

    async def scenario():
        theirs = make_certificate("theirs")
        async with listening(kind=answering, certificate=theirs) as place:
            mine = Client(calling, place)
            code, _ = await status_of(mine.call("/echo", b"x"))
            assert code is grpc.StatusCode.UNAVAILABLE
            await mine.close()

    run(scenario)


@STREAMS
def test_a_port_that_cannot_be_reached_is_told_from_one_that_can(client, caplog):
    async def scenario():
        async with listening(kind=client) as place:
            mine = Client(client, place)
            assert await asyncio.to_thread(mine.channel.is_reachable)
            assert await mine.call("/echo", b"x") == b"x"
            assert len(mine.channel._idle) == 1
            await mine.close()
        mine = Client(client, place)
        assert not await asyncio.to_thread(mine.channel.is_reachable)
        assert f"port {place} go by gRPC" in caplog.text

    run(scenario)


@STREAMS
def test_strangers_neither_stay_nor_keep_others_out(client, monkeypatch, caplog):
    monkeypatch.setattr(network, "MAX_STRANGERS", 2)
    monkeypatch.setattr(network, "INTRODUCTION_S", 0.5)

    async def scenario():
        async with listening(kind=client) as place:
            mine = Client(client, place)
            assert await mine.call("/echo", b"x") == b"x"
            strangers = [socket.create_connection(("127.0.0.1", place)) for _ in range(3)]
            for each in strangers:
                with contextlib.closing(each):
                    each.settimeout(LONG_S)
                    # Two after their time, one at once.
                    with contextlib.suppress(ConnectionResetError):
                        assert await asyncio.to_thread(each.recv, 1) == b""
            assert "2 others show no token" in caplog.text
            assert await mine.call("/echo", b"y") == b"y"
            again = Client(client, place)
            assert await again.call("/echo", b"z") == b"z"
            await mine.close()
            await again.close()

    run(scenario)


@STREAMS
def test_a_stranger_that_says_a_little_again_and_again_does_not_stay_either(client, monkeypatch):
    monkeypatch.setattr(network, "INTRODUCTION_S", 0.5)

    def says_little(place):
        # The token's length is that of many such bytes, and so is that of a handshake.
        begun = struct.pack("<I", len(TOKEN)) if client == "in clear" else b"\x16\x03\x01\x40\x00"
        with _connected("in clear", place) as connection:
            connection.sendall(begun)
            until_s = time.monotonic() + LONG_S
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                while time.monotonic() < until_s:
                    connection.sendall(b"x")
                    time.sleep(0.1)
                return False
        return True

    async def scenario():
        async with listening(kind=client) as place:
            assert await asyncio.to_thread(says_little, place)

    run(scenario)


def test_a_port_that_is_taken_leaves_all_to_grpc(caplog):
    async def scenario():
        async with listening(kind="in clear") as place:
            second = NetworkListener(Answers(), TOKEN, None)
            assert await second.start("127.0.0.1", place) == 0
            await second.stop(0)
            assert "go by gRPC" in caplog.text

    run(scenario)


def test_a_host_is_written_as_for_grpc():
    async def scenario():
        for host in ("[::]", "[::1]", "127.0.0.1"):
            listener = NetworkListener(Answers(), TOKEN, None)
            port = await listener.start(host)
            channel = NetworkChannel(host.replace("[::]", "127.0.0.1"), port, TOKEN)
            call = channel.unary_unary("/echo", bytes, bytes)
            assert await asyncio.to_thread(call, host.encode()) == host.encode()
            channel.close()
            await listener.stop(0)

    run(scenario)


def test_answers_of_this_machine_that_come_soon_are_waited_for_awake(monkeypatch):
    spun, spin = [], Connection.spin

    def noted(connection, seconds):
        spun.append(seconds)
        spin(connection, seconds)

    monkeypatch.setattr(Connection, "spin", noted)

    def call_until_awake(call):
        num_calls, until_s = 0, time.monotonic() + LONG_S / 2
        # On a busy machine not every answer comes soon.
        while not spun and time.monotonic() < until_s:
            assert call(b"soon", timeout=LONG_S) == b"soon"
            num_calls += 1
        return num_calls

    async def scenario():
        async with listening() as name:
            channel = LocalChannel(name, TOKEN)
            call = channel.unary_unary("/echo", bytes, bytes)
            num_calls = await asyncio.to_thread(call_until_awake, call)
            channel.close()
        assert spun
        assert num_calls > 1, "nothing was known of the first"

    run(scenario)
