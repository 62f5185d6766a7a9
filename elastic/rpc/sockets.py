"""Calls by sockets of the job's own instead of gRPC: what goes over them, and who calls and waits.

A call by gRPC takes a millisecond of processor time, and a gigabyte of tensors one to two seconds;
by a bare socket it is a tenth of the one and half of the other. The methods, their messages and
statuses are the same, and whatever fails is raised as gRPC would, so that callers need not know
which way a call went.

A connection begins with the job's token, and has one call at a time. Either side sends messages,
each behind its length: of a request the first begins with the kind of the call and the method's
path, and each of a reply with its status. What is more than one message ends with one of no bytes.
"""

import contextlib
import os
import socket
import ssl
import struct
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from functools import partial
from typing import Any, Final, TypeAlias, cast

import grpc
import numpy as np

from elastic.rpc.wire import Pieces
from elastic.spec.values import CERTIFICATE_NAME

LENGTH: Final = struct.Struct("<I")
"""Before each message: how many bytes follow."""
MAX_BYTES: Final = 64 << 20
"""Of one message, as by gRPC."""
STATUSES: Final = {code.value[0]: code for code in grpc.StatusCode}
GOOD: Final = b"\0"
"""The status of a reply that is none of a refusal."""
JOINED_BYTES: Final = 16 << 10
MAX_PARTS: Final = 16
"""Messages that are shorter than the one, or in more parts than the other, are joined first."""
ENCRYPTED_AT_ONCE: Final = 1 << 18

Part: TypeAlias = bytes | memoryview
Encode: TypeAlias = Callable[[Any], bytes]
Decode: TypeAlias = Callable[[Any], Any]


class Kind(IntEnum):
    """Of a call, by what is more than one message."""

    SINGLE = 0
    UPLOAD = 1
    DOWNLOAD = 2


class SocketCallError(grpc.RpcError):  # type: ignore[misc]
    """A call that was refused, or not answered, told as gRPC tells it."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self._code = code
        self._details = details

    def code(self) -> grpc.StatusCode:
        """Its status."""
        return self._code

    def details(self) -> str:
        """Why."""
        return self._details


def head_of(kind: Kind, path: str) -> bytes:
    """What a request begins with."""
    return bytes([kind, len(path)]) + path.encode()


def take_apart(request: bytes | bytearray) -> tuple[Kind, str, memoryview]:
    """The kind of a call, the method's path, and the first message itself.

    Raises:
        ValueError: It does not begin so.
    """
    if len(request) < 2:
        raise ValueError("a request without a path")
    end = 2 + request[1]
    # What stands behind may be long.
    return Kind(request[0]), request[2:end].decode(), memoryview(request)[end:]


def message_of(reply: bytes | bytearray | memoryview) -> memoryview:
    """What was answered.

    Raises:
        SocketCallError: A refusal.
    """
    if not reply[0]:
        return memoryview(reply)[1:]
    code = STATUSES.get(reply[0], grpc.StatusCode.UNKNOWN)
    raise SocketCallError(code, bytes(reply[1:]).decode(errors="replace"))


def parts_of(message: Any, encode: Encode) -> Sequence[Part]:
    """A message as it is sent: what is in pieces goes as it lies."""
    return message if isinstance(message, Pieces) else (encode(message),)


class Connection:
    """One end of a connection, whose operations wait. By one thread at a time, but for
    `shut_down`; all but that raise OSError where the other end is gone, or its time is over.
    """

    def __init__(self, raw: socket.socket) -> None:
        """Take a connected socket."""
        self._raw = raw

    def fileno(self) -> int:
        """What can be waited for."""
        return self._raw.fileno()

    def settimeout(self, seconds: float | None) -> None:
        """How long each operation may wait for the other end; None for ever."""
        self._raw.settimeout(seconds)

    def introduce(self) -> None:
        """Agree with the other end on how what follows is sent."""

    def send(self, *parts: Part) -> None:
        """Send a message of these parts."""
        parts = LENGTH.pack(sum(map(len, parts))), *parts
        if len(parts) > MAX_PARTS or sum(map(len, parts)) < JOINED_BYTES:
            parts = (b"".join(parts),)
        self._write(parts)

    def send_end(self) -> None:
        """Send the message of no bytes."""
        self._write((LENGTH.pack(0),))

    @property
    def has_more(self) -> bool:
        """Whether something is to be read for which nobody need wait."""
        return False

    def read_length(self) -> int:
        """How long the message is that comes, which is read next."""
        (length,) = LENGTH.unpack(self.read(LENGTH.size))
        if length > MAX_BYTES:
            raise ConnectionError(f"a message of {length} bytes")
        return int(length)

    def read_message(self) -> bytes | bytearray:
        """The message that comes, which is not that of no bytes."""
        length = self.read_length()
        if not length:
            raise ConnectionError("an end where a message was expected")
        return self.read(length)

    def read(self, length: int) -> bytes | bytearray:
        """Exactly so many bytes."""
        received = self._raw.recv(length, socket.MSG_WAITALL)
        if len(received) == length:
            return received
        if not received:
            raise _ended()
        rest = bytearray(length - len(received))
        self.read_into(memoryview(rest))
        return received + rest

    def read_into(self, room: memoryview) -> None:
        """As many bytes as there is room for."""
        while room:
            num_read = self._raw.recv_into(room)
            if not num_read:
                raise _ended()
            room = room[num_read:]

    def spin(self, seconds: float) -> None:
        """Look again and again whether something has come, for so long, and without sleeping."""
        timeout_s, until_s = self._raw.gettimeout(), time.perf_counter() + seconds
        self._raw.settimeout(0)
        try:
            while time.perf_counter() < until_s:
                with contextlib.suppress(BlockingIOError):
                    self._raw.recv(1, socket.MSG_PEEK)
                    return
                os.sched_yield()
        except OSError:
            # Whoever reads what has come is told of it.
            return
        finally:
            self._raw.settimeout(timeout_s)

    def look(self) -> bool:
        """Whether anything has come, of a connection that can be read."""
        first = self._raw.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        return bool(first)

    def shut_down(self) -> None:
        """Wake whoever waits for it: it is of no use any more. By any thread."""
        with contextlib.suppress(OSError):
            self._raw.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Let go of it, which nobody waits for."""
        self._raw.close()

    def _write(self, parts: Sequence[Part]) -> None:
        num_sent = self._raw.sendmsg(parts)
        for part in parts:
            if num_sent < len(part):
                self._raw.sendall(memoryview(part)[num_sent:])
            num_sent = max(0, num_sent - len(part))


