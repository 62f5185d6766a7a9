"""Calls between processes of one machine, by a socket of it.

The socket has a name and no file (`unix(7)`, *abstract*), which nobody can guess and which is gone
with its process. Only calls that are one message each way go by it: tensors lie in memory that both
processes map. See `sockets` for what is sent.
"""

import asyncio
import hmac
import logging
import math
import os
import resource
import secrets
import socket
import struct
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, Protocol

import grpc

from elastic.rpc.server import Answering, refused, reply_of
from elastic.rpc.sockets import (
    LENGTH,
    MAX_BYTES,
    Connection,
    Decode,
    Encode,
    Kind,
    SocketCallError,
    SocketChannel,
    head_of,
    message_of,
    take_apart,
)

log = logging.getLogger(__name__)

PREFIX: Final = "elastic-"


def new_name() -> str:
    """A name for a process to take calls at; empty where its system has no such sockets."""
    return PREFIX + secrets.token_hex(16) if sys.platform == "linux" else ""


# -- who answers -------------------------------------------------------------------------------


class LocalListener:
    """Takes calls at a name, in the running loop."""

    def __init__(self, name: str, answering: Answering, token: str) -> None:
        """Take what answers.

        Args:
            name: Of `new_name`.
            answering: Answers what comes with the token.
            token: The job's.
        """
        self._name = name
        self._answering = answering
        self._token = token.encode()
        self._peers: set[_Peer] = set()
        self._server: asyncio.Server | None = None
        self._is_stopped = False

    async def start(self) -> None:
        """Listen. Where that cannot be had nobody is reached here, and everybody calls by gRPC."""
        if not self._name:
            return
        try:
            self._server = await asyncio.get_running_loop().create_unix_server(
                lambda: _Peer(self, self._answering, self._token), "\0" + self._name
            )
        except OSError as error:
            log.warning("calls within this machine go by gRPC: %s", error)

    async def stop(self, grace_s: float) -> None:
        """Take no more connections, and drop those that there are once what they have asked by now
        is answered, or was not in so many seconds.
        """
        if self._server is None:
            return
        self._is_stopped = True
        for listening in self._server.sockets:
            asyncio.get_running_loop().remove_reader(listening.fileno())
        # What was accepted by now becomes a connection of the server, which must be open then.
        await asyncio.sleep(0)
        self._server.close()
        answers = [peer.call for peer in self._peers if peer.call is not None]
        if answers:
            await asyncio.wait(answers, timeout=grace_s)
        for peer in tuple(self._peers):
            peer.close()
        # Each is told by the loop that it is gone, which may be about to be closed.
        while self._peers:
            await asyncio.sleep(0)

    def made(self, peer: "_Peer") -> None:
        """There is a connection, which may have come just as this was stopped."""
        self._peers.add(peer)
        if self._is_stopped:
            peer.close()

    def lost(self, peer: "_Peer") -> None:
        """A connection is no more."""
        self._peers.discard(peer)


class _Messages(asyncio.Protocol, ABC):
    """One end of a connection, cut into messages."""

    def __init__(self, most_bytes: int = MAX_BYTES) -> None:
        """Begin with nothing received.

        Args:
            most_bytes: Of a message; whoever announces more is dropped before it is taken in.
        """
        self._most_bytes = most_bytes
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._received)
            if not 0 < length <= self._most_bytes:
                self.close()
                return
            end = LENGTH.size + length
            if len(self._received) < end:
                return
            message = bytes(self._received[LENGTH.size : end])
            del self._received[:end]
            self.message_received(message)

    @abstractmethod
    def message_received(self, message: bytes) -> None:
        """One has come whole."""

    def write(self, *parts: bytes) -> None:
        """Send a message of these parts."""
        if self._transport is not None:
            self._transport.writelines([LENGTH.pack(sum(map(len, parts))), *parts])

    def close(self) -> None:
        """Drop the connection."""
        if self._transport is not None:
            self._transport.abort()


