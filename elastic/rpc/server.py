"""The side of the wire that answers: authentication, malformed messages, statuses."""

import hmac
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

import grpc

from elastic.rpc import elastic_pb2 as pb
from elastic.rpc.sockets import GOOD, Part
from elastic.rpc.wire import (
    FENCED,
    FRAME_BYTES,
    METHODS,
    SERVER_METHODS,
    CallRefusedError,
    Chunks,
    Laid,
    Malformed,
    Method,
    Pieces,
)

log = logging.getLogger(__name__)

SERVER_OPTIONS: Final = (
    # A second master on the port must fail, not share it.
    ("grpc.so_reuseport", 0),
    # Headers name every tensor; data chunks are about 2 MiB.
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.max_send_message_length", 64 << 20),
    ("grpc.http2.max_frame_size", FRAME_BYTES),
    # Workers keep calls open while they wait for an update.
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
)


def malformed(message: str) -> CallRefusedError:
    """The peer broke the protocol."""
    return CallRefusedError(grpc.StatusCode.INVALID_ARGUMENT, message)


class MasterService(Protocol):
    """What answers the calls; raises `CallRefusedError` to refuse one."""

    async def register(self, request: pb.RegisterRequest) -> pb.RegisterReply: ...

    async def heartbeat(self, request: pb.HeartbeatRequest) -> pb.HeartbeatReply: ...

    async def get_task(self, request: pb.GetTaskRequest) -> pb.GetTaskReply: ...

    def get_model(self, request: pb.GetModelRequest) -> AsyncIterator[pb.ModelChunk | Pieces]: ...

    def get_rows(self, request: pb.GetRowsRequest) -> AsyncIterator[pb.RowsChunk | Pieces]: ...

    async def report_gradient(
        self, header: pb.GradientHeader, chunks: Chunks
    ) -> pb.ReportGradientReply: ...

    async def report_task_result(
        self, request: pb.ReportTaskResultRequest
    ) -> pb.ReportTaskResultReply: ...

    async def register_server(
        self, request: pb.RegisterServerRequest
    ) -> pb.RegisterServerReply: ...


class ServerService(Protocol):
    """What answers the calls of a parameter server; raises `CallRefusedError` to refuse one."""

    async def load(self, header: pb.LoadHeader, chunks: Chunks) -> pb.LoadReply: ...

    async def stage(self, header: pb.StageHeader, chunks: Chunks) -> pb.StageReply: ...

    def pull(self, request: pb.PullRequest) -> AsyncIterator[pb.ModelChunk | Pieces]: ...

    async def commit(self, request: pb.CommitRequest) -> pb.CommitReply: ...

    def copy(self, request: pb.CopyRequest) -> AsyncIterator[pb.CopyChunk | Pieces]: ...

    async def put_rows(self, request: pb.PutRowsRequest) -> pb.PutRowsReply: ...

    async def read_rows(self, request: pb.ReadRowsRequest) -> pb.ReadRowsReply | Pieces: ...

    async def scan_rows(self, request: pb.ScanRowsRequest) -> pb.ScanRowsReply: ...

    async def leave(self, request: pb.LeaveRequest) -> pb.LeaveReply: ...


Guard: TypeAlias = Callable[[], None]
"""Asked before a call is worked on and before it is answered; raises what nobody may answer with.
"""


def _unguarded() -> None:
    pass


def fenced(message: str) -> CallRefusedError:
    """This master may not answer now; callers try again, by the way on which they find the next."""
    return CallRefusedError(grpc.StatusCode.UNAVAILABLE, f"{FENCED}: {message}")


@dataclass(frozen=True, slots=True)
class _Endpoint:
    """What answers one method.

    Attributes:
        method: Which one.
        handler: For gRPC, which may stream.
        single: For a call that is one message each way.
        gather: For one of many requests; None where the method has none.
        stream: For one of many replies; None where the method has none.
    """

    method: Method[Any]
    handler: Any
    single: Callable[[Any], Awaitable[Any]]
    gather: Callable[[AsyncIterator[Any]], Awaitable[Any]] | None = None
    stream: Callable[[Any], AsyncIterator[Any]] | None = None


class Answering(Protocol):
    """What answers calls by sockets: the handler that gRPC has as well."""

    async def answer(self, path: str, request: Part) -> bytes:
        """The reply to a request.

        Raises:
            CallRefusedError: There is none.
        """


class Requests(Protocol):
    """Requests of one call; see `Chunks`."""

    def __aiter__(self) -> AsyncIterator[Part | Laid]: ...

    def lie_in(self, room: memoryview) -> None:
        """See `Chunks`: requests that are data come as `Laid` from now on, where there is room."""


class AnsweringStreams(Answering, Protocol):
    """Answers calls of more than one message too."""

    async def gather(self, path: str, requests: Requests) -> bytes:
        """The reply to requests, each of which is valid until the next is asked for.

        Raises:
            CallRefusedError: There is none.
        """

    def stream(self, path: str, request: Part) -> AsyncIterator[bytes | Pieces]:
        """The replies to a request.

        Raises:
            CallRefusedError: There are none, or no more.
        """


