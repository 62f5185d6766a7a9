"""The worker's side of the wire: one channel, patience with an absent master, plain values."""

import math
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import Any, Final

import grpc
import numpy as np

from elastic.errors import RpcError, SupersededError
from elastic.policy.tasks.records import Task
from elastic.policy.updates.server_shares import Share
from elastic.rows.base import WORD_BYTES, Ids, Table, Values
from elastic.rpc import elastic_pb2 as pb
from elastic.rpc.layout import (
    Array,
    Assembler,
    Layout,
    Mappings,
    SharedMemory,
    iter_chunks,
    map_shared,
)
from elastic.rpc.network import NOWHERE, SocketPlace
from elastic.rpc.rows import (
    RowsError,
    RowsMemory,
    ids_to_bytes,
    is_one_message,
    values_laid,
    values_of_reply,
)
from elastic.rpc.sockets import SocketChannel
from elastic.rpc.wire import (
    FENCED,
    METHODS,
    Malformed,
    by_name,
    encode_data,
    layout_from_proto,
    misfit,
    open_channel,
    share_from_proto,
    specs_to_proto,
    task_from_proto,
)
from elastic.spec.values import Certificate

NO_ROOM: Final[Mapping[str, Array]] = MappingProxyType({})
CALL_TIMEOUT_S: Final = 30.0
BULK_TIMEOUT_S: Final = 300.0
FIRST_RETRY_S: Final = 0.05
LAST_RETRY_S: Final = 1.0


class SessionLostError(Exception):
    """The master does not know the session: it was restarted, or has given this worker up."""


class VersionGoneError(Exception):
    """The version asked for is not kept: its evaluation is over."""


@dataclass(frozen=True, slots=True)
class ServerPlace:
    """A parameter server, and what it has.

    Attributes:
        shares_memory: Whether tensors can be handed over in memory.
        sockets: Where it takes calls by them.
    """

    address: str
    share: Share
    shares_memory: bool
    sockets: SocketPlace = NOWHERE


@dataclass(frozen=True, slots=True)
class Session:
    """What registering gave.

    Attributes:
        servers: Where the parameters are, if not in the master.
        era: Of the servers.
    """

    key: str
    heartbeat_interval_s: float
    sample: Task
    shares_memory: bool
    prediction_dir: str | None = None
    total_steps: int = 0
    servers: Sequence[ServerPlace] = ()
    era: str = ""


@dataclass(frozen=True, slots=True)
class PulledModel:
    """Parameters and non-trained state of one version, by name."""

    version: int
    parameters: Mapping[str, Array]
    state: Mapping[str, Array]