class EncryptedConnection(Connection):
    """One by TLS.

    Python's own socket that encrypts asks the system twice for each record of 16 KiB; here it is
    asked for many at once, which takes a quarter less processor time where tensors are received.
    """

    def __init__(self, raw: socket.socket, context: ssl.SSLContext, *, is_server: bool) -> None:
        """Take a connected socket, over which nothing was sent yet."""
        super().__init__(raw)
        self._received, self._to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._received,
            self._to_send,
            server_side=is_server,
            server_hostname=None if is_server else CERTIFICATE_NAME,
        )
        self._room = memoryview(bytearray(ENCRYPTED_AT_ONCE))

    @property
    def has_more(self) -> bool:
        return bool(self._received.pending or self._tls.pending())

    def introduce(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush()
                self._receive()
            except ssl.SSLError:
                # Tells the other end why.
                self._flush()
                raise
            else:
                self._flush()
                return

    def read(self, length: int) -> bytes | bytearray:
        received = bytearray(length)
        self.read_into(memoryview(received))
        return received

    def read_into(self, room: memoryview) -> None:
        while room:
            try:
                num_read = cast("int", self._tls.read(len(room), room))
            except ssl.SSLWantReadError:
                self._receive()
                continue
            if not num_read:
                raise _ended()
            room = room[num_read:]

    def _receive(self) -> None:
        num_read = self._raw.recv_into(self._room)
        if not num_read:
            raise _ended()
        self._received.write(self._room[:num_read])

    def _write(self, parts: Sequence[Part]) -> None:
        for part in parts:
            for start in range(0, len(part), ENCRYPTED_AT_ONCE):
                self._tls.write(memoryview(part)[start : start + ENCRYPTED_AT_ONCE])
                if self._to_send.pending >= ENCRYPTED_AT_ONCE:
                    self._flush()
        self._flush()

    def _flush(self) -> None:
        if self._to_send.pending:
            self._raw.sendall(self._to_send.read())


class SocketChannel(ABC):
    """Calls a process of the job; used as a channel of gRPC is. By any thread.

    Connections are made as they are needed, and kept.
    """

    def __init__(self) -> None:
        """Have no connection yet."""
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()
        self._is_retired = False

    @abstractmethod
    def _connected(self) -> Connection:
        """A new connection, to which the token was sent.

        Raises:
            OSError: There is none.
        """

    @property
    def has_streams(self) -> bool:
        """Whether calls of more than one message can go here too."""
        return True

    def unary_unary(self, path: str, encode: Encode, decode: Decode) -> Callable[..., Any]:
        """What makes one call of a method, as `grpc.Channel.unary_unary`."""
        return partial(self._ask, head_of(Kind.SINGLE, path), encode, decode)

    def stream_unary(self, path: str, encode: Encode, decode: Decode) -> Callable[..., Any]:
        """What makes one call of a method, as `grpc.Channel.stream_unary`."""
        return partial(self._upload, head_of(Kind.UPLOAD, path), encode, decode)

    def unary_stream(self, path: str, encode: Encode, decode: Decode) -> Callable[..., Any]:
        """What makes one call of a method, as `grpc.Channel.unary_stream`."""
        return partial(self._download, head_of(Kind.DOWNLOAD, path), encode, decode)

    def retire(self) -> None:
        """Have no new calls; those under way are waited for by who made them."""
        with self._lock:
            self._is_retired = True
            idle, self._idle = self._idle, []
        for each in idle:
            each.close()

    def close(self) -> None:
        """Drop all connections: calls under way end as if the other process had."""
        self.retire()
        with self._lock:
            for each in self._busy:
                each.shut_down()

    def _ask(
        self,
        head: bytes,
        encode: Encode,
        decode: Decode,
        request: Any,
        timeout: float | None = None,
        metadata: object = None,  # noqa: ARG002 - the connection has brought the token
    ) -> Any:
        body = encode(request)
        with self._lent(timeout) as connection:
            connection.send(head, body)
            with self._waiting(connection, head):
                reply = connection.read_message()
        return decode(message_of(reply))

    def _waiting(
        self,
        connection: Connection,  # noqa: ARG002
        head: bytes,  # noqa: ARG002
    ) -> contextlib.AbstractContextManager[None]:
        """Around the wait for a reply."""
        return contextlib.nullcontext()

    def _upload(
        self,
        head: bytes,
        encode: Encode,
        decode: Decode,
        requests: Iterable[Any],
        timeout: float | None = None,
        metadata: object = None,  # noqa: ARG002
    ) -> Any:
        with self._lent(timeout) as connection:
            for request in requests:
                connection.send(head, *parts_of(request, encode))
                head = b""
            connection.send_end()
            reply = connection.read_message()
        return decode(message_of(reply))

    def _download(
        self,
        head: bytes,
        encode: Encode,
        decode: Decode,
        request: Any,
        timeout: float | None = None,
        metadata: object = None,  # noqa: ARG002
    ) -> Iterator[Any]:
        body = encode(request)
        with self._lent(timeout) as connection:
            connection.send(head, body)
            while length := connection.read_length():
                # Not zeroed before it is filled.
                reply = np.empty(length, np.uint8).data
                connection.read_into(reply)
                if reply[0]:
                    break
                yield decode(reply[1:])
            else:
                return
        message_of(reply)

    @contextlib.contextmanager
    def _lent(self, timeout_s: float | None) -> Iterator[Connection]:
        """A connection for one call, which is kept if the call is answered or refused."""
        connection = self._take()
        is_sound = False
        try:
            connection.settimeout(timeout_s)
            yield connection
            is_sound = True
        except TimeoutError as error:
            raise SocketCallError(
                grpc.StatusCode.DEADLINE_EXCEEDED, f"no answer within {timeout_s:g} s"
            ) from error
        except OSError as error:
            raise SocketCallError(grpc.StatusCode.UNAVAILABLE, str(error)) from error
        finally:
            # Else the answer may come yet, and would be taken for that to the next call.
            self._give_back(connection, is_sound=is_sound)

    def _take(self) -> Connection:
        with self._lock:
            if self._is_retired:
                raise _closed()
            if self._idle:
                connection = self._idle.pop()
                self._busy.add(connection)
                return connection
        try:
            connection = self._connected()
        except OSError as error:
            raise SocketCallError(grpc.StatusCode.UNAVAILABLE, str(error)) from error
        with self._lock:
            if not self._is_retired:
                self._busy.add(connection)
                return connection
        # Closed meanwhile by another thread, which would not find this one to wake its caller.
        connection.close()
        raise _closed()

    def _give_back(self, connection: Connection, *, is_sound: bool) -> None:
        with self._lock:
            self._busy.discard(connection)
            if is_sound and not self._is_retired:
                self._idle.append(connection)
                return
        connection.close()


def _ended() -> ConnectionError:
    return ConnectionError("the other process has closed the connection")


def _closed() -> SocketCallError:
    return SocketCallError(grpc.StatusCode.CANCELLED, "the connection was closed")
