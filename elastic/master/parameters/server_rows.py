"""Rows of embeddings on parameter servers, as the master has them: by its books, and page by page.

The servers update rows together with their shares of the parameters. Here is known which versions
somebody still reads, which each commit tells them, and from where the rows come that an era begins
with.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from elastic.errors import RpcError
from elastic.rows.base import Ids
from elastic.rows.life import Gone
from elastic.rows.placement import spread_rows
from elastic.rows.store import Change, Notes, Rows, RowsLostError, TableForm
from elastic.rpc.client import VersionGoneError
from elastic.rpc.rows.servers import WantedRows
from elastic.rpc.server_client import ServerClient


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
