"""Rows of embeddings for a worker's model: asked of who has them while the model computes."""

from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np

from elastic.rows.aged import AgedRows
from elastic.rows.base import Ids, RowReader, Table, Values
from elastic.rpc.client import MasterClient, Session, VersionGoneError
from elastic.rpc.rows.encoding import IDS_A_CALL
from elastic.worker.servers import ServerExchange
from elastic.worker.strategy import LeaseLostError, RowsOfVersions

KEPT_BYTES: Final = 64 << 20
"""Of rows of all tables that a worker keeps to use them again."""


class Rows(RowReader, RowsOfVersions, Protocol):
    """What a model reads and a strategy steers."""


class MasterRows:
    """Reads rows at the newest version, or at the one that is evaluated.

    The newest may be newer than the parameters that the model is filled with. Where updates wait
    for gradients, a gradient of the two is refused, for it is one of the older version.
    """

    def __init__(self, client: MasterClient) -> None:
        """Take the connection to the master."""
        self._client = client
        self._session: Session | None = None
        self._version: int | None = None

    def begin(self, session: Session) -> None:
        """Take the session that all calls are of from now on."""
        self._session, self._version = session, None

    def read_at(self, version: int | None, beside: int) -> None:  # noqa: ARG002 - newer ones will do
        """See `RowsOfVersions`."""
        self._version = version

    def read(self, table: Table, ids: Ids) -> Values:
        """See `RowReader`.

        Raises:
            LeaseLostError: The version is gone, since what it was kept for is over.
        """
        parts = [
            self._part(table, ids[begin : begin + IDS_A_CALL])
            for begin in range(0, len(ids), IDS_A_CALL)
        ]
        if len(parts) == 1:
            return parts[0]
        return np.concatenate([np.empty((0, table.dim), np.float32), *parts])

    def _part(self, table: Table, ids: Ids) -> Values:
        assert self._session is not None, "a session has begun"
        try:
            return self._client.get_rows(self._session, table, ids, self._version)
        except VersionGoneError as error:
            raise LeaseLostError from error


class RowsOnServers:
    """Reads rows from the servers that have them; see `MasterRows` for their version."""

    def __init__(self, exchange: ServerExchange) -> None:
        """Take the connections to the servers."""
        self._exchange = exchange
        self._version: int | None = None

    def begin(self, session: Session) -> None:  # noqa: ARG002 - the connections know it
        """Read the newest rows, in a session that the connections have begun."""
        self._version = None

    def read_at(self, version: int | None, beside: int) -> None:  # noqa: ARG002 - newer ones will do
        """See `RowsOfVersions`."""
        self._version = version

    def read(self, table: Table, ids: Ids) -> Values:
        """See `RowReader`.

        Raises:
            LeaseLostError: The version is gone, since what it was kept for is over.
        """
        try:
            return self._exchange.read_rows(table, ids, self._version)
        except VersionGoneError as error:
            raise LeaseLostError from error


class RowsUsedAgain:
    """Uses rows that were read a few updates ago, and asks for the others.

    What was read beside parameters of a version lacks no update up to that. So a row that is used
    lacks, of those that the parameters have, at most the last `staleness`.
    """

    def __init__(self, rows: Rows, tables: Sequence[Table], staleness: int) -> None:
        """Keep nothing yet.

        Args:
            rows: Who has them.
            tables: Of the model, at least one.
            staleness: How many updates a row may lack, > 0.
        """
        self._rows = rows
        self._tables = tables
        self._staleness = staleness
        self._kept = _none_kept(tables)
        self._is_newest = True
        self._beside = 0

    def begin(self, session: Session) -> None:
        """Forget all rows: they may be of updates that a job which goes back has never made."""
        self._rows.begin(session)
        self._kept = _none_kept(self._tables)

    def read_at(self, version: int | None, beside: int) -> None:
        """See `RowsOfVersions`: a version that is named is read as it is."""
        self._rows.read_at(version, beside)
        self._is_newest, self._beside = version is None, beside

    def read(self, table: Table, ids: Ids) -> Values:
        """See `RowReader`."""
        if not self._is_newest:
            return self._rows.read(table, ids)
        kept = self._kept[table.name]
        values, is_missing = kept.read(ids, self._beside - self._staleness)
        if is_missing.any():
            asked = ids[is_missing]
            found = self._rows.read(table, asked)
            kept.put(asked, found, self._beside)
            values[is_missing] = found
        return values


def _none_kept(tables: Sequence[Table]) -> dict[str, AgedRows]:
    room = KEPT_BYTES // len(tables)
    return {table.name: AgedRows(table.dim, room) for table in tables}
