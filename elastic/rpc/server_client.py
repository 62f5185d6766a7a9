"""The wire to parameter servers: the worker's side, which blocks, and the master's, which does not.

Neither tries again by itself: whether a server that does not answer comes back, and what its answer
would then be worth, is known to who calls.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import grpc
import numpy as np

from elastic.errors import RpcError
from elastic.rows.arithmetic import RowRule
from elastic.rows.base import WORD_BYTES, Change, Gone, RowGradients, Rows, Table, TableForm
from elastic.rpc import elastic_pb2 as pb
from elastic.rpc.client import BULK_TIMEOUT_S, VersionGoneError
from elastic.rpc.layout import (
    Array,
    Assembler,
    Layout,
    LayoutError,
    SharedHandle,
    iter_chunks,
    map_shared,
)
from elastic.rpc.local import AsyncLocalChannel
from elastic.rpc.network import NOWHERE, SocketPlace
from elastic.rpc.rows import (
    RowsError,
    RowsMemory,
    WantedRows,
    gone_from_proto,
    joined_rows,
    put_requests,
    rows_scanned,
    rule_to_proto,
    table_to_proto,
    values_laid,
)
from elastic.rpc.wire import (
    SERVER_METHODS,
    Malformed,
    Method,
    by_name,
    encode_data,
    layout_from_proto,
    misfit,
    open_async_channel,
    open_channel,
    specs_to_proto,
)
from elastic.spec.values import Certificate

NOT_ANSWERED: Final = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        # grpc.aio's own word, instead of the status, for a stream that broke while it was being
        # sent: when its server is killed, for one. No method answers with it.
        grpc.StatusCode.INTERNAL,
    }
)


class ServerAwayError(RpcError):
    """The server does not answer now."""


class OtherEraError(RpcError):
    """The server holds nothing, or what belongs to another era."""


@dataclass(frozen=True, slots=True)
class PulledShare:
    """A server's share of a version; the arrays are None where the worker has that version.

    Attributes:
        has_rows: Whether the rows of that version were laid that were asked for with it.
    """

    version: int
    arrays: Sequence[Array] | None = None
    shared: SharedHandle | None = None
    layout: Layout | None = None
    has_rows: bool = False


@dataclass(frozen=True, slots=True)
class Gradient:
    """One worker's share of a gradient for a server.

    Attributes:
        layout: Of what is sent, whose first `num_parameters` tensors are gradients.
        arrays: Gradients, then the state that is not trained; in the server's order.
        shared: Where they lie already, in memory that the server can map.
        dropped: What was staged before and refused.
        rows: Gradients of the rows of embeddings that the server has.
        narrows_rows: Whether these are rounded to bfloat16.
    """

    era: str
    session: str
    sequence: int
    version: int
    num_records: int
    layout: Layout
    num_parameters: int
    arrays: Sequence[Array]
    shared: SharedHandle | None = None
    dropped: Sequence[int] = ()
    rows: RowGradients = field(default_factory=dict)
    narrows_rows: bool = False


class ServerClient:
    """A worker's calls of one server. May be used by one thread at a time, but for `pull`."""

    def __init__(
        self,
        address: str,
        token: str,
        certificate: Certificate | None = None,
        sockets: SocketPlace = NOWHERE,
    ) -> None:
        """Without a certificate of the job in clear.

        Args:
            address: Of the server.
            token: The job's.
            certificate: The job's.
            sockets: Where the server takes calls by them.
        """
        self._metadata = _metadata(token)
        self._channel = open_channel(address, certificate)
        self._sockets = sockets.open(token, certificate)
        self._memory = RowsMemory()

    def close(self) -> None:
        """Drop the connection; what is under way ends with `ServerAwayError`."""
        self._channel.close()
        if self._sockets is not None:
            self._sockets.close()

    def stage(self, gradient: Gradient) -> bool:
        """Have a gradient kept until it is committed; False where it is too old to count."""
        header, is_shared = _stage_header(gradient), gradient.shared is not None
        with self._memory.behind(
            header, gradient.rows, is_shared=is_shared, narrows=gradient.narrows_rows
        ):
            return self._stage(header, gradient)

    def _stage(self, header: pb.StageHeader, gradient: Gradient) -> bool:
        method = SERVER_METHODS["Stage"]
        try:
            if gradient.shared is not None:
                reply = self._single(method, pb.StageChunk(header=header))
            else:
                call = self._streaming().stream_unary(
                    method.path, method.encode_request, method.decode_reply
                )
                reply = call(
                    _staged(header, gradient), timeout=BULK_TIMEOUT_S, metadata=self._metadata
                )
        except grpc.RpcError as error:
            raise self._failed(error) from error
        return not _sound(reply).is_stale

    def pull(
        self,
        era: str,
        session: str,
        have_version: int | None,
        at_least: int,
        shares_memory: bool,
        rows_ahead: pb.RowsAhead | None = None,
    ) -> PulledShare:
        """The server's share of its newest version, waiting until that is `at_least`.

        Args:
            era: Of the server.
            session: Of the worker.
            have_version: Which it need not be sent.
            at_least: Which it has to be, or a newer one.
            shares_memory: Whether it can be handed over in memory.
            rows_ahead: Rows that are to be handed over with it.
        """
        request = pb.PullRequest(
            era=era,
            session=session,
            have_version=have_version,
            at_least=at_least,
            shares_memory=shares_memory,
            rows_ahead=rows_ahead,
        )
        try:
            return self._pulled_shared(request) or self._pulled(request)
        except grpc.RpcError as error:
            raise self._failed(error) from error
        except ValueError as error:
            # Another thread has closed the channel, as where the job goes back to a cut.
            raise ServerAwayError(str(error)) from error

    def _pulled_shared(self, request: pb.PullRequest) -> PulledShare | None:
        """The share where it lies; None where it has to be sent."""
        if not request.shares_memory:
            return None
        header = _sound(self._single(SERVER_METHODS["Pull"], request)).header
        if header.unchanged:
            return PulledShare(header.model_version)
        if header.HasField("shared"):
            layout = layout_from_proto(header.parameters, header.state)
            return PulledShare(header.model_version, None, header.shared, layout, header.has_rows)
        # The server has no memory left to share.
        request.shares_memory = False
        return None

    def _pulled(self, request: pb.PullRequest) -> PulledShare:
        method = SERVER_METHODS["Pull"]
        call = self._streaming().unary_stream(
            method.path, method.encode_request, method.decode_reply
        )
        stream = call(request, timeout=BULK_TIMEOUT_S, metadata=self._metadata)
        header = _sound(next(stream)).header
        if header.unchanged:
            for _ in stream:
                # Whose end has to come before the connection can be used again.
                pass
            return PulledShare(header.model_version)
        assembler = Assembler(layout_from_proto(header.parameters, header.state))
        for chunk in stream:
            assembler.add(chunk)
        return PulledShare(header.model_version, assembler.finish())

    def read_rows(self, era: str, wanted: WantedRows, reader: str | None = None) -> Rows:
        """Rows that the server has, which may be views of what has come.

        Args:
            era: Of the server.
            wanted: Which ones.
            reader: Session of a worker on the server's machine, to which they are handed over in
                memory.

        Raises:
            VersionGoneError: The version is not held any more.
        """
        read = self._read_part if reader is None else partial(self._have_laid, reader)
        return joined_rows([read(era, part) for part in wanted.parts()])

    def _read_part(self, era: str, wanted: WantedRows) -> Rows:
        reply = self._call("ReadRows", wanted.to_proto(era))
        with _legible_rows():
            return wanted.answered(reply)

    def _have_laid(self, reader: str, era: str, wanted: WantedRows) -> Rows:
        num_rows = len(wanted.ids)
        with self._memory.lent(WORD_BYTES * num_rows * wanted.width) as memory:
            if memory is None:
                return self._read_part(era, wanted)
            request = wanted.to_proto(era)
            request.session = reader
            request.buffer.CopyFrom(memory.handle())
            self._call("ReadRows", request)
            values = values_laid(memory, num_rows, wanted.width)
        return Rows(values, np.ones(num_rows, np.bool_))

    def scan_rows(self, era: str, version: int, form: TableForm) -> Iterator[Change]:
        """All rows that the server has of a version, in parts.

        Raises:
            VersionGoneError: The version is not held any more.
        """
        start: int | None = 0
        while start is not None:
            request = pb.ScanRowsRequest(
                era=era, table=form.table.name, version=version, start=start
            )
            reply = self._call("ScanRows", request)
            with _legible_rows():
                rows, start = rows_scanned(reply, form.width)
            yield rows

    def _call(self, name: str, request: Any) -> Any:
        try:
            return _sound(self._single(SERVER_METHODS[name], request))
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                raise VersionGoneError(error.details()) from error
            raise self._failed(error) from error
        except ValueError as error:
            # Another thread has closed the channel, as where the job goes back to a cut.
            raise ServerAwayError(str(error)) from error

    def _single(self, method: Method[Any], request: Any) -> Any:
        """A call that is one message each way: gRPC would start threads for a stream."""
        channel = self._sockets or self._channel
        call = channel.unary_unary(method.path, method.encode_request, method.decode_reply)
        return call(request, timeout=BULK_TIMEOUT_S, metadata=self._metadata)

    def _streaming(self) -> Any:
        """Where calls of more than one message go."""
        sockets = self._sockets
        return sockets if sockets is not None and sockets.has_streams else self._channel

    def _failed(self, error: grpc.RpcError) -> RpcError:
        """What a call has met; what does not answer by sockets is asked by gRPC from now on."""
        failure, sockets = _translated(error), self._sockets
        if isinstance(failure, ServerAwayError) and sockets is not None:
            self._sockets = None
            sockets.close()
        return failure


