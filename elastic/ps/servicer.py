"""A parameter server: its calls, what it holds, what is staged, the updates it makes; its life."""

import asyncio
import json
import logging
import math
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import grpc
import numpy as np

from elastic.errors import UserError
from elastic.frameworks import load_framework
from elastic.frameworks.base import Array, Tensors, Updater, UpdaterState, Values
from elastic.master.parameters.store import Contribution, VersionStore
from elastic.master.parameters.strategy import Incoming
from elastic.master.parameters.tables import Share
from elastic.policy.replicas import ReplicaId
from elastic.ps.rows import ServedRows
from elastic.rows.base import RowGradients
from elastic.rpc import elastic_pb2 as pb
from elastic.rpc.client import MasterClient
from elastic.rpc.layout import DTYPES, Assembler, Layout, LayoutError, Proof, iter_chunks
from elastic.rpc.network import SocketListeners
from elastic.rpc.rows import RowsError, gone_to_proto
from elastic.rpc.server import SERVER_OPTIONS, ServerHandler, malformed
from elastic.rpc.wire import (
    CallRefusedError,
    Chunks,
    Pieces,
    add_port,
    by_name,
    encode_data,
    layout_from_proto,
    specs_to_proto,
)
from elastic.spec.job import JobSpec
from elastic.spec.model_def import load_model_def
from elastic.spec.values import Certificate

BuildShare: TypeAlias = Callable[
    [Mapping[str, Array], Tensors, Tensors, int], tuple[Values, Updater]
]
"""Makes a share of the shapes of all parameters, those that are held, the state, and the number of
updates that the job will make."""

NUM_MAPPED: Final = 8
"""Gradients of one worker that lie in its memory and wait for their group; more are mapped anew."""

WAIT_S: Final = 20.0
"""How long a pull waits for the version that it asks for, before it is to ask again."""

Id: TypeAlias = tuple[str, int]
"""Session and sequence."""


@dataclass(frozen=True, slots=True)
class _Staged:
    """One worker's share of a gradient, that of rows beside that of parameters."""

    dense: Contribution
    rows: RowGradients

    def share(self) -> Share:
        """What it brings to an update of rows."""
        return Share(self.rows, self.dense.num_records)


@dataclass(slots=True)
class _Held:
    """All that belongs to one era.

    Attributes:
        rows: Of the model's tables; none where it has none.
        staged: Gradients that wait for their commit.
        ended_sessions: Of which nothing more is kept.
        num_epochs: That have ended.
        made: The ids of the newest update, and what was answered.
        moved: Replaced when there is another version.
    """

    era: str
    store: VersionStore[Values]
    is_synchronous: bool
    rows: ServedRows
    staged: dict[Id, _Staged] = field(default_factory=dict)
    ended_sessions: set[str] = field(default_factory=set)
    num_epochs: int = 0
    made: tuple[list[Id], pb.CommitReply] | None = None
    moved: asyncio.Event = field(default_factory=asyncio.Event)

    def drop(self, item: Id) -> None:
        staged = self.staged.pop(item, None)
        if staged is not None:
            self.store.give_back(staged.dense)

    def end_sessions(self, sessions: set[str]) -> None:
        self.ended_sessions |= sessions
        for item in [each for each in self.staged if each[0] in sessions]:
            self.drop(item)
        for session in sessions:
            self.store.left(session)
            self.rows.left(session)

    def end_epochs(self, num_epochs: int) -> None:
        while self.num_epochs < num_epochs:
            self.store.end_epoch()
            self.num_epochs += 1


