"""Parameter servers of this process that have rows of embeddings as well."""

from elastic.master.parameters.servers_with_rows import ServerRows, ServersWithRows
from elastic.master.parameters.tables import Tables
from elastic.rows.arithmetic import kernel_of
from support.served_shares import Shares


def begin_without_rows(tables):
    tables.begin(0, None)


class RowShares(Shares):
    """See `Shares`.

    Attributes:
        tables: As the master has them; None before there is an era.
    """

    def __init__(self, optimizer, num_servers, tables, begin=begin_without_rows):
        """Serve nothing yet.

        Args:
            optimizer: Of torch.
            num_servers: That share the rows.
            tables: Of the model.
            begin: Told the tables of an era, to have the rows that it begins with.
        """
        super().__init__("torch", optimizer, num_servers)
        self._of_model, self._begin, self.tables = tables, begin, None

    async def begin_era(self, store):
        rows = ServerRows()
        self.tables = Tables(rows, self._of_model, kernel_of(store.updater.row_rule()))
        self.tables.open()
        self._begin(self.tables)
        self.strategy = ServersWithRows(
            store, self.ring, self.rules, lambda _: None, tables=self.tables, rows=rows
        )
        await self.strategy.start()

    async def hold(self):
        """Rows of the newest version, to be read until they are let go."""
        async with self.strategy.lock:
            return await self.strategy.hold_rows()