class MasterClient:
    """Calls one job's master. Calls wait for a master that is away, up to `patience_s`.

    Not thread-safe but for `heartbeat`.
    """

    def __init__(
        self,
        find_address: Callable[[], str | None],
        token: str,
        patience_s: float,
        share_memory: bool = True,
        certificate: Certificate | None = None,
    ) -> None:
        """Connect lazily.

        Args:
            find_address: Looks up `host:port`; asked again when the master is away, since a
                restarted one may listen elsewhere.
            token: The job's token.
            patience_s: How long a call waits for the master to come back.
            share_memory: Hand tensors over in memory where the master is on this machine.
            certificate: The job's; None where its calls go in clear.
        """
        self._find_address = find_address
        self._token = token
        self._certificate = certificate
        self._metadata = (("authorization", f"Bearer {token}"),)
        self._patience_s = patience_s
        self._call_timeout_s = CALL_TIMEOUT_S
        self._is_hurried = False
        self._num_retries = 0
        self._beat_s = -math.inf
        self._address: str | None = None
        self._channel: grpc.Channel | None = None
        # Replaced, and never changed: heartbeats go by another thread.
        self._sockets: SocketChannel | None = None
        self._lock = threading.Lock()
        self._share_memory = share_memory
        self._outgoing: _Outgoing | None = None
        self._rows = RowsMemory()
        self._model: _ModelLayout | None = None
        self._incoming = Mappings()

    def close(self) -> None:
        """Drop the connection."""
        with self._lock:
            if self._channel is not None:
                self._channel.close()
                self._channel = None
        self._call_by_grpc()

    def hurry(self, patience_s: float) -> None:
        """Wait for an absent master, and for its small answers, no longer than this.

        For a process that is about to be ended; may be called from a signal handler. A call under
        way keeps its own limit, and so do tensors.
        """
        self._patience_s = self._call_timeout_s = min(self._patience_s, patience_s)
        self._is_hurried = True

    def register(self, request: pb.RegisterRequest) -> Session:
        """Begin a session.

        Raises:
            SupersededError: A newer launch of this worker index is there.
        """
        reply = self._call("Register", lambda: request)
        shares_memory = self._shares_memory(reply)
        place = SocketPlace.of(reply.proof, self._address or "", is_here=shares_memory)
        self._call_by(place.open(self._token, self._certificate))
        # An older session's report may still be read from the memory it used.
        self._outgoing = None
        self._rows = RowsMemory()
        self._model = None
        return Session(
            reply.session,
            reply.heartbeat_interval_s,
            task_from_proto(reply.sample),
            shares_memory,
            reply.prediction_dir if reply.HasField("prediction_dir") else None,
            reply.total_steps,
            tuple(map(self._place, reply.servers)),
            reply.era,
        )

    def _place(self, server: pb.ServerShare) -> ServerPlace:
        shares_memory = self._shares_memory(server)
        place = SocketPlace.of(server.proof, server.address, is_here=shares_memory)
        return ServerPlace(server.address, share_from_proto(server), shares_memory, place)

    def _shares_memory(self, told: pb.RegisterReply | pb.ServerShare) -> bool:
        is_offered = self._share_memory and told.HasField("proof")
        return is_offered and map_shared(told.proof) is not None

    def _call_by(self, sockets: SocketChannel | None) -> None:
        """Have what can go by sockets of the job's own do so from now on; by gRPC without any."""
        with self._lock:
            if self._sockets is not None:
                # A heartbeat may be under way there, which is of the session before.
                self._sockets.retire()
            self._sockets = sockets

    def _call_by_grpc(self) -> None:
        """Whoever took calls by sockets does not answer: another one may be found by gRPC.

        Calls that are under way there end, and are made again as well.
        """
        with self._lock:
            if self._sockets is not None:
                self._sockets.close()
                self._sockets = None

    def register_server(self, request: pb.RegisterServerRequest) -> float:
        """Say that this process serves; gives after how many seconds to say it again.

        Raises:
            SupersededError: A newer launch has its place.
        """
        reply = self._call("RegisterServer", lambda: request)
        return float(reply.heartbeat_interval_s)

    def heartbeat(self, session: str) -> None:
        """Say that this process lives. Does not retry: the next one comes soon."""
        call = self._method("Heartbeat")
        request = pb.HeartbeatRequest(session=session)
        try:
            call(request, timeout=CALL_TIMEOUT_S, metadata=self._metadata)
        except grpc.RpcError as error:
            failure = _translated(error)
            if isinstance(failure, _AwayError):
                # Who waits for a server meanwhile calls the master by this alone.
                self._find_next(failure)
            raise failure from error
        self._beat_s = time.monotonic()

    def check_session(self, session: Session) -> None:
        """Find out, while something else is waited for, whether the job still knows this worker.

        Raises:
            SessionLostError: It does not.
            SupersededError: A newer launch has taken over.
        """
        # Who is away now may say it the next time.
        with suppress(RpcError):
            self.heartbeat(session.key)

    def get_task(self, session: str, working_on: int | None = None) -> pb.GetTaskReply:
        """Ask for the next range of records.

        Args:
            session: Of this worker.
            working_on: The task that is about to end, where one to follow is asked for ahead;
                without it the worker says that it has none in work.
        """
        request = pb.GetTaskRequest(session=session, working_on=working_on)
        reply: pb.GetTaskReply = self._call("GetTask", lambda: request)
        return reply

    def get_model(
        self, session: Session, have_version: int | None, version: int | None = None
    ) -> PulledModel | None:
        """Pull parameters: of `version`, or the newest; None if `have_version` is that.

        The arrays may lie in the master's memory: they are valid until the next call.

        Raises:
            VersionGoneError: The master does not keep `version` any more.
        """
        request = pb.GetModelRequest(
            session=session.key,
            have_version=have_version,
            shares_memory=session.shares_memory,
            version=version,
        )
        if session.shares_memory:
            header = self._call("GetModel", lambda: request, BULK_TIMEOUT_S, is_single=True).header
            if header.unchanged:
                return None
            if header.HasField("shared"):
                self._model = _layout_of(header)
                return self._shared_model(self._model, header.model_version, header.shared)
            # The master has no memory left to share.
            request.shares_memory = False
        pulled: PulledModel | None = self._retry(
            "GetModel", lambda method: self._pull(method, request)
        )
        return pulled

    def get_frozen(self, session: Session) -> Mapping[str, Array]:
        """What is the same in all versions of the model, by name, in arrays of the caller's own."""
        request = pb.GetModelRequest(session=session.key, frozen=True)
        pulled: PulledModel = self._retry("GetModel", lambda method: self._pull(method, request))
        return pulled.state

    def get_rows(
        self, session: Session, table: Table, ids: Ids, version: int | None = None
    ) -> Values:
        """Rows of a table: of `version`, or the newest; an array of the caller's own.

        Raises:
            VersionGoneError: The master does not keep `version` any more.
        """
        request = pb.GetRowsRequest(
            session=session.key, table=table.name, ids=ids_to_bytes(ids), version=version
        )
        if session.shares_memory:
            laid: Values | None = self._retry(
                "GetRows", lambda method: self._laid(method, request, len(ids), table.dim), True
            )
            if laid is not None:
                return laid
        is_single = is_one_message(table.dim, len(ids))

        def receive(method: Any) -> Values | Malformed:
            reply = method(request, timeout=BULK_TIMEOUT_S, metadata=self._metadata)
            try:
                return values_of_reply(table.dim, len(ids), [reply] if is_single else reply)
            except RowsError as error:
                return Malformed(str(error))

        values: Values = self._retry("GetRows", receive, is_single)
        return values

    def report_staged(self, session: Session, header: pb.GradientHeader) -> pb.ReportGradientReply:
        """Report a gradient that lies on the servers; the reply may wait for the update."""
        header.session = session.key
        single = pb.GradientChunk(header=header)
        reply: pb.ReportGradientReply = self._call(
            "ReportGradient", lambda: single, BULK_TIMEOUT_S, is_single=True
        )
        return reply

    @property
    def num_retries(self) -> int:
        """How often a call was made again: its first try may still be worked on by the master."""
        return self._num_retries

    @property
    def patience_s(self) -> float:
        """How long a peer may be away."""
        return self._patience_s

    @property
    def token(self) -> str:
        """The job's."""
        return self._token

    @property
    def certificate(self) -> Certificate | None:
        """The job's; None where its calls go in clear."""
        return self._certificate

    def report_gradient(
        self,
        session: Session,
        header: pb.GradientHeader,
        gradients: Mapping[str, Array],
        state: Mapping[str, Array],
        *,
        narrows: bool = False,
    ) -> pb.ReportGradientReply:
        """Push a gradient and the non-trained state; the reply may wait for the update.

        Args:
            session: Of this worker.
            header: Of the report.
            gradients: By name, as the model has them.
            state: Not trained, by name.
            narrows: Round float32 gradients to bfloat16 where they are sent.
        """
        header.session = session.key
        arrays = [*gradients.values(), *state.values()]
        shared = self._share(gradients, state, arrays) if session.shares_memory else None
        reply: pb.ReportGradientReply
        if shared is not None:
            header.shared.CopyFrom(shared)
            single = pb.GradientChunk(header=header)
            reply = self._call("ReportGradient", lambda: single, BULK_TIMEOUT_S, is_single=True)
            return reply
        layout = Layout.of(gradients, state)
        if narrows:
            layout = layout.narrowed(len(gradients))
        header.gradients.extend(specs_to_proto(layout.specs[: len(gradients)]))
        header.state.extend(specs_to_proto(layout.specs[len(gradients) :]))
        first = pb.GradientChunk(header=header)
        reply = self._call(
            "ReportGradient",
            lambda: chain([first], map(encode_data, iter_chunks(layout, arrays))),
            BULK_TIMEOUT_S,
        )
        return reply

    @property
    def room(self) -> Mapping[str, Array]:
        """Where gradients are shared from, by name: what lies there is not copied when it is
        reported. Empty before the first report, and where tensors are not shared.
        """
        return NO_ROOM if self._outgoing is None else self._outgoing.gradients

    def model_of(self, reply: pb.ReportGradientReply) -> PulledModel | None:
        """The version that came with a reply, if one did; valid until the next call."""
        if self._model is None or not reply.HasField("model"):
            return None
        return self._shared_model(self._model, reply.model.model_version, reply.model.buffer)

    def report_result(self, request: pb.ReportTaskResultRequest) -> bool:
        """Report how a task ended; False if its lease had been lost."""
        return bool(self._call("ReportTaskResult", lambda: request).accepted)

    # -- inside --------------------------------------------------------------------------------

    def _share(
        self,
        gradients: Mapping[str, Array],
        state: Mapping[str, Array],
        arrays: Sequence[Array],
    ) -> pb.SharedBuffer | None:
        """Put tensors into memory that the master maps; None where there is none left.

        Also None for tensors that are not the model's, which the master has to see to refuse.
        """
        if self._model is None or not self._model.layout.holds({**gradients, **state}):
            return None
        if self._outgoing is None:
            try:
                self._outgoing = _Outgoing(self._model)
            except OSError:
                return None
        return self._outgoing.holding(arrays)

    def _laid(
        self, method: Any, request: pb.GetRowsRequest, num_rows: int, dim: int
    ) -> Values | None:
        """Rows that the master lays into memory of this process; None where there is none left."""
        with self._rows.lent(WORD_BYTES * num_rows * dim) as memory:
            if memory is None:
                return None
            asking = pb.GetRowsRequest()
            asking.CopyFrom(request)
            asking.buffer.CopyFrom(memory.handle())
            method(asking, timeout=BULK_TIMEOUT_S, metadata=self._metadata)
            return values_laid(memory, num_rows, dim)

    def _pull(self, method: Any, request: pb.GetModelRequest) -> PulledModel | Malformed | None:
        stream = method(request, timeout=BULK_TIMEOUT_S, metadata=self._metadata)
        first = next(stream)
        if isinstance(first, Malformed):
            return first
        header = first.header
        if header.unchanged:
            for _ in stream:
                # Whose end has to come before the connection can be used again.
                pass
            return None
        model = _layout_of(header)
        assembler = Assembler(model.layout)
        for chunk in stream:
            assembler.add(chunk)
        return model.pulled(header.model_version, assembler.finish())

    def _shared_model(
        self, model: "_ModelLayout", version: int, handle: pb.SharedBuffer
    ) -> PulledModel:
        arrays = self._incoming.views(handle, model.layout)
        if arrays is None:
            # It was there at registration; the master has died since, and a new one answers.
            raise SessionLostError("the master's memory is gone")
        return model.pulled(version, arrays)

    def _call(
        self,
        name: str,
        request: Callable[[], Any],
        timeout_s: float | None = None,
        is_single: bool = False,
    ) -> Any:
        return self._retry(
            name,
            lambda method: method(
                request(), timeout=timeout_s or self._call_timeout_s, metadata=self._metadata
            ),
            is_single,
        )

    def _retry(self, name: str, call: Callable[[Any], Any], is_single: bool = False) -> Any:
        """Call until the master answers. Safe for every method: reports carry a sequence."""
        began_s = time.monotonic()
        pause_s = FIRST_RETRY_S
        while True:
            try:
                reply = call(self._method(name, is_single))
            except grpc.RpcError as error:
                failure = _translated(error)
                if not isinstance(failure, _AwayError):
                    raise failure from error
                # Asked each time: `hurry` may have come meanwhile. A master that answers heartbeats
                # is not away: a callback of the user's may keep it from answering this call.
                since_s = began_s if self._is_hurried else max(began_s, self._beat_s)
                if time.monotonic() - since_s > self._patience_s:
                    raise RpcError(
                        f"the master was away for {self._patience_s:g} s: {failure}"
                    ) from error
            else:
                if isinstance(reply, Malformed):
                    raise RpcError(f"the master's reply to {name} is malformed: {reply.reason}")
                return reply
            self._num_retries += 1
            time.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311 - jitter, no secret
            pause_s = min(2 * pause_s, LAST_RETRY_S)
            self._find_next(failure)

    def _find_next(self, failure: "_AwayError") -> None:
        """Have the next call reach the master that has taken the place of one that is away."""
        if not isinstance(failure, _LateError):
            self._call_by_grpc()
        if isinstance(failure, _FencedError):
            self._connect_anew()
        self._follow_address()

    def _connect_anew(self) -> None:
        """Reach whichever master the address leads to now: a connection stays with its old one.

        It is not closed, since a heartbeat may be under way on it, but goes when nobody holds it.
        """
        with self._lock:
            self._channel = None

    def _follow_address(self) -> None:
        if self._find_address() != self._address:
            self.close()

    def _method(self, name: str, is_single: bool = False) -> Any:
        """What makes one call.

        Args:
            name: Which method.
            is_single: One message goes each way, though the method may stream. The wire does not
                tell the difference, and gRPC starts threads for streams: 0.4 ms of every call.
        """
        method = METHODS[name]
        is_single = is_single or not (method.streams_requests or method.streams_replies)
        channel: Any = self._sockets
        if channel is None or not (is_single or channel.has_streams):
            with self._lock:
                channel = self._channel or self._connect()
        if is_single:
            make = channel.unary_unary
        else:
            make = channel.stream_unary if method.streams_requests else channel.unary_stream
        return make(method.path, method.encode_request, method.decode_reply)

    def _connect(self) -> grpc.Channel:
        self._address = self._find_address()
        # Port 9 discards: without an address the call fails as away and is tried again.
        target = self._address or "127.0.0.1:9"
        self._channel = open_channel(target, self._certificate)
        return self._channel


