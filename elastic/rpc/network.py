"""Calls between machines by sockets of the job's own, encrypted as those of gRPC are.

See `sockets` for what is sent. Who answers has other threads than that of the event loop wait for
sockets, encrypt and decrypt, side by side; tensors come into memory that is used again.
"""

import asyncio
import hmac
import logging
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

import grpc
import numpy as np

from elastic.rpc.layout import CHUNK_BYTES, Bytes, Proof, SharedHandle
from elastic.rpc.local import LocalChannel, LocalListener, new_name
from elastic.rpc.server import AnsweringStreams, reply_of
from elastic.rpc.sockets import (
    GOOD,
    Connection,
    EncryptedConnection,
    Kind,
    Part,
    SocketChannel,
    parts_of,
    take_apart,
)
from elastic.rpc.wire import Laid, head_of_data
from elastic.spec.values import Certificate

log = logging.getLogger(__name__)

CONNECT_S: Final = 3.0
"""Until a port counts as one that cannot be reached."""
INTRODUCTION_S: Final = 10.0
"""Until a connection has to be encrypted and have shown the token."""
STALL_S: Final = 120.0
"""Until a peer that is in the middle of a message, and sends or takes nothing, is given up."""
MAX_STRANGERS: Final = 64
"""Connections that have not shown the token yet, each of which may keep a thread busy."""
MAX_THREADS: Final = 512
"""Connections that something comes or goes by at one moment; others wait for their turn."""
MAX_FREE: Final = 8
"""Buffers that are kept for the next gradients."""
KEEPALIVE: Final = (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4))
"""Seconds, seconds and tries: a machine that has gone does not say so."""
UNHEARD_MS: Final = 40_000
"""Until the other machine counts as gone that confirms nothing of what is sent."""
ACCEPT_AGAIN_S: Final = 1.0
ROOM_BYTES: Final = CHUNK_BYTES + 64
"""For a chunk and what stands around it."""


class NetworkListener:
    """Takes calls at a port, in the running loop."""

    def __init__(
        self, answering: AnsweringStreams, token: str, certificate: Certificate | None
    ) -> None:
        """Take what answers.

        Args:
            answering: Answers what comes with the token.
            token: The job's.
            certificate: The job's; None where its calls go in clear.
        """
        self._answering = answering
        self._token = token.encode()
        self._certificate = certificate
        self._context: ssl.SSLContext | None = None
        self._threads = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="calls")
        self._listening: socket.socket | None = None
        self._serving: dict[asyncio.Task[None], _Line] = {}
        self._rooms: list[_Room] = []
        self._is_stopped = False

    async def start(self, host: str, port: int = 0) -> int:
        """Listen.

        Args:
            host: As gRPC has it: with brackets where it is an address of IPv6.
            port: 0 for a free one.

        Returns:
            The port; 0 where that cannot be had, and everybody calls by gRPC.
        """
        try:
            if self._certificate is not None:
                self._context = _server_context(self._certificate)
            self._listening = _listening(host, port)
        except OSError as error:
            log.warning("calls between machines go by gRPC: %s", error)
            return 0
        self._listening.setblocking(False)
        self._accept_from_now()
        return int(self._listening.getsockname()[1])

    async def stop(self, grace_s: float) -> None:
        """Take no more connections, and drop those that there are once what they have asked by now
        is answered, or was not in so many seconds.
        """
        self._is_stopped = True
        if self._listening is not None:
            asyncio.get_running_loop().remove_reader(self._listening)
            self._listening.close()
            self._listening = None
        lines = list(self._serving.values())
        for serving, line in self._serving.items():
            if line.is_idle:
                serving.cancel()
        if self._serving:
            await asyncio.wait(self._serving, timeout=grace_s)
        for serving in self._serving:
            serving.cancel()
        while self._serving:
            await asyncio.wait(self._serving)
        await asyncio.gather(*(line.closed() for line in lines))
        self._threads.shutdown(wait=False)

    def _accept_from_now(self) -> None:
        if self._listening is not None and not self._is_stopped:
            asyncio.get_running_loop().add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        assert self._listening is not None
        loop = asyncio.get_running_loop()
        try:
            raw, _ = self._listening.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            # For want of descriptors, or of memory: some may be free in a while.
            log.warning("a connection was not taken: %s", error)
            loop.remove_reader(self._listening)
            loop.call_later(ACCEPT_AGAIN_S, self._accept_from_now)
            return
        num_strangers = sum(not line.is_trusted for line in self._serving.values())
        if num_strangers >= MAX_STRANGERS:
            log.warning("dropped a connection: %d others show no token", num_strangers)
            raw.close()
            return
        line = _Line(_connection(raw, self._context, is_server=True), self._threads)
        serving = loop.create_task(self._serve(line))
        self._serving[serving] = line
        serving.add_done_callback(self._served)

    def _served(self, serving: "asyncio.Task[None]") -> None:
        # Here, since a task that is cancelled before it begins does nothing at all.
        self._serving.pop(serving).close()
        if not serving.cancelled() and (error := serving.exception()) is not None:
            log.error("a connection was dropped", exc_info=error)

    async def _serve(self, line: "_Line") -> None:
        try:
            await self._introduced(line)
            while line.is_trusted and not self._is_stopped:
                line.is_idle = True
                await line.readable()
                line.is_idle = False
                await self._answer(line)
        except OSError as error:
            # Also where its time was over.
            log.warning("dropped a connection that did not introduce itself: %s", error)
        except asyncio.CancelledError:
            if line.fault is None:
                raise
            if not line.is_trusted:
                log.warning("dropped a connection that did not introduce itself: %s", line.fault)

    async def _introduced(self, line: "_Line") -> None:
        """Have a connection encrypted, and show the token."""
        async with asyncio.timeout(INTRODUCTION_S):
            shown = await line.do(partial(_introduction, len(self._token)))
        if hmac.compare_digest(shown, self._token):
            line.trust()
        else:
            log.warning("dropped a connection without this job's token")

    async def _answer(self, line: "_Line") -> None:
        """Answer one call."""
        kind, path, request = await line.do(_read_request)
        if kind is Kind.SINGLE:
            answering = self._ask(line, path, request)
        elif kind is Kind.UPLOAD:
            answering = self._gather(line, path, request)
        else:
            answering = self._stream(line, path, request)
        await line.answered(answering, is_read=kind is Kind.UPLOAD)

    async def _ask(self, line: "_Line", path: str, request: Part) -> None:
        await line.send(*await reply_of(self._answering.answer(path, request)))

    async def _gather(self, line: "_Line", path: str, first: Part) -> None:
        rooms = [self._rooms.pop() if self._rooms else _Room() for _ in range(2)]
        requests = _Requests(line, first, rooms)
        reply = await reply_of(self._answering.gather(path, requests))
        async for _ in requests:
            # Of a call that was refused before its end.
            pass
        if len(self._rooms) < MAX_FREE:
            self._rooms += rooms
        await line.send(*reply)

    async def _stream(self, line: "_Line", path: str, request: Part) -> None:
        async def streamed() -> bytes:
            async for reply in self._answering.stream(path, request):
                # Before the next is asked for: it may lie in memory that is used again then.
                await line.send(GOOD, *parts_of(reply, bytes))
            return b""

        status, *_ = await reply_of(streamed())
        if status == GOOD:
            await line.do(Connection.send_end)
        else:
            await line.send(status)