class _Peer(_Messages):
    """A connection that calls come by.

    Attributes:
        call: The one that is being answered.
    """

    def __init__(self, listener: LocalListener, answering: Answering, token: bytes) -> None:
        # More than the token nobody may send before it: any user of the machine can connect.
        super().__init__(most_bytes=len(token))
        self._listener = listener
        self._answering = answering
        self._token = token
        self._is_trusted = False
        self.call: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._listener.made(self)

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002
        self._listener.lost(self)
        if self.call is not None:
            # As gRPC does where nobody waits for the answer any more.
            self.call.cancel()

    def message_received(self, message: bytes) -> None:
        if not self._is_trusted:
            self._is_trusted = hmac.compare_digest(message, self._token)
            if not self._is_trusted:
                log.warning("dropped a connection without this job's token")
                self.close()
            self._most_bytes = MAX_BYTES
        elif self.call is not None:
            log.warning("dropped a connection that calls before it was answered")
            self.close()
        else:
            self.call = asyncio.get_running_loop().create_task(self._answer(message))

    async def _answer(self, message: bytes) -> None:
        try:
            kind, path, request = take_apart(message)
        except ValueError as error:
            reply = refused(error)
        else:
            if kind is Kind.SINGLE:
                reply = await reply_of(self._answering.answer(path, request))
            else:
                reply = refused("more than one message goes otherwise")
        # Before the reply: behind it the next call comes.
        self.call = None
        self.write(*reply)


# -- who calls, and waits ----------------------------------------------------------------------


class LocalChannel(SocketChannel):
    """Calls a process of this machine."""

    def __init__(self, name: str, token: str) -> None:
        """Connect lazily.

        Args:
            name: Where that process takes calls.
            token: The job's.
        """
        super().__init__()
        self._name = name
        self._token = token.encode()
        self._vigil = Vigil()

    @property
    def has_streams(self) -> bool:
        return False

    def _waiting(self, connection: Connection, head: bytes) -> AbstractContextManager[None]:
        return self._vigil.over(connection, head)

    def _connected(self) -> Connection:
        return Connection(_connected(self._name, self._token))


def _connected(name: str, token: bytes) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect("\0" + name)
        _check_owner(connection)
        Connection(connection).send(token)
    except OSError:
        connection.close()
        raise
    return connection


def _check_owner(connection: socket.socket) -> None:
    """Tell the token to none who has taken the name of a process that is gone.

    Raises:
        PermissionError: Another user of the machine has.
    """
    told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, user, _ = struct.unpack("3i", told)
    if user != os.getuid():
        raise PermissionError(f"the socket belongs to another user ({user})")


# -- who calls, and does something else meanwhile ----------------------------------------------


class AsyncLocalChannel:
    """See `LocalChannel`; used as `grpc.aio.Channel` is, in one loop."""

    def __init__(self, name: str, token: str) -> None:
        """See `LocalChannel`."""
        self._name = name
        self._token = token.encode()
        self._idle: list[_Caller] = []
        self._busy: set[_Caller] = set()
        self._is_closed = False

    def unary_unary(
        self, path: str, encode: Encode, decode: Decode
    ) -> Callable[..., Awaitable[Any]]:
        """What makes one call of a method, as `grpc.aio.Channel.unary_unary`."""
        head = head_of(Kind.SINGLE, path)

        def call(
            request: Any,
            timeout: float | None = None,
            metadata: object = None,  # noqa: ARG001 - the connection has brought the token
        ) -> Awaitable[Any]:
            calling = self._call(head, encode(request), decode, timeout)
            return asyncio.ensure_future(calling)

        return call

    async def close(self) -> None:
        """Drop all connections."""
        self._is_closed = True
        for each in (*self._idle, *self._busy):
            each.close()

    async def _call(self, head: bytes, body: bytes, decode: Decode, timeout_s: float | None) -> Any:
        if self._is_closed:
            raise SocketCallError(grpc.StatusCode.CANCELLED, "the connection was closed")
        try:
            async with asyncio.timeout(timeout_s):
                caller = self._idle.pop() if self._idle else await self._connected()
                self._busy.add(caller)
                try:
                    reply = await caller.ask(head, body)
                finally:
                    self._busy.discard(caller)
                    self._give_back(caller)
        except TimeoutError as error:
            raise SocketCallError(
                grpc.StatusCode.DEADLINE_EXCEEDED, f"no answer within {timeout_s:g} s"
            ) from error
        except OSError as error:
            raise SocketCallError(grpc.StatusCode.UNAVAILABLE, str(error)) from error
        return decode(message_of(reply))

    async def _connected(self) -> "_Caller":
        connection = await asyncio.to_thread(_connected, self._name, self._token)
        connection.setblocking(False)
        _, caller = await asyncio.get_running_loop().create_unix_connection(
            _Caller, sock=connection
        )
        return caller

    def _give_back(self, caller: "_Caller") -> None:
        if caller.is_idle and not self._is_closed:
            self._idle.append(caller)
        else:
            caller.close()