@dataclass(frozen=True, slots=True)
class _ModelLayout:
    """How the model's tensors lie; the same for all versions."""

    layout: Layout
    num_parameters: int

    def pulled(self, version: int, arrays: Sequence[Array]) -> PulledModel:
        specs, split = self.layout.specs, self.num_parameters
        return PulledModel(
            version, by_name(specs[:split], arrays[:split]), by_name(specs[split:], arrays[split:])
        )


class _Outgoing:
    """Memory that the master reads reports from."""

    def __init__(self, model: _ModelLayout) -> None:
        """Allocate.

        Raises:
            OSError: There is no memory left that can be shared.
        """
        self._memory = SharedMemory(model.layout.size_bytes)
        self._arrays = model.layout.views(self._memory.data)
        split = model.num_parameters
        self.gradients = by_name(model.layout.specs[:split], self._arrays[:split])

    def holding(self, arrays: Iterable[Array]) -> pb.SharedBuffer:
        """What names the memory to the master, with these gradients and states in it."""
        for own, array in zip(self._arrays, arrays, strict=True):
            if array is not own:
                np.copyto(own, array)
        return self._memory.handle()


def _layout_of(header: pb.ModelHeader) -> _ModelLayout:
    return _ModelLayout(layout_from_proto(header.parameters, header.state), len(header.parameters))


class _AwayError(RpcError):
    """The master does not answer now."""


class _LateError(_AwayError):
    """The master has not answered in time, but may be there."""


class _FencedError(_AwayError):
    """The master may not answer now; there may be another one."""


def _translated(error: grpc.RpcError) -> Exception:
    code, details = error.code(), error.details()
    if code is grpc.StatusCode.UNAVAILABLE and (details or "").startswith(FENCED):
        return _FencedError(details)
    if unlike := misfit(error):
        return RpcError(f"the master cannot be called: {unlike} ({details})")
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return _LateError(details)
    if code in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}:
        return _AwayError(details)
    if code is grpc.StatusCode.FAILED_PRECONDITION:
        return SessionLostError(details)
    if code is grpc.StatusCode.NOT_FOUND:
        return VersionGoneError(details)
    if code is grpc.StatusCode.ABORTED:
        return SupersededError(details)
    return RpcError(f"the master refused the call ({code.name}): {details}")
