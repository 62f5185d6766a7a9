"""Rows of embeddings on a parameter server, used as by a worker and by the master."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import numpy as np

from benchmarks.master_process import TOKEN
from benchmarks.processes import Server
from benchmarks.server_process import share_builder
from elastic.rows.arithmetic import RowRule
from elastic.rows.base import Change, Ids, RowGradient, TableForm, Values
from elastic.rpc.layout import Layout, SharedMemory
from elastic.rpc.network import SocketPlace
from elastic.rpc.rows import WantedRows
from elastic.rpc.server_client import (
    AsyncServerClient,
    Commit,
    CommitId,
    Gradient,
    LoadedShare,
    ServerClient,
)

ERA: Final = "benchmark"
SESSION: Final = "worker"
NUM_RECORDS: Final = 256
LIMIT_S: Final = 60.0


class ServedRows:
    """One table on one server, beside a parameter of one number."""

    def __init__(self, address: str, form: TableForm, rule: RowRule) -> None:
        """Connect lazily.

        Args:
            address: Of the server, which is on this machine.
            form: Of the table.
            rule: By which it is updated.
        """
        self._form = form
        self._rule = rule
        self._dense = {"w": np.zeros(1, np.float32)}
        self._layout = Layout.of(self._dense)
        self._memory = SharedMemory(self._layout.size_bytes)
        self._version = 0
        self._address = address
        self._sent: ServerClient
        self._here: ServerClient
        self._master: AsyncServerClient
        self._loop = asyncio.new_event_loop()
        self._wait(self._connect(address))

    def load(self, rows: Iterable[Change]) -> None:
        """Have all rows on the server."""
        _, updater = share_builder()(self._dense, self._dense, {}, 0)
        optimizer = updater.state()
        share = LoadedShare(
            era=ERA,
            version=0,
            whole=self._dense,
            parameters=self._dense,
            state={},
            slots=optimizer.tensors,
            values=optimizer.values,
            total_steps=0,
            is_synchronous=True,
            tables=[self._form.table],
            row_rule=self._rule,
        )
        proof, failure = self._wait(self._master.load(share))
        assert not failure, failure
        self._here, self._sent = (
            ServerClient(
                self._address, TOKEN, sockets=SocketPlace.of(proof, self._address, is_here=is_here)
            )
            for is_here in (True, False)
        )
        for part in rows:
            self._wait(self._master.put_rows(ERA, self._form.table.name, part))

    def read(self, ids: Ids, *, is_shared: bool = False) -> Values:
        """Values of the newest version, sent or in memory."""
        wanted = WantedRows(self._form.table.name, ids, self._form.table.dim)
        worker = self._here if is_shared else self._sent
        return worker.read_rows(ERA, wanted, SESSION if is_shared else None).values

    def update(self, gradient: RowGradient, *, is_shared: bool = False) -> None:
        """Stage a gradient and commit it, all rows of which are kept for a version that is held."""
        held, self._version = self._version, self._version + 1
        staged = Gradient(
            era=ERA,
            session=SESSION,
            sequence=self._version,
            version=held,
            num_records=NUM_RECORDS,
            layout=self._layout,
            num_parameters=1,
            arrays=[self._dense["w"]],
            shared=self._memory.handle() if is_shared else None,
            rows={self._form.table.name: gradient},
        )
        assert (self._here if is_shared else self._sent).stage(staged)
        which = CommitId(SESSION, self._version, NUM_RECORDS, 1.0)
        commit = Commit(ERA, self._version, [which], 1.0, 0, (), held_rows=[held])
        answer = self._wait(self._master.commit(commit, LIMIT_S))
        assert not answer.failure, answer.failure

    def close(self) -> None:
        self._sent.close()
        self._here.close()
        self._wait(self._master.close())
        self._loop.close()

    async def _connect(self, address: str) -> None:
        # It belongs to the loop that runs when it is made.
        self._master = AsyncServerClient(address, TOKEN)

    def _wait(self, work: Any) -> Any:
        return self._loop.run_until_complete(work)


@contextlib.contextmanager
def served_rows(
    form: TableForm, rule: RowRule, all_rows: Callable[[], Iterable[Change]]
) -> Iterator[ServedRows]:
    """A server with all rows, which ends with this."""
    with Server("benchmarks.server_process") as server:
        rows = ServedRows(server.ready["address"], form, rule)
        rows.load(all_rows())
        try:
            yield rows
        finally:
            rows.close()