class SocketListeners:
    """Takes calls of a process by sockets, from its machine and from others.

    Attributes:
        proof: Tells callers where.
    """

    def __init__(self) -> None:
        """Take none yet."""
        self._name = new_name()
        self._local: LocalListener | None = None
        self._network: NetworkListener | None = None
        self.proof = Proof(self._name)

    async def start(
        self,
        answering: AnsweringStreams,
        token: str,
        certificate: Certificate | None,
        host: str,
        port: int = 0,
    ) -> int:
        """Listen, and tell the port; see `NetworkListener.start`."""
        self._local = LocalListener(self._name, answering, token)
        self._network = NetworkListener(answering, token, certificate)
        await self._local.start()
        self.proof.calls_port = await self._network.start(host, port)
        return self.proof.calls_port

    async def stop(self, grace_s: float) -> None:
        """See `NetworkListener.stop`."""
        if self._local is not None and self._network is not None:
            await asyncio.gather(self._local.stop(grace_s), self._network.stop(grace_s))


class _Line:
    """A connection that calls come by, one after the other, and what a thread does with it.

    Whatever cannot be done with it ends by cancelling who wanted it: as with gRPC, nobody waits for
    the answer any more.

    Attributes:
        is_trusted: Whether the token was shown.
        is_idle: Whether it has no call.
        fault: Why it is of no use any more.
    """

    def __init__(self, connection: Connection, threads: ThreadPoolExecutor) -> None:
        connection.settimeout(INTRODUCTION_S)
        self._connection = connection
        self._threads = threads
        self._loop = asyncio.get_running_loop()
        self._doing: asyncio.Future[_Outcome] | None = None
        self._answering: asyncio.Task[None] | None = None
        self.is_trusted = False
        self.is_idle = False
        self.fault: OSError | None = None

    def trust(self) -> None:
        """The token was shown."""
        self.is_trusted = True
        self._connection.settimeout(STALL_S)

    def begin(self, operation: "Callable[[Connection], Any]") -> "asyncio.Future[_Outcome]":
        """Have a thread do something with the connection, which does nothing else meanwhile."""
        doing = partial(_outcome, operation, self._connection)
        self._doing = self._loop.run_in_executor(self._threads, doing)
        return self._doing

    async def done(self, doing: "asyncio.Future[_Outcome]") -> Any:
        """The result of what was begun.

        Raises:
            CancelledError: It failed; see `fault`.
        """
        # Whoever is cancelled leaves the thread alone.
        await asyncio.wait((doing,))
        result, fault = doing.result()
        if fault is not None:
            self.fault = fault
            raise asyncio.CancelledError
        return result

    async def do(self, operation: "Callable[[Connection], Any]") -> Any:
        """The result of what a thread does with the connection; see `done`."""
        return await self.done(self.begin(operation))

    async def send(self, *parts: Part) -> None:
        """Send a message of these parts; see `done`."""
        await self.do(lambda connection: connection.send(*parts))

    async def readable(self) -> None:
        """Wait until something comes, or the other side has closed."""
        if self._connection.has_more:
            return
        coming = self._loop.create_future()
        self._loop.add_reader(self._connection, _settle, coming)
        try:
            await coming
        finally:
            self._loop.remove_reader(self._connection)

    async def answered(self, answering: Coroutine[Any, Any, None], *, is_read: bool) -> None:
        """Wait for an answer, which is cancelled if the other side goes.

        Args:
            answering: What answers, and sends the reply.
            is_read: Whether it reads from the connection first, and calls `watch` then.
        """
        self._answering = self._loop.create_task(answering)
        if not is_read:
            self.watch()
        try:
            await self._answering
        finally:
            self._loop.remove_reader(self._connection)

    def watch(self) -> None:
        """Nothing is to come before the reply, and what comes is an end."""
        self._loop.add_reader(self._connection, self._look)

    def _look(self) -> None:
        self._loop.remove_reader(self._connection)
        try:
            if self._connection.look():
                # The next request, which came before it was noted that the reply had gone.
                return
            self.fault = ConnectionError("the other process has closed the connection")
        except BlockingIOError:
            self.watch()
            return
        except OSError as error:
            self.fault = error
        if self._answering is not None:
            self._answering.cancel()

    def close(self) -> None:
        """Drop the connection."""
        self._connection.shut_down()
        if self._doing is None or self._doing.done():
            self._connection.close()
        else:
            # Its number may be that of another one as soon as it is closed.
            self._doing.add_done_callback(lambda _: self._connection.close())

    async def closed(self) -> None:
        """Wait for a thread that worked with it as it was dropped."""
        if self._doing is not None:
            await asyncio.wait((self._doing,))