class _Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Routes authenticated calls."""

    def __init__(self, endpoints: Sequence[_Endpoint], token: str) -> None:
        """Take what answers, and the token that each call has to bring."""
        self._expected = f"Bearer {token}".encode()
        self._endpoints = {each.method.path: each for each in endpoints}

    # -- calls that come otherwise than by gRPC, by who has shown the token ----------------------

    async def answer(self, path: str, request: Part) -> bytes:
        """Answer a call that is one message each way.

        Raises:
            CallRefusedError: It is refused, or there is no such method.
        """
        endpoint = self._endpoint(path)
        method = endpoint.method
        return method.encode_reply(await endpoint.single(method.decode_request(request)))

    async def gather(self, path: str, requests: Requests) -> bytes:
        """Answer a call of many requests, each of which is valid until the next is asked for.

        Raises:
            CallRefusedError: It is refused, or there is no such method.
        """
        endpoint = self._endpoint(path)
        if endpoint.gather is None:
            raise malformed(f"{path} takes one request")
        decoded = _Decoded(requests, endpoint.method.decode_request)
        return endpoint.method.encode_reply(await endpoint.gather(decoded))

    async def stream(self, path: str, request: Part) -> AsyncIterator[bytes | Pieces]:
        """Answer a call of many replies.

        Raises:
            CallRefusedError: It is refused, or there is no such method.
        """
        endpoint = self._endpoint(path)
        if endpoint.stream is None:
            raise malformed(f"{path} has one reply")
        async for reply in endpoint.stream(endpoint.method.decode_request(request)):
            yield reply if isinstance(reply, Pieces) else endpoint.method.encode_reply(reply)

    def _endpoint(self, path: str) -> _Endpoint:
        endpoint = self._endpoints.get(path)
        if endpoint is None:
            raise CallRefusedError(grpc.StatusCode.UNIMPLEMENTED, f"there is no method {path}")
        return endpoint

    # -- calls by gRPC ----------------------------------------------------------------------------

    def service(self, handler_call_details: Any) -> Any:
        """Find the handler of a call; a call without the token meets one that refuses it."""
        endpoint = self._endpoints.get(handler_call_details.method)
        if endpoint is None:
            return None
        handler = endpoint.handler
        given = next(
            (v for k, v in handler_call_details.invocation_metadata or () if k == "authorization"),
            "",
        )
        if not hmac.compare_digest(str(given).encode(), self._expected):
            return _refuse_all(handler, handler_call_details.method.split("/")[1])
        return handler


class MasterHandler(_Handler):
    """Routes authenticated calls to a `MasterService`."""

    def __init__(self, service: MasterService, token: str, guard: Guard = _unguarded) -> None:
        """Take the service.

        Args:
            service: Answers the calls.
            token: That each call has to bring.
            guard: Lets answers through, refusals among them.
        """
        methods = METHODS
        super().__init__(
            [
                _unary(methods["Register"], service.register, guard),
                _unary(methods["Heartbeat"], service.heartbeat, guard),
                _unary(methods["GetTask"], service.get_task, guard),
                _unary(methods["ReportTaskResult"], service.report_task_result, guard),
                _unary(methods["RegisterServer"], service.register_server, guard),
                _download(methods["GetModel"], service.get_model, guard),
                _download(methods["GetRows"], service.get_rows, guard),
                _upload(
                    methods["ReportGradient"], pb.GradientChunk, service.report_gradient, guard
                ),
            ],
            token,
        )


class ServerHandler(_Handler):
    """Routes authenticated calls to a `ServerService`."""

    def __init__(self, service: ServerService, token: str) -> None:
        """Take the service, and the token that each call has to bring."""
        methods = SERVER_METHODS
        super().__init__(
            [
                _upload(methods["Load"], pb.LoadChunk, service.load, _unguarded),
                _upload(methods["Stage"], pb.StageChunk, service.stage, _unguarded),
                _download(methods["Pull"], service.pull, _unguarded),
                _unary(methods["Commit"], service.commit, _unguarded),
                _download(methods["Copy"], service.copy, _unguarded),
                _unary(methods["PutRows"], service.put_rows, _unguarded),
                _unary(methods["ReadRows"], service.read_rows, _unguarded),
                _unary(methods["ScanRows"], service.scan_rows, _unguarded),
                _unary(methods["Leave"], service.leave, _unguarded),
            ],
            token,
        )


async def reply_of(answer: Awaitable[bytes]) -> tuple[bytes, ...]:
    """The parts of what is sent as the reply: the answer, or its refusal."""
    try:
        return GOOD, await answer
    except CallRefusedError as refusal:
        return (_refusal(refusal.code, refusal.message),)
    except Exception as error:
        log.exception("a call failed")
        return (_refusal(grpc.StatusCode.UNKNOWN, f"{type(error).__name__}: {error}"),)


def refused(reason: object) -> tuple[bytes, ...]:
    """The reply to what is no request."""
    return (_refusal(grpc.StatusCode.INVALID_ARGUMENT, f"no request: {reason}"),)


def _refusal(code: grpc.StatusCode, details: str) -> bytes:
    return bytes([code.value[0]]) + details.encode()


def _checked(request: Any) -> Any:
    if isinstance(request, Malformed):
        raise malformed(request.reason)
    return request


@contextmanager
def _guarded(guard: Guard) -> Iterator[None]:
    """Around a call: whoever may not answer may not refuse either."""
    try:
        guard()
        yield
        guard()
    except CallRefusedError:
        guard()
        raise


async def _abort(context: Any, refusal: CallRefusedError) -> None:
    await context.abort(refusal.code, refusal.message)


def _unary(
    method: Method[Any], implementation: Callable[[Any], Awaitable[Any]], guard: Guard
) -> _Endpoint:
    async def single(request: Any) -> Any:
        with _guarded(guard):
            return await implementation(_checked(request))

    async def call(request: Any, context: Any) -> Any:
        try:
            return await single(request)
        except CallRefusedError as refusal:
            await _abort(context, refusal)

    handler = grpc.unary_unary_rpc_method_handler(call, method.decode_request, method.encode_reply)
    return _Endpoint(method, handler, single)


def _download(
    method: Method[Any], implementation: Callable[[Any], AsyncIterator[Any]], guard: Guard
) -> _Endpoint:
    async def single(request: Any) -> Any:
        with _guarded(guard):
            chunks = [chunk async for chunk in implementation(_checked(request))]
            if len(chunks) != 1:
                raise malformed(f"{method.name} was to be answered by one message")
            return chunks[0]

    async def stream(request: Any) -> AsyncIterator[Any]:
        with _guarded(guard):
            async for chunk in implementation(_checked(request)):
                guard()
                yield chunk

    async def call(request: Any, context: Any) -> AsyncIterator[Any]:
        try:
            async for chunk in stream(request):
                yield chunk
        except CallRefusedError as refusal:
            await _abort(context, refusal)

    handler = grpc.unary_stream_rpc_method_handler(call, method.decode_request, method.encode_reply)
    return _Endpoint(method, handler, single, stream=stream)


def _upload(
    method: Method[Any],
    chunk: type[Any],
    implementation: Callable[[Any, Chunks], Awaitable[Any]],
    guard: Guard,
) -> _Endpoint:
    async def answered(first: Any, data: Chunks) -> Any:
        if not isinstance(first, chunk) or not first.HasField("header"):
            raise malformed(f"the first message of {method.name} must be a header")
        return await implementation(first.header, data)

    async def single(request: Any) -> Any:
        with _guarded(guard):
            return await answered(_checked(request), _Data(_nothing()))

    async def gather(requests: AsyncIterator[Any]) -> Any:
        with _guarded(guard):
            stream = aiter(requests)
            return await answered(_checked(await anext(stream, None)), _Data(stream))

    async def call(requests: AsyncIterator[Any], context: Any) -> Any:
        try:
            return await gather(requests)
        except CallRefusedError as refusal:
            await _abort(context, refusal)

    handler = grpc.stream_unary_rpc_method_handler(call, method.decode_request, method.encode_reply)
    return _Endpoint(method, handler, single, gather)


class _Decoded:
    """Requests that come by sockets, as messages."""

    def __init__(self, requests: Requests, decode: Callable[[Part], Any]) -> None:
        self._requests = aiter(requests)
        self._decode = decode
        self.lie_in = requests.lie_in

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        request = await anext(self._requests)
        return request.data if isinstance(request, Laid) else self._decode(request)


class _Data:
    """What stands behind the header of an upload."""

    def __init__(self, requests: AsyncIterator[Any]) -> None:
        self._requests = requests

    def __aiter__(self) -> AsyncIterator[memoryview]:
        return self

    async def __anext__(self) -> memoryview:
        request = _checked(await anext(self._requests))
        if not isinstance(request, memoryview):
            raise malformed("a second header where data was expected")
        return request

    def lie_in(self, room: memoryview) -> None:
        """See `Chunks`; gRPC has memory of its own."""
        if isinstance(self._requests, _Decoded):
            self._requests.lie_in(room)


async def _nothing() -> AsyncIterator[memoryview]:
    """The data of a call that is a header alone."""
    return
    yield  # never reached: what makes it an iterator


def _refuse_all(handler: Any, service: str) -> Any:
    """A handler of the same shape that answers UNAUTHENTICATED before it reads anything."""

    async def refuse(_: Any, context: Any) -> None:
        await context.abort(
            grpc.StatusCode.UNAUTHENTICATED,
            f"{service} needs this job's token as metadata 'authorization: Bearer TOKEN'",
        )

    async def refuse_stream(_: Any, context: Any) -> AsyncIterator[bytes]:
        await refuse(_, context)
        yield b""  # never reached: abort raises

    if handler.response_streaming:
        return grpc.unary_stream_rpc_method_handler(refuse_stream)
    if handler.request_streaming:
        return grpc.stream_unary_rpc_method_handler(refuse)
    return grpc.unary_unary_rpc_method_handler(refuse)
