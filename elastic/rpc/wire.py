"""Methods of the protocol with their (de)serializers.

The bulk messages are taken apart here by hand: protobuf would copy each megabyte two or three
times more. What stands on the wire is protobuf all the same.
"""

from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from elastic.rpc import elastic_pb2 as pb

SERVICE: Final = "elastic.v1.Master"
SERVER_SERVICE: Final = "elastic.v1.Server"
DATA_TAG: Final = 0x12
"""Field 2, length-delimited: `data` in every chunk message."""


FRAME_BYTES: Final = 1 << 18
"""Of HTTP/2, which each side lets the other send: with gRPC's own 16 KiB a chunk of tensors has 64
frames, and a gradient takes a tenth longer."""

FENCED: Final = "fenced"
"""How the message of an answer UNAVAILABLE begins that comes from a master which may not act now.
Who gets it looks for the master anew: the connection may be to one that was replaced."""

H = TypeVar("H", bound=Message)
Data: TypeAlias = memoryview


@dataclass(frozen=True, slots=True)
class Malformed:
    """Bytes that are not a message of the protocol; the servicer refuses the call."""

    reason: str


class CallRefusedError(Exception):
    """Ends a call with a status and a message for the peer; nothing was changed."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Chunks(Protocol):
    """The data of an upload as it comes; each chunk is valid until the next is asked for."""

    def __aiter__(self) -> AsyncIterator[memoryview]: ...

    def lie_in(self, room: memoryview) -> None:
        """Say, before any is asked for, where they may lie, one behind the other.

        Whoever receives them need not heed it. Where one does, it may write there until the last
        has come: what is given up before is of no more use.
        """


@dataclass(frozen=True, slots=True)
class Laid:
    """The data of a chunk message, which lies where it was to."""

    data: memoryview


class Pieces(list[memoryview | bytes]):
    """A chunk message in pieces that lie where they lay: none is copied before it is sent."""


def encode_data(pieces: Iterable[memoryview | bytes]) -> Pieces:
    """One chunk message around the pieces."""
    parts = list(pieces)
    size = sum(len(part) for part in parts)
    return Pieces([bytes([DATA_TAG]) + _varint(size), *parts])


def head_of_data(length: int) -> bytes:
    """What the data of a chunk message of so many bytes stand behind; none where none would."""
    for num_bytes in range(1, 6):
        size = length - 1 - num_bytes
        if size >= 0 and len(_varint(size)) == num_bytes:
            return bytes([DATA_TAG]) + _varint(size)
    return b""


def decode_chunk(message: type[Any], raw: bytes | memoryview) -> Any:
    """A header as its message, data as a view of the received bytes, else `Malformed`."""
    if raw[:1] == bytes([DATA_TAG]):
        size, at = _read_varint(raw, 1)
        if size is None or at + size != len(raw):
            return Malformed("a data chunk whose length is wrong")
        return memoryview(raw)[at:]
    return decode(message, raw)


def decode(message: type[Any], raw: bytes | memoryview) -> Any:
    """A parsed message, or `Malformed`: raising here would lose the reason on its way."""
    try:
        return message.FromString(raw)
    except DecodeError as error:
        return Malformed(f"{message.DESCRIPTOR.name} cannot be parsed: {error}")


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_varint(raw: bytes | memoryview, at: int) -> tuple[int | None, int]:
    value = shift = 0
    while at < len(raw) and shift < 64:
        byte = raw[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
    return None, at


def _encode_chunk(chunk: Any) -> bytes:
    return b"".join(chunk) if isinstance(chunk, Pieces) else bytes(chunk.SerializeToString())


def _encode(message: Any) -> bytes:
    return bytes(message.SerializeToString())


@dataclass(frozen=True, slots=True)
class Method(Generic[H]):
    """One method: its shape and how its messages are (de)serialized."""

    name: str
    encode_request: Callable[[Any], bytes]
    decode_request: Callable[[bytes | memoryview], Any]
    encode_reply: Callable[[Any], bytes]
    decode_reply: Callable[[bytes | memoryview], Any]
    streams_requests: bool = False
    streams_replies: bool = False
    service: str = SERVICE

    @property
    def path(self) -> str:
        return f"/{self.service}/{self.name}"


def _unary(name: str, request: type[Any], reply: type[Any], service: str = SERVICE) -> Method[Any]:
    return Method(
        name,
        _encode,
        lambda raw: decode(request, raw),
        _encode,
        lambda raw: decode(reply, raw),
        service=service,
    )


def _rows(name: str, request: type[Any], reply: type[Any], service: str) -> Method[Any]:
    """One message, answered by one that may be values alone."""
    return Method(
        name,
        _encode,
        lambda raw: decode(request, raw),
        _encode_chunk,
        lambda raw: decode_chunk(reply, raw),
        service=service,
    )


def _upload(name: str, chunk: type[Any], reply: type[Any], service: str = SERVICE) -> Method[Any]:
    """A header and data, answered by one message."""
    return Method(
        name,
        _encode_chunk,
        lambda raw: decode_chunk(chunk, raw),
        _encode,
        lambda raw: decode(reply, raw),
        streams_requests=True,
        service=service,
    )


def _download(
    name: str, request: type[Any], chunk: type[Any], service: str = SERVICE
) -> Method[Any]:
    """One message, answered by a header and data."""
    return Method(
        name,
        _encode,
        lambda raw: decode(request, raw),
        _encode_chunk,
        lambda raw: decode_chunk(chunk, raw),
        streams_replies=True,
        service=service,
    )


METHODS: Final[dict[str, Method[Any]]] = {
    method.name: method
    for method in (
        _unary("Register", pb.RegisterRequest, pb.RegisterReply),
        _unary("Heartbeat", pb.HeartbeatRequest, pb.HeartbeatReply),
        _unary("GetTask", pb.GetTaskRequest, pb.GetTaskReply),
        _unary("ReportTaskResult", pb.ReportTaskResultRequest, pb.ReportTaskResultReply),
        _unary("RegisterServer", pb.RegisterServerRequest, pb.RegisterServerReply),
        _download("GetModel", pb.GetModelRequest, pb.ModelChunk),
        _download("GetRows", pb.GetRowsRequest, pb.RowsChunk),
        _upload("ReportGradient", pb.GradientChunk, pb.ReportGradientReply),
    )
}
"""Of the master, by name."""

SERVER_METHODS: Final[dict[str, Method[Any]]] = {
    method.name: method
    for method in (
        _upload("Load", pb.LoadChunk, pb.LoadReply, SERVER_SERVICE),
        _upload("Stage", pb.StageChunk, pb.StageReply, SERVER_SERVICE),
        _download("Pull", pb.PullRequest, pb.ModelChunk, SERVER_SERVICE),
        _unary("Commit", pb.CommitRequest, pb.CommitReply, SERVER_SERVICE),
        _download("Copy", pb.CopyRequest, pb.CopyChunk, SERVER_SERVICE),
        _unary("PutRows", pb.PutRowsRequest, pb.PutRowsReply, SERVER_SERVICE),
        _rows("ReadRows", pb.ReadRowsRequest, pb.ReadRowsReply, SERVER_SERVICE),
        _unary("ScanRows", pb.ScanRowsRequest, pb.ScanRowsReply, SERVER_SERVICE),
        _unary("Leave", pb.LeaveRequest, pb.LeaveReply, SERVER_SERVICE),
    )
}
"""Of a parameter server, by name."""