@dataclass(frozen=True, slots=True)
class LoadedShare:
    """What the master gives a server to begin with.

    Attributes:
        era: Names all that follows.
        whole: All trained parameters of the model, of any values.
        slots: Tensors of the optimizer's state.
        values: The rest of it, as JSON.
        is_synchronous: Gradients of an older version cannot count.
        tables: Of embeddings, of which it has a share.
        row_rule: What updates their rows.
    """

    era: str
    version: int
    whole: Mapping[str, Array]
    parameters: Mapping[str, Array]
    state: Mapping[str, Array]
    slots: Mapping[str, Array]
    values: Mapping[str, Any]
    total_steps: int
    is_synchronous: bool
    tables: Sequence[Table] = ()
    row_rule: RowRule | None = None


@dataclass(frozen=True, slots=True)
class CommitId:
    """One staged gradient, and how it counts."""

    session: str
    sequence: int
    num_records: int
    learning_rate_scale: float


@dataclass(frozen=True, slots=True)
class Committed:
    """What a server says of an update.

    Attributes:
        learning_rate: Of the next one.
        applied_learning_rate: Of this one.
        failure: What the user has to mend; then there was none.
        num_rows: That the server has of each table now.
        gone: From the server, of each table of the model.
    """

    learning_rate: float
    applied_learning_rate: float
    failure: str
    num_rows: Sequence[int] = ()
    gone: Sequence[Gone] = ()


