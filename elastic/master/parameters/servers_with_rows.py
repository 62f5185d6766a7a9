"""Parameter servers that have rows of embeddings as well: one update of each changes both.

A version of rows is one of parameters: the same staged gradients make both, on every server, and
the same loss of a server ends both. The master has the rows by its books, and page by page
(`ServerRows`). There is known which versions somebody still reads, which each commit tells the
servers, and from where the rows come that an era begins with.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import numpy as np

from elastic.checkpoints.contents import CutRows
from elastic.errors import RpcError
from elastic.frameworks.base import Tensors, UpdaterState
from elastic.master.parameters.servers import (
    LoadedServer,
    ServerLife,
    ServerParameters,
    ServerRing,
    ServerRules,
)
from elastic.master.parameters.store import ParameterStore
from elastic.master.parameters.strategy import ParametersLostError
from elastic.master.parameters.tables import Tables
from elastic.platforms.base import NO_FENCE, Fence
from elastic.rows.arithmetic import repacked
from elastic.rows.base import Change, Gone, Ids, Notes, Rows, RowsLostError, Table, TableForm
from elastic.rows.ids import life_on, spread_rows
from elastic.rpc.client import BULK_TIMEOUT_S, VersionGoneError
from elastic.rpc.rows import WantedRows
from elastic.rpc.server_client import Commit, Committed, LoadedShare, ServerClient
from elastic.spec.status import TableStatus


@dataclass(frozen=True, slots=True)
class Beginning:
    """The rows that an era begins with, none of which is here.

    Attributes:
        version: Theirs.
        tables: All rows of each table by its name, to be gone through more than once.
    """

    version: int
    tables: Mapping[str, Iterable[Change]]


class ServerRows:
    """A `RowStore` whose versions are made elsewhere, and end with the era.

    Until the servers have been brought its rows it reads where they come from.
    """

    is_durable = False

    def __init__(self) -> None:
        """Know of no server yet."""
        self.beginning = Beginning(0, {})
        self._version = 0
        self._forms: dict[str, TableForm] = {}
        self._holders: Counter[int] = Counter()
        self._num_rows: dict[int, Sequence[int]] = {}
        self._gone: dict[int, Sequence[Gone]] = {}
        self._era = ""
        self._clients: Sequence[ServerClient] = ()

    # -- the era -------------------------------------------------------------------------------

    def begin_era(self, era: str, clients: Sequence[ServerClient]) -> None:
        """Read from servers from now on.

        Args:
            era: Of their loads.
            clients: One for each server, in their order; closed by `close`.
        """
        self._era, self._clients = era, clients
        self.beginning = Beginning(self._version, {})

    def tell(self, server: int, num_rows: Sequence[int], gone: Sequence[Gone] = ()) -> None:
        """A server says how many rows it has of each table, and how many have gone."""
        self._num_rows[server], self._gone[server] = num_rows, gone

    def gone(self, table: str) -> Gone:
        """What has gone of a table of the model in this era, as the servers told last."""
        place = list(self._forms).index(table)
        return sum((each[place] for each in self._gone.values() if each), Gone())

    # -- a store of rows -----------------------------------------------------------------------

    @property
    def version(self) -> int:
        """See `RowStore`."""
        return self._version

    def open(self, forms: Sequence[TableForm]) -> None:
        """See `RowStore`."""
        self._forms = {form.table.name: form for form in forms}

    def close(self) -> None:
        """See `RowStore`: what is under way in other threads ends."""
        for client in self._clients:
            client.close()

    def erase(self) -> None:
        """See `RowStore`: it goes with the servers."""

    def read(self, table: str, ids: Ids, version: int | None = None) -> Rows:
        """See `RowStore`."""
        form = self._forms[table]
        found = Rows(np.zeros((len(ids), form.width), np.float32), np.zeros(len(ids), np.bool_))
        if not self._clients:
            _pick(found, ids, self.beginning.tables.get(table, ()))
            return found
        spread = spread_rows(table, ids, len(self._clients))
        for client, places in zip(self._clients, spread, strict=True):
            wanted = WantedRows(table, ids[places], form.width, version, as_stored=True)
            part = _asked(client, self._era, wanted)
            found.values[places], found.is_there[places] = part.values, part.is_there
        return found

    def commit(self, version: int, changes: Mapping[str, Change]) -> None:
        """See `RowStore`: the servers have made it."""
        assert not changes, "rows are changed where they are"
        assert version == self._version + 1, "versions follow each other"
        self._version = version

    def hold(self, version: int) -> None:
        """See `RowStore`: the servers are told with the update that would overwrite it."""
        self._holders[version] += 1

    def let_go(self, version: int) -> None:
        """See `RowStore`."""
        self._holders[version] -= 1
        if self._holders[version] <= 0:
            del self._holders[version]

    def scan(self, table: str, version: int) -> Iterator[Change]:
        """See `RowStore`."""
        if not self._clients:
            return iter(self.beginning.tables.get(table, ()))
        form = self._forms[table]
        return chain.from_iterable(
            _scanned(each, self._era, version, form) for each in self._clients
        )

    def notes(self, table: str) -> Notes:
        """See `RowStore`: which rows go is decided by the servers that have them."""
        raise AssertionError(f"notes of {table!r} are the servers' to look at")

    def load(self, version: int, tables: Mapping[str, Iterable[Change]]) -> None:
        """See `RowStore`: rows are brought to the servers when these are."""
        self.beginning = Beginning(version, tables)
        self._version = version
        self._holders.clear()

    def go_back(self, version: int) -> bool:  # noqa: ARG002 - it has none but the newest
        """See `RowStore`: an era has no way back but its end."""
        return False

    @property
    def held(self) -> Sequence[int]:
        """See `RowStore`."""
        return sorted(self._holders)

    def num_rows(self, table: str) -> int:
        """See `RowStore`: as the servers told last."""
        place = list(self._forms).index(table)
        return sum(each[place] for each in self._num_rows.values() if each)

    def size_bytes(self) -> int:
        """See `RowStore`."""
        return sum(self.num_rows(name) * (8 + 4 * form.width) for name, form in self._forms.items())


def _pick(found: Rows, ids: Ids, parts: Iterable[Change]) -> None:
    """Have in `found` the rows of these ids, of all that there are."""
    for part in parts:
        _, here, there = np.intersect1d(ids, part.ids, assume_unique=True, return_indices=True)
        found.values[here], found.is_there[here] = part.values[there], True


def _asked(client: ServerClient, era: str, wanted: WantedRows) -> Rows:
    try:
        return client.read_rows(era, wanted)
    except VersionGoneError as error:
        raise KeyError(str(error)) from error
    except RpcError as error:
        raise RowsLostError(f"a parameter server does not answer: {error}") from error


def _scanned(client: ServerClient, era: str, version: int, form: TableForm) -> Iterator[Change]:
    try:
        for part in client.scan_rows(era, version, form):
            if len(part.ids):
                yield part
    except VersionGoneError as error:
        raise KeyError(str(error)) from error
    except RpcError as error:
        raise RowsLostError(f"a parameter server does not answer: {error}") from error


class ServersWithRows(ServerParameters):
    """See `ServerParameters`; of each method what it adds for rows."""

    def __init__(
        self,
        mirror: ParameterStore,
        ring: ServerRing,
        rules: ServerRules,
        on_progress: Callable[[ServerLife], None],
        fence: Fence = NO_FENCE,
        *,
        tables: Tables,
        rows: ServerRows,
    ) -> None:
        """Take what `start` brings to the servers.

        Args:
            mirror, ring, rules, on_progress, fence: See `ServerParameters`.
            tables: Over `rows`, opened and loaded.
            rows: The books of them.

        Raises:
            ModelDefError: See `ServerParameters`.
        """
        super().__init__(mirror, ring, rules, on_progress, fence)
        self.tables = tables
        self._rows = rows
        self._held: dict[Hashable, list[int]] = {}
        self._old: dict[int, CutRows] = {}
        self._brought: Counter[tuple[int, str]] = Counter()

    def sizes(self) -> tuple[TableStatus, ...]:
        """How large the tables are, and what has gone of them in this era."""
        return tuple(map(self._with_gone, self.tables.sizes()))

    # -- where they are ------------------------------------------------------------------------

    async def start(self) -> None:
        """Bring rows as well, a part at a time."""
        await super().start()
        for table, parts in self._rows.beginning.tables.items():
            await self._put(table, parts)
        names = [form.table.name for form in self.tables.forms]
        for server in range(len(self._servers)):
            self._rows.tell(server, [self._brought[server, name] for name in names])
        for version in list(self._old):
            await self._put_old(version)
        self._rows.begin_era(self.era, [self._reader_of(each.life) for each in self._servers])

    async def close(self) -> None:
        """End what reads rows in other threads as well."""
        self._rows.close()
        await super().close()

    # -- updates -------------------------------------------------------------------------------

    async def commit(self, state_share: float = 1.0, rate_scale: float = 1.0) -> int:
        """See `ServerParameters`: the servers make rows in the same step."""
        version = await super().commit(state_share, rate_scale)
        self._rows.commit(version, {})
        return version

    # -- reading versions ----------------------------------------------------------------------

    async def keep(self, reader: Hashable) -> None:
        """Keep rows as well."""
        await super().keep(reader)
        self._hold(reader, self.version)

    async def keep_values(
        self,
        reader: Hashable,
        version: int,
        parameters: Tensors,
        state: Tensors,
        rows: CutRows | None = None,
    ) -> None:
        """Bring the servers rows of an older version, beside those that they train."""
        await super().keep_values(reader, version, parameters, state)
        assert rows is not None, "cuts of a model with tables have rows"
        self._hold(reader, version)
        self._old[version] = rows
        if self._servers:
            await self._put_old(version)

    def release(self, reader: Hashable) -> None:
        """Let rows go as well."""
        super().release(reader)
        for version in self._held.pop(reader, ()):
            self._rows.let_go(version)
            if version not in self._rows.held:
                self._old.pop(version, None)

    async def hold_rows(self) -> CutRows:
        """See `Strategy`."""
        reader = object()
        self._hold(reader, self.version)
        return self.tables.of_version(self.version, partial(self._release_rows, reader))

    async def hold_rows_since(self, version: int | None) -> CutRows:  # noqa: ARG002
        """See `Strategy`: servers do not tell which rows have changed."""
        return await self.hold_rows()

    # -- inside --------------------------------------------------------------------------------

    def _with_gone(self, size: TableStatus) -> TableStatus:
        gone = self._rows.gone(size.name)
        return size.model_copy(update={"expired": gone.expired, "evicted": gone.evicted})

    def _hold(self, reader: Hashable, version: int) -> None:
        self._rows.hold(version)
        self._held.setdefault(reader, []).append(version)

    def _release_rows(self, reader: Hashable) -> None:
        for version in self._held.pop(reader, ()):
            self._rows.let_go(version)

    def _share_of(self, server: LoadedServer, optimizer: UpdaterState) -> LoadedShare:
        index, num_servers = server.life.replica.index, len(self._servers)
        tables = tuple(
            replace(each, life=life_on(each.life, index, num_servers))
            for each in self.tables.tables
        )
        rule = self._mirror.updater.row_rule()
        return replace(super()._share_of(server, optimizer), tables=tables, row_rule=rule)

    async def _commit(self, server: LoadedServer, commit: Commit) -> Committed:
        committed = await super()._commit(server, replace(commit, held_rows=self._rows.held))
        self._rows.tell(server.life.replica.index, committed.num_rows, committed.gone)
        return committed

    def _reader_of(self, life: ServerLife) -> ServerClient:
        return ServerClient(life.address, self._rules.token, self._rules.certificate)

    async def _put_old(self, version: int) -> None:
        """Bring the values of a version, without slots; of a table without rows the word."""
        rows = self._old[version]
        for table in self.tables.tables:
            await self._put(table.name, _values(rows, table, version), version)

    async def _put(self, table: str, parts: Iterable[Change], old: int | None = None) -> None:
        """Bring a server its rows of a table.

        Raises:
            ParametersLostError: What they are read from is gone.
        """
        following = partial(next, iter(parts), None)
        while (part := await self._read(following)) is not None:
            await self._put_part(table, part, old)

    async def _read(self, following: Callable[[], Change | None]) -> Change | None:
        try:
            return await asyncio.to_thread(following)
        except OSError as error:
            raise ParametersLostError(f"rows of a cut cannot be read: {error}") from error

    async def _put_part(self, table: str, part: Change, old: int | None) -> None:
        spread = spread_rows(table, part.ids, len(self._servers))

        async def put(server: LoadedServer) -> None:
            index = server.life.replica.index
            places = spread[index]
            if old is None:
                self._brought[index, table] += len(places)
            rows = Change(part.ids[places], part.values[places])
            await self._ask(
                server,
                lambda _: server.client.put_rows(self.era, table, rows, old),
                f"taken its rows of table {table}",
                max(BULK_TIMEOUT_S, self._rules.limit_s),
            )

        await self._all(put)


def _values(rows: CutRows, table: Table, version: int) -> Iterator[Change]:
    """Values alone, and a part without rows at the least."""
    yield Change(np.empty(0, np.int64), np.empty((0, table.num_words), np.float32))
    was = next(form.table for form in rows.forms if form.table.name == table.name)
    for part in rows.scan(table.name):
        yield Change(part.ids, np.ascontiguousarray(repacked(table, was, part, version)))
