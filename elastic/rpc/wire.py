"""The protocol: its methods, what their messages stand for, and gRPC's connections.

The bulk messages are taken apart here by hand: protobuf would copy each megabyte two or three
times more. What stands on the wire is protobuf all the same.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

import grpc
import numpy as np
from google.protobuf.message import DecodeError, Message

from elastic.policy.tasks.records import Picks, RecordRange, Shard, Task, TaskKind
from elastic.policy.updates.server_shares import Share, Slice
from elastic.rpc import elastic_pb2 as pb
from elastic.rpc.layout import (
    DTYPES,
    MAX_TENSORS,
    Array,
    Layout,
    LayoutError,
    TensorSpec,
    checked_spec,
    wire_order,
)
from elastic.spec.values import CERTIFICATE_NAME, Certificate

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


# Protobuf messages as the dataclasses that the rest of the project speaks, and back.


_KINDS = {
    TaskKind.TRAINING: pb.Task.KIND_TRAINING,
    TaskKind.EVALUATION: pb.Task.KIND_EVALUATION,
    TaskKind.PREDICTION: pb.Task.KIND_PREDICTION,
}
_KINDS_BACK = {number: kind for kind, number in _KINDS.items()}


def task_to_proto(task: Task) -> pb.Task:
    """Encode a task with its shards."""
    message = pb.Task(
        task_id=task.task_id,
        attempt=task.attempt,
        kind=_KINDS[task.kind],
        epoch=task.epoch,
        shard=_shard_to_proto(task.shard),
        shard_index=task.records.shard_index,
        start=task.records.start,
        end=task.records.end,
        skipped=task.skipped,
        is_search=task.is_search,
        minibatch_size=task.minibatch_size,
    )
    if task.model_version is not None:
        message.model_version = task.model_version
    if task.picks is not None:
        message.picks.shards.extend(map(_shard_to_proto, task.picks.shards))
        message.picks.owners = task.picks.owners.astype("<i4").tobytes()
        message.picks.indices = task.picks.indices.astype("<i8").tobytes()
    return message


def task_from_proto(message: pb.Task) -> Task:
    """Decode a task with its shards."""
    return Task(
        task_id=message.task_id,
        attempt=message.attempt,
        kind=_KINDS_BACK[message.kind],
        epoch=message.epoch,
        records=RecordRange(message.shard_index, message.start, message.end),
        shard=_shard_from_proto(message.shard),
        model_version=message.model_version if message.HasField("model_version") else None,
        skipped=tuple(message.skipped),
        is_search=message.is_search,
        minibatch_size=message.minibatch_size if message.HasField("minibatch_size") else None,
        picks=_picks_from_proto(message.picks) if message.HasField("picks") else None,
    )


def _shard_to_proto(shard: Shard) -> pb.Shard:
    return pb.Shard(
        name=shard.name,
        start=shard.start,
        end=shard.end,
        offset_bytes=shard.offset_bytes,
        fingerprint=shard.fingerprint,
    )


def _shard_from_proto(shard: pb.Shard) -> Shard:
    offset = shard.offset_bytes if shard.HasField("offset_bytes") else None
    return Shard(shard.name, shard.start, shard.end, offset, shard.fingerprint)


def _picks_from_proto(picks: pb.Picks) -> Picks:
    return Picks(
        tuple(map(_shard_from_proto, picks.shards)),
        np.frombuffer(picks.owners, "<i4"),
        np.frombuffer(picks.indices, "<i8"),
    )


def share_to_proto(share: Share, address: str, proof: pb.SharedBuffer | None) -> pb.ServerShare:
    """Encode what a server has, and how it is reached."""
    return pb.ServerShare(
        address=address,
        parameters=_slices_to_proto(share.parameters),
        state=_slices_to_proto(share.state),
        proof=proof,
    )


def share_from_proto(message: pb.ServerShare) -> Share:
    """Decode what a server has."""
    return Share(
        tuple(Slice(each.name, each.start, each.end) for each in message.parameters),
        tuple(Slice(each.name, each.start, each.end) for each in message.state),
    )


def _slices_to_proto(slices: Iterable[Slice]) -> list[pb.Slice]:
    return [pb.Slice(name=each.name, start=each.start, end=each.end) for each in slices]


def specs_to_proto(specs: Iterable[TensorSpec]) -> list[pb.Tensor]:
    """Encode descriptions; the bytes travel apart."""
    return [pb.Tensor(name=s.name, dtype=s.dtype, shape=s.shape) for s in specs]


def layout_from_proto(*groups: Iterable[pb.Tensor]) -> Layout:
    """Decode the descriptions of tensors that follow a header.

    Raises:
        LayoutError: They describe no possible tensors.
    """
    specs = tuple(checked_spec(t.name, t.dtype, t.shape) for group in groups for t in group)
    if len(specs) > MAX_TENSORS:
        raise LayoutError(f"{len(specs)} tensors, more than {MAX_TENSORS}")
    return Layout(specs)


def tensors_to_proto(arrays: Iterable[Array]) -> list[pb.Tensor]:
    """Encode a few small arrays whole, such as the state of a metric."""
    return [
        pb.Tensor(dtype=a.dtype.name, shape=a.shape, data=wire_order(a).tobytes()) for a in arrays
    ]


def metrics_to_proto(metrics: Iterable[tuple[str, Iterable[Array]]]) -> list[pb.Metric]:
    """Encode the sums of metrics."""
    return [pb.Metric(name=name, values=tensors_to_proto(values)) for name, values in metrics]


def tensors_from_proto(messages: Iterable[pb.Tensor]) -> tuple[Array, ...]:
    """Decode small arrays.

    Raises:
        LayoutError: The bytes do not fit dtype and shape.
    """
    return tuple(_tensor_from_proto(message) for message in messages)


def _tensor_from_proto(message: pb.Tensor) -> Array:
    spec = checked_spec(message.name, message.dtype, message.shape)
    if len(message.data) != spec.size_bytes:
        raise LayoutError(f"{len(message.data)} bytes for {spec}, which has {spec.size_bytes}")
    flat = np.frombuffer(message.data, np.uint8).view(DTYPES[spec.dtype])
    return flat.reshape(spec.shape).copy()


def by_name(names: Iterable[TensorSpec], arrays: Iterable[Array]) -> Mapping[str, Array]:
    """Pair descriptions with their arrays."""
    return {spec.name: array for spec, array in zip(names, arrays, strict=True)}


# Connections and ports: encrypted where the job has a certificate, in clear where it has none.
#
# Who calls trusts the job's own certificate and no other, by a fixed name. Who it is that
# calls is told by the token alone.


CHANNEL_OPTIONS: Final = (
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.max_send_message_length", 64 << 20),
    ("grpc.http2.max_frame_size", FRAME_BYTES),
    ("grpc.keepalive_time_ms", 20_000),
    # Two channels share no connection: a new one is to reach whoever has the address by now.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),  # retried by us, where the address is looked up again
)
_ENCRYPTED_OPTIONS: Final = (
    *CHANNEL_OPTIONS,
    ("grpc.ssl_target_name_override", CERTIFICATE_NAME),
)

_MISFITS: Final = {
    "CERTIFICATE_VERIFY_FAILED": "who answers there shows another certificate than this job's: it "
    "belongs to another job, or to another submission of this one",
    "WRONG_VERSION_NUMBER": "who answers there speaks no TLS, as all processes of this job do: it "
    "is none of them, or a proxy stands before it; where the network encrypts by itself, submit "
    "the job with --no_tls",
}
"""BoringSSL's words for what no waiting mends, and ours."""