@dataclass(frozen=True, slots=True)
class Commit:
    """One update, the same on all servers.

    Attributes:
        version: That it makes.
        num_epochs: Epochs of this era that ended before it.
        ended_sessions: Of which nothing more is to be committed.
        held_rows: Versions whose rows somebody still reads.
    """

    era: str
    version: int
    ids: Sequence[CommitId]
    state_share: float
    num_epochs: int
    ended_sessions: Sequence[str]
    held_rows: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class CopiedShare:
    """A server's share of a version, with the optimizer's state where that was asked for."""

    parameters: dict[str, Array]
    state: dict[str, Array]
    slots: dict[str, Array]
    values: dict[str, Any]


class AsyncServerClient:
    """The master's calls of one server."""

    def __init__(self, address: str, token: str, certificate: Certificate | None = None) -> None:
        """Connect lazily; without a certificate of the job in clear."""
        self._token = token
        self._metadata = _metadata(token)
        self._channel = open_async_channel(address, certificate)
        self._local: AsyncLocalChannel | None = None

    async def close(self) -> None:
        """Drop the connection."""
        await self._channel.close()
        if self._local is not None:
            await self._local.close()

    async def load(self, share: LoadedShare) -> tuple[SharedHandle | None, str]:
        """Have the server forget what it has and take this.

        Returns:
            A buffer of the server's, and what the user has to mend, in which case it took nothing.
        """
        method = SERVER_METHODS["Load"]
        call = self._channel.stream_unary(method.path, method.encode_request, method.decode_reply)
        reply = await self._answer(call(_loaded(share), metadata=self._metadata))
        calls_at = reply.proof.calls_at
        if calls_at and self._local is None and map_shared(reply.proof) is not None:
            self._local = AsyncLocalChannel(calls_at, self._token)
        return (reply.proof if reply.HasField("proof") else None), reply.failure

    async def commit(self, commit: Commit, timeout_s: float) -> Committed:
        """Have the server make an update; asking again changes nothing."""
        request = pb.CommitRequest(
            era=commit.era,
            version=commit.version,
            ids=[
                pb.CommitId(
                    session=each.session,
                    sequence=each.sequence,
                    num_records=each.num_records,
                    learning_rate_scale=each.learning_rate_scale,
                )
                for each in commit.ids
            ],
            state_share=commit.state_share,
            num_epochs=commit.num_epochs,
            ended_sessions=commit.ended_sessions,
            held_rows=commit.held_rows,
        )
        reply = await self._single("Commit", request, timeout_s)
        return Committed(
            reply.learning_rate,
            reply.applied_learning_rate,
            reply.failure,
            tuple(reply.num_rows),
            tuple(map(gone_from_proto, reply.gone)),
        )

    async def copy(
        self, era: str, version: int, num_epochs: int, *, with_optimizer: bool
    ) -> CopiedShare:
        """The server's share of a version."""
        method = SERVER_METHODS["Copy"]
        call = self._channel.unary_stream(method.path, method.encode_request, method.decode_reply)
        request = pb.CopyRequest(
            era=era, version=version, num_epochs=num_epochs, with_optimizer=with_optimizer
        )
        stream = call(request, metadata=self._metadata, timeout=BULK_TIMEOUT_S)
        try:
            messages = aiter(stream)
            header = _sound(await anext(messages)).header
            layout = layout_from_proto(header.parameters, header.state, header.optimizer)
            assembler = Assembler(layout)
            async for chunk in messages:
                assembler.add(_sound(chunk))
            arrays = assembler.finish()
        except grpc.RpcError as error:
            raise _translated(error) from error
        except (LayoutError, ValueError, AttributeError) as error:
            raise RpcError(f"a server's copy cannot be read: {error}") from error
        first, second = len(header.parameters), len(header.parameters) + len(header.state)
        values = json.loads(header.optimizer_values) if header.optimizer_values else {}
        return CopiedShare(
            dict(by_name(layout.specs[:first], arrays[:first])),
            dict(by_name(layout.specs[first:second], arrays[first:second])),
            dict(by_name(layout.specs[second:], arrays[second:])),
            values,
        )

    async def put_rows(
        self, era: str, table: str, rows: Change, old_version: int | None = None
    ) -> None:
        """Have the server take rows that were loaded, or of an older version; again is fine."""
        for request in put_requests(era, table, rows, old_version):
            await self._single("PutRows", request, BULK_TIMEOUT_S)

    async def leave(self, timeout_s: float) -> None:
        """Have the server's process end: the job has."""
        method = SERVER_METHODS["Leave"]
        call = self._channel.unary_unary(method.path, method.encode_request, method.decode_reply)
        await self._answer(call(pb.LeaveRequest(), metadata=self._metadata, timeout=timeout_s))

    async def _single(self, name: str, request: Any, timeout_s: float) -> Any:
        method, channel = SERVER_METHODS[name], self._local or self._channel
        call = channel.unary_unary(method.path, method.encode_request, method.decode_reply)
        return await self._answer(call(request, metadata=self._metadata, timeout=timeout_s))

    async def _answer(self, call: Any) -> Any:
        try:
            return _sound(await call)
        except grpc.RpcError as error:
            raise _translated(error) from error
        except asyncio.CancelledError:
            call.cancel()
            raise


