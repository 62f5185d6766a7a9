"""Rows of embeddings for a worker's model: asked of who has them while the model computes."""

import numpy as np

from elastic.rows.base import Ids, Table, Values
from elastic.rpc.client import MasterClient, Session, VersionGoneError
from elastic.rpc.rows import IDS_A_CALL
from elastic.worker.exchange import ServerExchange
from elastic.worker.strategy import LeaseLostError


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

    def read_at(self, version: int | None) -> None:
        """Read rows of one version from now on, the newest for None."""
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

    def read_at(self, version: int | None) -> None:
        """Read rows of one version from now on, the newest for None."""
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