def open_channel(address: str, certificate: Certificate | None) -> grpc.Channel:
    """A channel to a process of the job; it connects when it is used."""
    if certificate is None:
        return grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
    return grpc.secure_channel(address, _trusted(certificate), options=_ENCRYPTED_OPTIONS)


def open_async_channel(address: str, certificate: Certificate | None) -> grpc.aio.Channel:
    """See `open_channel`."""
    if certificate is None:
        return grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
    return grpc.aio.secure_channel(address, _trusted(certificate), options=_ENCRYPTED_OPTIONS)


def add_port(server: grpc.aio.Server, address: str, certificate: Certificate | None) -> int:
    """Have a server listen at `host:port`, 0 for a free port; returns the port.

    Raises:
        RuntimeError: The address is in use.
    """
    if certificate is None:
        return int(server.add_insecure_port(address))
    shown = (certificate.key.encode(), certificate.chain.encode())
    return int(server.add_secure_port(address, grpc.ssl_server_credentials([shown])))


def misfit(error: grpc.RpcError) -> str | None:
    """Why the two ends will never understand each other; None where that is not so.

    To gRPC a handshake that fails is a server that is away, which calls are patient with.
    """
    details = error.details() or ""
    return next((ours for theirs, ours in _MISFITS.items() if theirs in details), None)


def _trusted(certificate: Certificate) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(certificate.chain.encode())
