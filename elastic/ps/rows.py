"""The rows of embeddings that a parameter server has of each table: one version, and those held."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

import grpc

from elastic.errors import TrainingError
from elastic.master.parameters.tables import Share, Tables
from elastic.rows.arithmetic import kernel_of
from elastic.rows.base import Gone, Ids, RowGradients, Rows, Table, TableForm, Values
from elastic.rows.memory import MemoryRows
from elastic.rpc import elastic_pb2 as pb
from elastic.rpc.layout import Mappings
from elastic.rpc.rows import (
    RowsError,
    gradients_from_memory,
    gradients_from_proto,
    ids_from_bytes,
    lay_rows,
    lay_values,
    rows_put,
    rule_from_proto,
    scan_reply,
    table_from_proto,
    values_to_bytes,
    values_to_view,
    wanted_of_proto,
)
from elastic.rpc.server import malformed
from elastic.rpc.wire import CallRefusedError, Pieces, encode_data

INLINE_IDS: Final = 16_384
"""Below this, rows are worked on at once: a thread costs 0.3 ms more, as much as it takes to read
them, and the interpreter does little else meanwhile."""

R = TypeVar("R")


class ServedRows:
    """Tables of one era, whose newest version is that of the parameters beside them."""

    def __init__(self, tables: Tables, store: MemoryRows) -> None:
        """Take tables over a store of this process; `of` makes both."""
        self._tables = tables
        self._store = store
        self._old: dict[int, tuple[Tables, MemoryRows]] = {}
        self._memory: dict[str, Mappings] = {}

    @classmethod
    def of(cls, header: pb.LoadHeader) -> "ServedRows":
        """The tables that a load names, without rows yet.

        Raises:
            ModelDefError: There is no such rule.
        """
        tables = list(map(table_from_proto, header.tables))
        rule = rule_from_proto(header.row_rule) if header.HasField("row_rule") else None
        store = MemoryRows()
        opened = Tables(store, tables, None if rule is None else kernel_of(rule))
        opened.open()
        store.load(header.version, {})
        return cls(opened, store)

    def checked(self, header: pb.StageHeader) -> RowGradients:
        """Gradients that have come, or lie in the worker's memory.

        Raises:
            LayoutError, RowsError: They are not of rows that there can be.
        """
        if header.HasField("shared_rows"):
            shared = header.shared_rows
            gradients = gradients_from_memory(
                shared, self._memory_of(header.session).get(shared.buffer)
            )
        else:
            gradients = gradients_from_proto(header.rows)
        try:
            self._tables.check(gradients)
        except ValueError as error:
            raise RowsError(str(error)) from error
        return gradients

    def left(self, session: str) -> None:
        """Map memory of a worker no longer, whose session has ended."""
        self._memory.pop(session, None)

    def num_rows(self) -> list[int]:
        """Rows of each table at the newest version."""
        return [self._store.num_rows(form.table.name) for form in self._tables.forms]

    def gone(self) -> list[Gone]:
        """What has gone of each table of the model in this era."""
        return [self._tables.gone[table.name] for table in self._tables.tables]

    # -- updates -------------------------------------------------------------------------------

    def hold_only(self, versions: Sequence[int]) -> None:
        """Hold these, of which the newest may be one, and no others."""
        for version in set(self._store.held).difference(versions):
            self._store.let_go(version)
        for version in self._old.keys() - set(versions):
            del self._old[version]
        if self._store.version in versions:
            self.hold(self._store.version)

    async def update(self, shares: Sequence[Share], learning_rate: float, version: int) -> None:
        """Make the rows of a version out of its gradients.

        Raises:
            TrainingError: There is no memory for them.
        """
        num_rows = self._tables.num_worked_on(shares, version)
        try:
            await _run(partial(self._update, shares, learning_rate, version), num_rows)
        except MemoryError as error:
            raise TrainingError(
                f"a parameter server has no memory left for the rows of version {version} "
                f"({error}): give servers more, or more servers by --num_ps"
            ) from error

    def _update(self, shares: Sequence[Share], learning_rate: float, version: int) -> None:
        changes = self._tables.changes(shares, learning_rate, version)
        self._store.commit(version, changes)

    # -- reading versions ----------------------------------------------------------------------

    def is_held(self, version: int) -> bool:
        """Whether a version stays readable whatever is committed."""
        return version in self._store.held

    def hold(self, version: int) -> None:
        """Keep a version until `hold_only` leaves it out.

        Raises:
            CallRefusedError: It is overwritten already.
        """
        if self.is_held(version):
            return
        try:
            self._store.hold(version)
        except KeyError as error:
            raise _gone(version) from error

    async def put(self, request: pb.PutRowsRequest) -> None:
        """Take rows that somebody else has kept."""
        is_old = request.HasField("old_version")
        tables, store = self._old_tables(request.old_version) if is_old else self._newest
        try:
            rows = rows_put(request, _form_of(tables, request.table).width)
        except RowsError as error:
            raise malformed(str(error)) from error
        await _run(partial(store.fill, request.table, rows), len(rows.ids))

    async def read(self, request: pb.ReadRowsRequest) -> pb.ReadRowsReply | Pieces:
        """Rows as they are asked for, values alone as they are on the wire."""
        version = request.version if request.HasField("version") else None
        try:
            ids = ids_from_bytes(request.ids)
            rows = await _run(partial(self._read, request, ids, version), len(ids))
        except KeyError as error:
            raise _gone(version) from error
        except ValueError as error:
            raise malformed(str(error)) from error
        if request.HasField("buffer"):
            return self._laid(request, rows.values)
        if not request.as_stored:
            return encode_data([values_to_view(rows.values)])
        is_there = rows.is_there.tobytes()
        return pb.ReadRowsReply(values=values_to_bytes(rows.values), is_there=is_there)

    async def lay_ahead(self, session: str, ahead: pb.RowsAhead) -> None:
        """Lay newest rows into a worker's memory, for the minibatch that it computes next."""
        try:
            wanted = wanted_of_proto(ahead)
            read = partial(self._read_newest, wanted)
            rows = await _run(read, sum(len(ids) for _, ids in wanted))
            lay_rows(rows, self._memory_of(session).get(ahead.buffer))
        except ValueError as error:
            raise malformed(str(error)) from error

    def _read_newest(self, wanted: Sequence[tuple[str, Ids]]) -> list[Values]:
        return [self._values(*self._newest, table, ids, None).values for table, ids in wanted]

    def _laid(self, request: pb.ReadRowsRequest, values: Values) -> pb.ReadRowsReply:
        """Answer with values in the worker's memory."""
        try:
            lay_values(values, self._memory_of(request.session).get(request.buffer))
        except RowsError as error:
            raise malformed(str(error)) from error
        return pb.ReadRowsReply()

    def _read(self, request: pb.ReadRowsRequest, ids: Ids, version: int | None) -> Rows:
        tables, store = self._newest
        if version in self._old:
            (tables, store), version = self._old[version], None
        if request.as_stored:
            return store.read(_form_of(tables, request.table).table.name, ids, version)
        return self._values(tables, store, request.table, ids, version)

    def _values(
        self, tables: Tables, store: MemoryRows, table: str, ids: Ids, version: int | None
    ) -> Rows:
        found = store.read_values(table, ids, tables.table(table).num_words, version)
        return Rows(tables.begun(table, ids, found), found.is_there)

    async def scan(self, request: pb.ScanRowsRequest) -> pb.ScanRowsReply:
        """Some rows of a version that is held."""
        try:
            name = _form_of(self._tables, request.table).table.name
            part = partial(self._store.part, name, request.version, request.start)
            return scan_reply(*await asyncio.to_thread(part))
        except KeyError as error:
            raise _gone(request.version) from error
        except ValueError as error:
            raise malformed(str(error)) from error

    # -- inside --------------------------------------------------------------------------------

    def _memory_of(self, session: str) -> Mappings:
        return self._memory.setdefault(session, Mappings())

    @property
    def _newest(self) -> tuple[Tables, MemoryRows]:
        return self._tables, self._store

    def _old_tables(self, version: int) -> tuple[Tables, MemoryRows]:
        if version not in self._old:
            self._old[version] = _opened(self._tables.tables)
        return self._old[version]


def _opened(tables: Sequence[Table]) -> tuple[Tables, MemoryRows]:
    """Tables of which only values are read."""
    store = MemoryRows()
    opened = Tables(store, tables)
    opened.open()
    return opened, store


def _form_of(tables: Tables, name: str) -> TableForm:
    """A table that has rows here, or of ids that have none yet.

    Raises:
        CallRefusedError: There is none of this name.
    """
    for form in tables.forms:
        if form.table.name == name:
            return form
    raise malformed(f"rows of table {name!r}, and there is none")


def _gone(version: int | None) -> CallRefusedError:
    return CallRefusedError(
        grpc.StatusCode.NOT_FOUND, f"rows of version {version} are not held any more"
    )


async def _run(work: Callable[[], R], num_rows: int) -> R:
    if num_rows < INLINE_IDS:
        return work()
    return await asyncio.to_thread(work)
