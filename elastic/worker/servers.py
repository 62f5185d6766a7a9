"""Where parameter servers have the versions of a job: shares pulled from each, gradients staged."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

import numpy as np

from elastic.errors import RpcError
from elastic.frameworks.base import Array, Tensors
from elastic.policy.updates.server_shares import Slice
from elastic.rows.base import Ids, RowGradient, RowGradients, Table, Values
from elastic.rows.ids import spread_rows
from elastic.rpc import elastic_pb2 as pb
from elastic.rpc.client import NO_ROOM, MasterClient, PulledModel, ServerPlace, Session
from elastic.rpc.layout import Layout, Mappings, SharedMemory
from elastic.rpc.rows import (
    RowsAhead,
    RowsMemory,
    WantedIds,
    WantedRows,
    ahead_to_proto,
    rows_laid,
    size_of,
)
from elastic.rpc.server_client import (
    Gradient,
    OtherEraError,
    PulledShare,
    ServerAwayError,
    ServerClient,
)
from elastic.worker.strategy import NO_ROWS

T = TypeVar("T")

FIRST_PAUSE_S: Final = 0.05
LAST_PAUSE_S: Final = 1.0


@dataclass(slots=True)
class _Link:
    """One server, and what of its tensors is here.

    Attributes:
        index: Its number, from 0.
        layout: Of its share: parameters, then state.
        mappings: Its memory.
        outgoing: Buffers of this process that gradients are handed over in, and of which version
            the one is that may still wait there for its update; None for a free one.
        memory_ahead: Where rows are laid that come with a version.
    """

    index: int
    place: ServerPlace
    client: ServerClient
    layout: Layout | None = None
    mappings: Mappings = field(default_factory=Mappings)
    outgoing: list[tuple[SharedMemory, int | None]] = field(default_factory=list)
    memory_ahead: RowsMemory = field(default_factory=RowsMemory)


class ServerExchange:
    """Servers have the parameters; the master hears of each gradient, and keeps old versions.

    A gradient is staged on every server before the master is told of it, so that what the master
    commits is everywhere. Who dies in between has reported nothing.
    """

    def __init__(
        self,
        client: MasterClient,
        *,
        is_synchronous: bool,
        keeps_rows: bool = False,
        narrows: bool = False,
    ) -> None:
        """Take the connection to the master, who says where the servers are.

        Args:
            is_synchronous: All servers have to be at one version before it is computed on. Else a
                gradient may be of one that is half a newer one, and counts as of the older.
            keeps_rows: The servers have the rows of embeddings as well, and else the master.
            narrows: Round float32 gradients to bfloat16 where they are not handed over in memory.
        """
        self._client = client
        self._is_synchronous = is_synchronous
        self._keeps_rows = keeps_rows
        self._narrows = narrows
        self._session: Session | None = None
        self._links: list[_Link] = []
        self._threads: ThreadPoolExecutor | None = None
        self._newest = 0
        self._refused: list[int] = []
        self._whole: dict[str, Array] = {}
        self._memory = RowsMemory()
        self._pulling: Future[list[_PulledAhead]] | None = None
        self._has_moved = False
        self._model: PulledModel | None = None
        self._ahead: RowsAhead | None = None

    def begin(self, session: Session) -> None:
        """See `Exchange`: what was staged in the session before is dropped by the servers."""
        self.close()
        self._session, client = session, self._client
        self._links = [
            _Link(i, place, _client_of(place, client)) for i, place in enumerate(session.servers)
        ]
        self._threads = ThreadPoolExecutor(len(self._links), "server")
        self._newest, self._refused, self._memory = 0, [], RowsMemory()
        self._pulling, self._has_moved, self._model, self._ahead = None, False, None, None

    def close(self) -> None:
        """Drop the connections to the servers; that to the master is whoever's it is."""
        for link in self._links:
            link.client.close()
        if self._threads is not None:
            self._threads.shutdown(wait=False)

    def get_model(self, have_version: int | None, version: int | None = None) -> PulledModel | None:
        """See `Exchange`: the newest is pulled from the servers, an older one from the master."""
        # What is here as of a version may be half of a newer one, where updates do not wait.
        have = have_version if self._is_synchronous else None
        if version is not None:
            return self._client.get_model(self._current, have, version)
        shares = self._pull(self._links, have, self._newest)
        while self._is_synchronous:
            newest = max(share.version for share in shares)
            behind = [i for i, share in enumerate(shares) if share.version < newest]
            if not behind:
                break
            again = self._pull([self._links[i] for i in behind], None, newest)
            for i, share in zip(behind, again, strict=True):
                shares[i] = share
        pulled_version = min(share.version for share in shares)
        if have is not None and pulled_version == have:
            return None
        if any(share.arrays is None for share in shares):
            # One had nothing new when it was asked, and has what the others have now.
            return self.get_model(None)
        return self._assembled(pulled_version, shares)

    def get_frozen(self) -> Mapping[str, Array]:
        """See `Exchange`: the servers need none of it."""
        return self._client.get_frozen(self._current)

    def report_gradient(
        self,
        header: pb.GradientHeader,
        gradients: Mapping[str, Array],
        state: Mapping[str, Array],
        rows: RowGradients = NO_ROWS,
        wanted: Sequence[WantedIds] = (),
    ) -> pb.ReportGradientReply:
        """See `Exchange`."""
        self._model = self._ahead = None
        shares: Sequence[RowGradients] = [NO_ROWS] * len(self._links)
        if self._keeps_rows:
            shares, rows = _spread(rows, len(self._links)), NO_ROWS
        stage = partial(self._stage, header, gradients, state, shares)
        header.is_staged = all(self._each(self._links, stage))
        # All servers have dropped these by now.
        self._refused = []
        pulling = self._pull_ahead(header, wanted)
        is_shared = self._current.shares_memory
        narrows = self._narrows and not is_shared
        with self._memory.behind(header, rows, is_shared=is_shared, narrows=narrows):
            reply = self._client.report_staged(self._current, header)
        is_refused = reply.verdict != pb.ReportGradientReply.VERDICT_ACCEPTED
        if is_refused:
            self._refused.append(header.sequence)
        # Else it waits where it is for others of its group.
        if is_refused or reply.model_version > header.model_version or not self._is_synchronous:
            self._free(header.model_version)
        self._newest = max(self._newest, reply.model_version)
        self._has_moved = not is_refused and reply.model_version > header.model_version
        if pulling is not None and self._has_moved:
            self._take_ahead(pulling, wanted)
        return reply

    def model_of(self, reply: pb.ReportGradientReply) -> PulledModel | None:  # noqa: ARG002
        """See `Exchange`: it was pulled from the servers while the master was waited for."""
        return self._model

    @property
    def ahead(self) -> RowsAhead | None:
        """See `Exchange`."""
        return self._ahead

    @property
    def room(self) -> Mapping[str, Array]:
        """See `Exchange`: a gradient waits in memory of its own for the others of its group."""
        return NO_ROOM

    def read_rows(self, table: Table, ids: Ids, version: int | None) -> Values:
        """Rows that the servers have, each of the newest version there or all of one that is held.

        Who has pulled a version reads no older rows: a server makes both in one step.

        Args:
            table: Of which.
            ids: Strictly ascending.
            version: One that is held; None for the newest.

        Raises:
            VersionGoneError: That version is not held any more.
        """
        spread = spread_rows(table.name, ids, len(self._links))

        def read(link: _Link) -> Values:
            reader = self._current.key if link.place.shares_memory else None
            wanted = WantedRows(table.name, ids[spread[link.index]], table.dim, version)
            return link.client.read_rows(self._current.era, wanted, reader).values

        asked = [link for link in self._links if len(spread[link.index])]
        values = np.empty((len(ids), table.dim), np.float32)
        for link, part in zip(asked, self._each(asked, read), strict=True):
            values[spread[link.index]] = part
        return values

    # -- ahead of the master's answer ----------------------------------------------------------

    def _pull_ahead(
        self, header: pb.GradientHeader, wanted: Sequence[WantedIds]
    ) -> "Future[list[_PulledAhead]] | None":
        """Ask for the version that a gradient is about to make, beside the report of it.

        Only where the last one made one, or the servers would be waited for in vain: others of the
        group are to come. A call that waits so is left alone until it has its answer.
        """
        is_waiting = self._pulling is not None and not self._pulling.done()
        is_due = self._is_synchronous and header.is_staged and self._has_moved and not is_waiting
        if not is_due or not all(link.place.shares_memory for link in self._links):
            return None
        wanted = wanted if self._keeps_rows else ()
        spread = [spread_rows(each.table.name, each.ids, len(self._links)) for each in wanted]
        session, at_least = self._current, header.model_version + 1

        def pull(link: _Link) -> _PulledAhead:
            parts = [
                WantedIds(each.table, each.ids[places[link.index]])
                for each, places in zip(wanted, spread, strict=True)
            ]
            return _pulled_ahead(link, session, at_least, parts)

        self._pulling = _in_thread(partial(_of_all, pull, self._links))
        return self._pulling

    def _take_ahead(
        self, pulling: "Future[list[_PulledAhead]]", wanted: Sequence[WantedIds]
    ) -> None:
        """Have what was pulled meanwhile; nothing where that was not to be had of one version."""
        try:
            pulled = pulling.result()
        except RpcError:
            # Whoever needs it asks again, and learns what is wrong.
            return
        shares = [each.share for each in pulled]
        if len({share.version for share in shares}) > 1:
            return
        shares = [
            self._mapped(link, share) for link, share in zip(self._links, shares, strict=True)
        ]
        self._model = self._assembled(shares[0].version, shares)
        if not self._keeps_rows or not wanted or not all(each.share.has_rows for each in pulled):
            return
        joined = [
            _joined_rows(each, [part.rows[i] for part in pulled]) for i, each in enumerate(wanted)
        ]
        self._ahead = RowsAhead(shares[0].version, wanted, joined)

    # -- inside --------------------------------------------------------------------------------

    @property
    def _current(self) -> Session:
        assert self._session is not None, "a session has begun"
        return self._session

    def _pull(
        self, links: Sequence[_Link], have_version: int | None, at_least: int
    ) -> list[PulledShare]:
        session = self._current

        def pull(link: _Link) -> PulledShare:
            shares_memory = link.place.shares_memory
            share = link.client.pull(
                session.era, session.key, have_version, at_least, shares_memory
            )
            return self._mapped(link, share)

        return self._each(links, pull)

    def _mapped(self, link: _Link, share: PulledShare) -> PulledShare:
        """A share with its arrays, wherever they lie."""
        if share.shared is None:
            return share
        arrays = None if share.layout is None else link.mappings.views(share.shared, share.layout)
        if arrays is None:
            raise ServerAwayError("the server's memory is gone")
        return PulledShare(share.version, arrays)

    def _assembled(self, version: int, shares: Sequence[PulledShare]) -> PulledModel:
        parameters: dict[str, list[tuple[int, Array]]] = {}
        state: Tensors = {}
        for link, share in zip(self._links, shares, strict=True):
            assert share.arrays is not None
            held = link.place.share
            for rows, array in zip(held.parameters, share.arrays, strict=False):
                parameters.setdefault(rows.name, []).append((rows.start, array))
            split = len(held.parameters)
            state |= {
                rows.name: array
                for rows, array in zip(held.state, share.arrays[split:], strict=True)
            }
        whole = {name: self._joined(name, pieces) for name, pieces in parameters.items()}
        return PulledModel(version, whole, state)

    def _joined(self, name: str, pieces: list[tuple[int, Array]]) -> Array:
        if len(pieces) == 1:
            return pieces[0][1]
        arrays = [array for _, array in sorted(pieces, key=lambda each: each[0])]
        # Into the same memory each time: fresh pages cost more than the bytes in them.
        self._whole[name] = np.concatenate(arrays, out=self._whole.get(name))
        return self._whole[name]

    def _stage(
        self,
        header: pb.GradientHeader,
        gradients: Mapping[str, Array],
        state: Mapping[str, Array],
        rows: Sequence[RowGradients],
        link: _Link,
    ) -> bool:
        held, session = link.place.share, self._current
        arrays = [_rows(gradients[each.name], each) for each in held.parameters]
        arrays += [_rows(state[each.name], each) for each in held.state]
        if link.layout is None:
            names = [each.name for each in (*held.parameters, *held.state)]
            link.layout = Layout.of(dict(zip(names, arrays, strict=True)))
        memory = self._shared(link, header.model_version) if link.place.shares_memory else None
        layout, narrows = link.layout, self._narrows and not link.place.shares_memory
        if memory is not None:
            layout.fill(memory.data, arrays)
        elif narrows:
            layout = layout.narrowed(len(held.parameters))
        gradient = Gradient(
            session.era,
            session.key,
            header.sequence,
            header.model_version,
            header.end - header.start,
            layout,
            len(held.parameters),
            arrays,
            None if memory is None else memory.handle(),
            tuple(self._refused),
            rows[link.index],
            narrows,
        )
        return link.client.stage(gradient)

    def _shared(self, link: _Link, version: int) -> SharedMemory | None:
        """Memory that nobody else reads; None where there is none left."""
        assert link.layout is not None
        for i, (memory, used_for) in enumerate(link.outgoing):
            if used_for is None:
                link.outgoing[i] = memory, version
                return memory
        try:
            memory = SharedMemory(link.layout.size_bytes)
        except OSError:
            return None
        link.outgoing.append((memory, version))
        return memory

    def _free(self, version: int) -> None:
        """What was computed on a version, or before it, is committed or refused."""
        for link in self._links:
            link.outgoing = [
                (memory, None if used_for is not None and used_for <= version else used_for)
                for memory, used_for in link.outgoing
            ]

    def _each(self, links: Sequence[_Link], call: Callable[[_Link], T]) -> list[T]:
        """What all of these servers answer, asked at the same time."""
        if len(links) == 1:
            return [self._patiently(call, links[0])]
        assert self._threads is not None, "a session has begun"
        asked = [self._threads.submit(self._patiently, call, link) for link in links]
        # What they work with is the caller's again when this returns or raises.
        wait(asked)
        return [each.result() for each in asked]

    def _patiently(self, call: Callable[[_Link], T], link: _Link) -> T:
        """Ask until the server answers, or the master says that it is another one now.

        Raises:
            SessionLostError: The job goes on with other servers, or from another version.
        """
        began_s, pause_s = time.monotonic(), FIRST_PAUSE_S
        while True:
            try:
                return call(link)
            except (ServerAwayError, OtherEraError) as error:
                if time.monotonic() - began_s > self._client.patience_s:
                    raise RpcError(
                        f"the parameter server at {link.place.address} was away for "
                        f"{self._client.patience_s:g} s: {error}"
                    ) from error
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LAST_PAUSE_S)
            self._client.check_session(self._current)