class ServerServicer:
    """Implements `ServerService`.

    Attributes:
        left: Set when the job needs this server no more.
    """

    def __init__(self, build_share: BuildShare, proof: Proof | None = None) -> None:
        """Hold nothing until the master loads something.

        Args:
            build_share: Makes the user's optimizer over a share.
            proof: That this process is on its machine, and where it takes calls by sockets.
        """
        self._build_share = build_share
        self._held: _Held | None = None
        self._loading = asyncio.Lock()
        self._committing: set[asyncio.Task[pb.CommitReply]] = set()
        self._proof = proof or Proof()
        self.left = asyncio.Event()

    async def load(self, header: pb.LoadHeader, chunks: Chunks) -> pb.LoadReply:
        """Begin an era."""
        try:
            groups = await _received(header, chunks)
        except LayoutError as error:
            raise malformed(str(error)) from error
        async with self._loading:
            try:
                held = await asyncio.to_thread(self._make, header, *groups)
            except UserError as error:
                return pb.LoadReply(failure=str(error))
            before, self._held = self._held, held
        if before is not None:
            before.moved.set()
        reply = pb.LoadReply()
        self._proof.give(reply)
        return reply

    async def stage(self, header: pb.StageHeader, chunks: Chunks) -> pb.StageReply:
        """Keep a gradient until it is committed, dropped, or its era ends."""
        held = self._of(header.era)
        store, item = held.store, (header.session, header.sequence)
        # Who computed has finished reading the version that it pulled.
        store.release(header.session)
        for sequence in header.drop:
            held.drop((header.session, sequence))
        if header.session in held.ended_sessions:
            raise _refused(f"session {header.session} has ended")
        if header.model_version > store.version:
            raise malformed(
                f"a gradient of version {header.model_version}, and the newest is {store.version}"
            )
        if held.is_synchronous and header.model_version < store.version:
            return pb.StageReply(is_stale=True)
        if header.num_records <= 0:
            raise malformed(f"a gradient of {header.num_records} records")
        try:
            rows = held.rows.checked(header)
            contribution = await store.receive(_incoming(header, chunks))
        except (LayoutError, RowsError) as error:
            raise malformed(str(error)) from error
        if self._held is not held or header.session in held.ended_sessions:
            store.give_back(contribution)
            raise _refused("the era, or the session, has ended meanwhile")
        held.drop(item)
        held.staged[item] = _Staged(contribution, rows)
        return pb.StageReply()

    async def pull(self, request: pb.PullRequest) -> AsyncIterator[pb.ModelChunk | Pieces]:
        """Send the share of the newest version."""
        held = self._of(request.era)
        held.store.release(request.session)
        await self._wait_for(held, request.at_least)
        if request.HasField("have_version") and request.have_version == held.store.version:
            yield pb.ModelChunk(
                header=pb.ModelHeader(model_version=held.store.version, unchanged=True)
            )
            return
        packed = await held.store.packed(request.session)
        assert packed is not None, "the newest version is always there"
        self._of(request.era)
        specs, split = packed.layout.specs, packed.num_parameters
        header = pb.ModelHeader(
            model_version=packed.version,
            parameters=specs_to_proto(specs[:split]),
            state=specs_to_proto(specs[split:]),
        )
        if request.shares_memory:
            # One message whatever comes, which a worker receives for less than a stream.
            handle = packed.buffer.handle()
            if handle is not None:
                header.shared.CopyFrom(handle)
                header.has_rows = await self._has_laid_rows(held, request, packed.version)
            yield pb.ModelChunk(header=header)
            return
        try:
            yield pb.ModelChunk(header=header)
            for pieces in iter_chunks(packed.layout, packed.arrays):
                yield encode_data(pieces)
        finally:
            held.store.release(request.session)

    async def commit(self, request: pb.CommitRequest) -> pb.CommitReply:
        """Make an update of exactly what is named, once."""
        held = self._of(request.era)
        # A master that hangs up must not cut an update in half; it asks again.
        committing = asyncio.ensure_future(self._commit(held, request))
        self._committing.add(committing)
        committing.add_done_callback(self._committing.discard)
        return await asyncio.shield(committing)

    async def copy(self, request: pb.CopyRequest) -> AsyncIterator[pb.CopyChunk | Pieces]:
        """Send the share of one version as it is in a cut."""
        held = self._of(request.era)
        async with held.store.lock:
            if request.version != held.store.version:
                raise malformed(
                    f"a copy of version {request.version}, and there is {held.store.version}"
                )
            held.end_epochs(request.num_epochs)
            parameters, state, optimizer = await held.store.copy(
                with_optimizer=request.with_optimizer
            )
        layout = Layout.of(parameters, state, optimizer.tensors)
        first, second = len(parameters), len(parameters) + len(state)
        header = pb.CopyHeader(
            parameters=specs_to_proto(layout.specs[:first]),
            state=specs_to_proto(layout.specs[first:second]),
            optimizer=specs_to_proto(layout.specs[second:]),
            optimizer_values=json.dumps(optimizer.values),
        )
        yield pb.CopyChunk(header=header)
        arrays = [*parameters.values(), *state.values(), *optimizer.tensors.values()]
        for pieces in iter_chunks(layout, arrays):
            yield encode_data(pieces)

    async def put_rows(self, request: pb.PutRowsRequest) -> pb.PutRowsReply:
        """Take rows that belong to what was loaded, or to a version before it."""
        await self._of(request.era).rows.put(request)
        return pb.PutRowsReply()

    async def read_rows(self, request: pb.ReadRowsRequest) -> pb.ReadRowsReply | Pieces:
        """Send rows of the newest version, or of one that is held."""
        held = self._of(request.era)
        if not request.HasField("version"):
            # Who has pulled the parameters of an update must not get rows from before it.
            async with held.store.lock:
                pass
            self._of(request.era)
        return await held.rows.read(request)

    async def scan_rows(self, request: pb.ScanRowsRequest) -> pb.ScanRowsReply:
        """Send some rows of a version as they are in a cut."""
        held = self._of(request.era)
        if not held.rows.is_held(request.version):
            async with held.store.lock:
                held.rows.hold(request.version)
        return await held.rows.scan(request)

    async def leave(self, request: pb.LeaveRequest) -> pb.LeaveReply:  # noqa: ARG002 - says nothing
        """Have this process end."""
        self.left.set()
        return pb.LeaveReply()

    # -- inside --------------------------------------------------------------------------------

    def _of(self, era: str) -> _Held:
        held = self._held
        if held is None or held.era != era:
            there = "nothing" if held is None else f"era {held.era}"
            raise _refused(f"a call of era {era}, and this server holds {there}")
        return held

    def _make(
        self,
        header: pb.LoadHeader,
        parameters: Tensors,
        state: Tensors,
        optimizer: UpdaterState,
    ) -> _Held:
        whole = {
            spec.name: np.broadcast_to(np.zeros((), DTYPES[spec.dtype]), tuple(spec.shape))
            for spec in header.model
        }
        values, updater = self._build_share(whole, parameters, state, header.total_steps)
        updater.load_state(optimizer)
        store = VersionStore(values, updater, num_mapped=NUM_MAPPED)
        store.version = header.version
        return _Held(header.era, store, header.is_synchronous, ServedRows.of(header))

    async def _has_laid_rows(self, held: _Held, request: pb.PullRequest, version: int) -> bool:
        """Lay the rows that are asked for with a version; False where they are newer ones."""
        if not request.HasField("rows_ahead"):
            return False
        await held.rows.lay_ahead(request.session, request.rows_ahead)
        # An update counts its version before it changes rows, which a thread may have been reading.
        return held.store.version == version

    async def _wait_for(self, held: _Held, version: int) -> None:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + WAIT_S
        while held.store.version < version:
            left_s = until_s - loop.time()
            try:
                await asyncio.wait_for(held.moved.wait(), left_s)
            except TimeoutError as error:
                raise CallRefusedError(
                    grpc.StatusCode.UNAVAILABLE, f"version {version} has not come yet"
                ) from error
            self._of(held.era)

    async def _commit(self, held: _Held, request: pb.CommitRequest) -> pb.CommitReply:
        store = held.store
        ids = [(each.session, each.sequence) for each in request.ids]
        async with store.lock:
            if held.made is not None and request.version == store.version and held.made[0] == ids:
                return held.made[1]
            if request.version != store.version + 1 or not ids:
                raise malformed(
                    f"update {request.version} of {len(ids)} gradients, and the newest version is "
                    f"{store.version}"
                )
            held.end_epochs(request.num_epochs)
            applied = store.learning_rate
            group = [_find(held, each) for each in request.ids]
            for staged, each in zip(group, request.ids, strict=True):
                store.stage(staged.dense, each.learning_rate_scale)
            held.rows.hold_only(request.held_rows)
            try:
                await store.commit(request.state_share)
                # Where this fails no version is told to anybody, and the job ends.
                await held.rows.update(
                    [staged.share() for staged in group],
                    applied * request.ids[0].learning_rate_scale,
                    store.version,
                )
            except UserError as error:
                return pb.CommitReply(failure=str(error))
            for item in ids:
                held.drop(item)
            held.end_sessions(set(request.ended_sessions))
            held.made = (
                ids,
                pb.CommitReply(
                    learning_rate=store.learning_rate,
                    applied_learning_rate=applied,
                    num_rows=held.rows.num_rows(),
                    gone=map(gone_to_proto, held.rows.gone()),
                ),
            )
        moved, held.moved = held.moved, asyncio.Event()
        moved.set()
        return held.made[1]


