"""Parameter servers that have rows of embeddings as well: one update of each changes both.

A version of rows is one of parameters: the same staged gradients make both, on every server, and
the same loss of a server ends both.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from elastic.checkpoints.rows import CutRows
from elastic.frameworks.base import Tensors, UpdaterState
from elastic.master.parameters.ring import ServerLife, ServerRing
from elastic.master.parameters.server_rows import ServerRows
from elastic.master.parameters.servers import LoadedServer, ServerParameters, ServerRules
from elastic.master.parameters.store import ParameterStore
from elastic.master.parameters.strategy import ParametersLostError
from elastic.master.parameters.tables import Tables
from elastic.platforms.base import NO_FENCE, Fence
from elastic.rows.arithmetic.precision import repacked
from elastic.rows.base import Table
from elastic.rows.placement import life_on, spread_rows
from elastic.rows.store import Change
from elastic.rpc.client import BULK_TIMEOUT_S
from elastic.rpc.server_client import Commit, Committed, LoadedShare, ServerClient
from elastic.spec.status import TableStatus


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