@dataclass(frozen=True, slots=True)
class _PulledAhead:
    """A server's share of a version, and its part of the rows of each table that were wanted."""

    share: PulledShare
    rows: Sequence[Values] = ()


def _client_of(place: ServerPlace, client: MasterClient) -> ServerClient:
    return ServerClient(place.address, client.token, client.certificate, place.sockets)


def _pulled_ahead(
    link: _Link, session: Session, at_least: int, wanted: Sequence[WantedIds]
) -> _PulledAhead:
    """A server's share of a version once it is made."""
    with link.memory_ahead.lent(size_of(wanted)) as memory:
        asked = ahead_to_proto(wanted, memory) if wanted and memory is not None else None
        share = link.client.pull(session.era, session.key, None, at_least, True, asked)
        if memory is None or not share.has_rows:
            return _PulledAhead(share)
        return _PulledAhead(share, rows_laid(wanted, memory))


def _of_all(call: Callable[[_Link], T], links: Sequence[_Link]) -> list[T]:
    """What all servers answer, asked at the same time by this thread and others."""
    others = [_in_thread(partial(call, link)) for link in links[1:]]
    return [call(links[0]), *(each.result() for each in others)]


def _in_thread(work: Callable[[], T]) -> "Future[T]":
    """Have work done beside; no end of this process waits for it."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except Exception as error:  # noqa: BLE001 - whoever asks for the result raises it
            done.set_exception(error)

    threading.Thread(target=run, name="ahead", daemon=True).start()
    return done


def _joined_rows(wanted: WantedIds, parts: Sequence[Values]) -> Values:
    """The rows of a table, of which each server has laid its own."""
    if len(parts) == 1:
        return parts[0]
    values = np.empty((len(wanted.ids), wanted.table.dim), np.float32)
    for places, part in zip(
        spread_rows(wanted.table.name, wanted.ids, len(parts)), parts, strict=True
    ):
        values[places] = part
    return values


def _spread(rows: RowGradients, num_servers: int) -> list[RowGradients]:
    """What each server gets of the gradients of rows."""
    shares: list[dict[str, RowGradient]] = [{} for _ in range(num_servers)]
    for table, gradient in rows.items():
        for share, places in zip(
            shares, spread_rows(table, gradient.ids, num_servers), strict=True
        ):
            if len(places):
                share[table] = RowGradient(gradient.ids[places], gradient.values[places])
    return list(shares)


def _rows(array: Array, rows: Slice) -> Array:
    return array[rows.start : rows.end] if array.ndim else array