def _find(held: _Held, named: pb.CommitId) -> _Staged:
    """What is staged under an id.

    Raises:
        CallRefusedError: It is not here, or not what the ledger has of it.
    """
    if not 0 <= named.learning_rate_scale < math.inf:
        raise malformed(f"a learning rate times {named.learning_rate_scale}")
    staged = held.staged.get((named.session, named.sequence))
    if staged is None:
        raise _refused(f"report {named.sequence} of session {named.session} is not staged here")
    if staged.dense.num_records != named.num_records:
        raise malformed(
            f"report {named.sequence} of session {named.session} is of {staged.dense.num_records} "
            f"records, and {named.num_records} are to be committed"
        )
    return staged


async def _received(header: pb.LoadHeader, chunks: Chunks) -> tuple[Tensors, Tensors, UpdaterState]:
    layout = layout_from_proto(header.parameters, header.state, header.optimizer)
    assembler = Assembler(layout)
    chunks.lie_in(assembler.room)
    async for chunk in chunks:
        assembler.add(chunk)
    arrays = assembler.finish()
    first, second = len(header.parameters), len(header.parameters) + len(header.state)
    parameters = dict(by_name(layout.specs[:first], arrays[:first]))
    state = dict(by_name(layout.specs[first:second], arrays[first:second]))
    slots = dict(by_name(layout.specs[second:], arrays[second:]))
    return parameters, state, UpdaterState(slots, json.loads(header.optimizer_values))