class _Caller(_Messages):
    """A connection that calls go by, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self._reply: asyncio.Future[bytes] | None = None
        self._is_lost = False

    @property
    def is_idle(self) -> bool:
        """Whether the next call can go by it: the last one was answered."""
        return self._reply is None and not self._is_lost

    async def ask(self, head: bytes, body: bytes) -> bytes:
        """The reply to a request.

        Raises:
            ConnectionError: None has come.
        """
        if self._is_lost:
            raise ConnectionError("the other process has closed the connection")
        self._reply = asyncio.get_running_loop().create_future()
        self.write(head, body)
        reply = await self._reply
        self._reply = None
        return reply

    def message_received(self, message: bytes) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_result(message)

    def connection_lost(self, error: Exception | None) -> None:
        self._is_lost = True
        if self._reply is not None and not self._reply.done():
            told = ConnectionError("the other process has closed the connection")
            self._reply.set_exception(error if isinstance(error, OSError) else told)


# Short waits for another process of the machine, spent awake.
#
# Who sleeps has to be woken, and so has the core that has slept as well, which costs the one who
# sends and the one who waits. On a virtual machine a report of a small gradient, its update among
# it, took 2.4 ms, and takes 1.7 where its worker stays awake.


AWAKE_S: Final = 0.005
"""The longest wait that is spent so."""

CROWDED: Final = 3
"""Waits in a row in which the core went to somebody else, from which on somebody needs it."""

PAUSE_S: Final = 1.0
"""How long it is then left to them."""

_is_awake: Final = threading.Lock()
"""Held by the one thread of this process that is: two would take each other the interpreter."""


class Spinning(Protocol):
    """What can be waited for awake."""

    def spin(self, seconds: float) -> None:
        """Return when something has come, or after so long."""


def num_displaced() -> int:
    """How often the calling thread would have gone on, and another had its core."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw


class Vigil:
    """Waits awake for answers that are about to come, by how long the last of their kind took.

    Of a group of workers most wait for each other, so long that none of them stays awake. By any
    thread.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        num_displaced: Callable[[], int] = num_displaced,
    ) -> None:
        """Take a clock, and what counts how often the core was taken from the calling thread.

        Its processor time would not tell: the machine below a virtual one takes from that too.
        """
        self._clock = clock
        self._num_displaced = num_displaced
        self._num_crowded = 0
        self._last_s: dict[bytes, float] = {}
        self._left_until_s = -math.inf

    @contextmanager
    def over(self, connection: Spinning, kind: bytes) -> Iterator[None]:
        """Around the wait for an answer of this kind, which is read at the end of it."""
        began_s = self._clock()
        last_s = self._last_s.get(kind, math.inf)
        is_short = last_s < AWAKE_S and began_s >= self._left_until_s
        if is_short and _is_awake.acquire(blocking=False):
            try:
                self._stay_awake(connection, min(2 * last_s, AWAKE_S))
            finally:
                _is_awake.release()
        yield
        self._last_s[kind] = self._clock() - began_s

    def _stay_awake(self, connection: Spinning, seconds: float) -> None:
        before = self._num_displaced()
        connection.spin(seconds)
        is_alone = self._num_displaced() == before
        self._num_crowded = 0 if is_alone else self._num_crowded + 1
        if self._num_crowded >= CROWDED:
            self._num_crowded = 0
            self._left_until_s = self._clock() + PAUSE_S