class _Room:
    """Memory that messages are received into, each in the place of the one before."""

    def __init__(self) -> None:
        self._data: Bytes = np.empty(ROOM_BYTES, np.uint8)

    def receive(self, connection: Connection, length: int, begin: bytes) -> memoryview:
        """A message of so many bytes, of which these have come."""
        if length > len(self._data):
            self._data = np.empty(length, np.uint8)
        message = self._data[:length].data
        message[: len(begin)] = begin
        connection.read_into(message[len(begin) :])
        return message


class _Requests:
    """Requests of one call; while one is worked on, a thread receives the next."""

    def __init__(self, line: _Line, first: Part, rooms: "list[_Room]") -> None:
        self._line = line
        self._first: Part | None = first
        self._rooms = rooms
        self._coming: asyncio.Future[_Outcome] | None = None
        self._is_over = False
        self._place = memoryview(b"")

    def lie_in(self, room: memoryview) -> None:
        """See `Chunks`."""
        self._place = room

    def __aiter__(self) -> AsyncIterator[Part | Laid]:
        return self

    async def __anext__(self) -> Part | Laid:
        if self._first is not None:
            first, self._first = self._first, None
            return first
        if self._is_over:
            raise StopAsyncIteration
        # Not before the header is read, which says where the data behind it may lie.
        coming = self._coming or self._line.begin(self._receive)
        request: Part | Laid | None = await self._line.done(coming)
        if request is None:
            self._is_over = True
            self._line.watch()
            raise StopAsyncIteration
        self._rooms.reverse()
        self._coming = self._line.begin(self._receive)
        return request

    def _receive(self, connection: Connection) -> Part | Laid | None:
        """What comes next; None at the end. In a thread."""
        length = connection.read_length()
        if not length:
            return None
        head = head_of_data(length) if self._place else b""
        begin = bytes(connection.read(len(head))) if head else b""
        size = length - len(head)
        if not head or begin != head or size > len(self._place):
            # Nor does what follows lie there then: it would lie too far in front.
            self._place = memoryview(b"")
            return self._rooms[0].receive(connection, length, begin)
        data, self._place = self._place[:size], self._place[size:]
        connection.read_into(data)
        return Laid(data)