def _incoming(header: pb.StageHeader, chunks: Chunks) -> Incoming:
    return Incoming(
        header.session,
        header.num_records,
        layout_from_proto(header.gradients),
        layout_from_proto(header.state),
        header.shared if header.HasField("shared") else None,
        chunks,
        header.sequence,
    )


def _refused(message: str) -> CallRefusedError:
    return CallRefusedError(grpc.StatusCode.FAILED_PRECONDITION, message)


# The life of a parameter server: it listens, says so to the master, and is loaded by it.


log = logging.getLogger(__name__)

STOP_S: Final = 0.5


def share_builder(spec: JobSpec) -> BuildShare:
    """Import the user's module, and give what makes its optimizer over a share.

    Raises:
        UserError: The module cannot be used here.
    """
    model_def = load_model_def(spec.model_zoo, spec.model_def, spec.symbol_names())
    framework = load_framework(model_def.framework)
    return lambda whole, parameters, state, total_steps: framework.build_share(
        model_def, whole, parameters, state, total_steps
    )


class Serving:
    """One process that serves a share, from its first call to its end."""

    def __init__(
        self,
        client: MasterClient,
        replica: ReplicaId,
        life: str,
        token: str,
        host: str,
        build_share: BuildShare,
        certificate: Certificate | None = None,
    ) -> None:
        """Keep the parts.

        Args:
            client: Connection to the master.
            replica: Which launch of which server this is.
            life: Tells this process from any other, of the same launch too.
            token: The job's.
            host: Address that workers and the master reach this process by.
            build_share: Makes the user's optimizer over a share.
            certificate: The job's; None where its calls go in clear.
        """
        self._client = client
        self._replica = replica
        self._life = life
        self._token = token
        self._certificate = certificate
        self._host = host
        self._listeners = SocketListeners()
        self._servicer = ServerServicer(build_share, self._listeners.proof)

    async def run(self) -> None:
        """Serve until the job needs this server no more.

        Raises:
            SupersededError: A newer launch of this server has its place.
            RpcError: The master stayed away for too long.
        """
        server = grpc.aio.server(options=SERVER_OPTIONS)
        handler = ServerHandler(self._servicer, self._token)
        server.add_generic_rpc_handlers((handler,))
        port = add_port(server, f"{self._bracketed()}:0", self._certificate)
        await server.start()
        await self._listeners.start(handler, self._token, self._certificate, self._host)
        log.info("serving at %s:%d", self._host, port)
        announcing = asyncio.ensure_future(self._announce(f"{self._bracketed()}:{port}"))
        leaving = asyncio.ensure_future(self._servicer.left.wait())
        try:
            await asyncio.wait({announcing, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if leaving.done():
                log.info("finished: the job has its end")
            else:
                await announcing
        finally:
            announcing.cancel()
            leaving.cancel()
            # Its thread is waited for, and would wait for a master that has left for minutes.
            self._client.hurry(0.0)
            self._client.close()
            # What is being answered, such as the word to leave, goes out.
            await asyncio.gather(server.stop(STOP_S), self._listeners.stop(STOP_S))

    async def _announce(self, address: str) -> None:
        """Say again and again that this process is there: also to a master that has restarted."""
        request = pb.RegisterServerRequest(
            server_index=self._replica.index,
            launch=self._replica.launch,
            address=address,
            life=self._life,
        )
        while True:
            interval_s = await asyncio.to_thread(self._client.register_server, request)
            await asyncio.sleep(interval_s)

    def _bracketed(self) -> str:
        return f"[{self._host}]" if ":" in self._host else self._host