def _metadata(token: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),)


def _sound(message: Any) -> Any:
    if isinstance(message, Malformed):
        raise RpcError(f"a server's message is malformed: {message.reason}")
    return message


def _stage_header(gradient: Gradient) -> pb.StageHeader:
    specs, split = gradient.layout.specs, gradient.num_parameters
    header = pb.StageHeader(
        era=gradient.era,
        session=gradient.session,
        sequence=gradient.sequence,
        model_version=gradient.version,
        num_records=gradient.num_records,
        drop=gradient.dropped,
        gradients=specs_to_proto(specs[:split]),
        state=specs_to_proto(specs[split:]),
    )
    if gradient.shared is not None:
        header.shared.CopyFrom(gradient.shared)
    return header


def _staged(header: pb.StageHeader, gradient: Gradient) -> Iterator[Any]:
    yield pb.StageChunk(header=header)
    for pieces in iter_chunks(gradient.layout, gradient.arrays):
        yield encode_data(pieces)


async def _loaded(share: LoadedShare) -> AsyncIterator[Any]:
    whole = Layout.of(share.whole)
    parameters, state = Layout.of(share.parameters), Layout.of(share.state)
    slots = Layout.of(share.slots)
    header = pb.LoadHeader(
        era=share.era,
        version=share.version,
        model=specs_to_proto(whole.specs),
        parameters=specs_to_proto(parameters.specs),
        state=specs_to_proto(state.specs),
        optimizer=specs_to_proto(slots.specs),
        optimizer_values=json.dumps(share.values),
        total_steps=share.total_steps,
        is_synchronous=share.is_synchronous,
        tables=map(table_to_proto, share.tables),
        row_rule=None if share.row_rule is None else rule_to_proto(share.row_rule),
    )
    yield pb.LoadChunk(header=header)
    layout = Layout((*parameters.specs, *state.specs, *slots.specs))
    arrays = [*share.parameters.values(), *share.state.values(), *share.slots.values()]
    for pieces in iter_chunks(layout, arrays):
        yield encode_data(pieces)


@contextmanager
def _legible_rows() -> Iterator[None]:
    try:
        yield
    except RowsError as error:
        raise RpcError(f"a server's rows cannot be read: {error}") from error


def _translated(error: Any) -> RpcError:
    code, details = error.code(), error.details()
    if unlike := misfit(error):
        return RpcError(f"a parameter server cannot be called: {unlike} ({details})")
    if code in NOT_ANSWERED:
        return ServerAwayError(details or code.name)
    if code is grpc.StatusCode.FAILED_PRECONDITION:
        return OtherEraError(details)
    return RpcError(f"a parameter server refused the call ({code.name}): {details}")