_Outcome: TypeAlias = tuple[Any, OSError | None]


def _outcome(operation: Callable[[Connection], Any], connection: Connection) -> _Outcome:
    try:
        return operation(connection), None
    except OSError as error:
        return None, error


def _introduction(most_bytes: int, connection: Connection) -> bytes | bytearray:
    """What stands for the token. More than that nobody may send before it."""
    connection.introduce()
    length = connection.read_length()
    if length > most_bytes:
        raise ConnectionError(f"{length} bytes where the token was expected")
    return connection.read(length)


def _read_request(connection: Connection) -> tuple[Kind, str, Part]:
    message = connection.read_message()
    try:
        return take_apart(message)
    except ValueError as error:
        raise ConnectionError(f"no request: {error}") from error


def _settle(coming: "asyncio.Future[None]") -> None:
    if not coming.done():
        coming.set_result(None)


def _connection(
    raw: socket.socket, context: ssl.SSLContext | None, *, is_server: bool
) -> Connection:
    """One by which short messages go at once, and which notices that the other machine has gone."""
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (*KEEPALIVE, ("TCP_USER_TIMEOUT", UNHEARD_MS)):
        if hasattr(socket, name):
            raw.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    if context is None:
        return Connection(raw)
    return EncryptedConnection(raw, context, is_server=is_server)


def _listening(host: str, port: int) -> socket.socket:
    bare = host.strip("[]")
    if bare == "::" and socket.has_dualstack_ipv6():
        return socket.create_server((bare, port), family=socket.AF_INET6, dualstack_ipv6=True)
    if bare == "::":
        return socket.create_server(("", port))
    family = socket.AF_INET6 if ":" in bare else socket.AF_INET
    return socket.create_server((bare, port), family=family)


def _server_context(certificate: Certificate) -> ssl.SSLContext:
    """What shows the certificate.

    Raises:
        OSError: It cannot be read, or this system has no memory that has a path.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # Nobody comes back to a session: connections are kept.
    context.num_tickets = 0
    if not hasattr(os, "memfd_create"):
        raise OSError("this system has no memfd")
    # It is read from files alone, and the key is to be in none.
    with os.fdopen(os.memfd_create("elastic-certificate", os.MFD_CLOEXEC), "w") as memory:
        memory.write(certificate.key + certificate.chain)
        memory.flush()
        context.load_cert_chain(f"/proc/self/fd/{memory.fileno()}")
    return context


def _client_context(certificate: Certificate) -> ssl.SSLContext:
    """What trusts the certificate, and no other."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=certificate.chain)
    return context


# -- who calls ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SocketPlace:
    """Where a process takes calls by sockets.

    Attributes:
        name: On this machine; empty for none.
        host: Elsewhere, at `port`; 0 for none.
    """

    name: str = ""
    host: str = ""
    port: int = 0

    @classmethod
    def of(cls, proof: SharedHandle, address: str, *, is_here: bool) -> "SocketPlace":
        """What the proof of a process says that is called by gRPC at `host:port`."""
        if is_here:
            return cls(proof.calls_at)
        return cls("", address.rpartition(":")[0], proof.calls_port)

    def open(self, token: str, certificate: Certificate | None) -> SocketChannel | None:
        """Calls of that process; None where they have to go by gRPC."""
        if self.name:
            return LocalChannel(self.name, token)
        if not self.port:
            return None
        channel = NetworkChannel(self.host, self.port, token, certificate)
        return channel if channel.is_reachable() else None


NOWHERE: Final = SocketPlace()


class NetworkChannel(SocketChannel):
    """Calls a process of the job on another machine."""

    def __init__(
        self, host: str, port: int, token: str, certificate: Certificate | None = None
    ) -> None:
        """Connect lazily.

        Args:
            host: Of that process, by name or address; an address of IPv6 may be in brackets.
            port: At which it takes calls.
            token: The job's.
            certificate: The job's; None where its calls go in clear.
        """
        super().__init__()
        self._place = host.strip("[]"), port
        self._token = token.encode()
        self._context = None if certificate is None else _client_context(certificate)

    def is_reachable(self) -> bool:
        """Connect, if that can be had: something that lets gRPC through may let nothing else."""
        try:
            connection = self._take()
        except grpc.RpcError as error:
            log.warning("calls of %s port %d go by gRPC: %s", *self._place, error)
            return False
        self._give_back(connection, is_sound=True)
        return True

    def _connected(self) -> Connection:
        raw = socket.create_connection(self._place, CONNECT_S)
        try:
            connection = _connection(raw, self._context, is_server=False)
            connection.introduce()
            connection.send(self._token)
        except OSError:
            raw.close()
            raise
        return connection
