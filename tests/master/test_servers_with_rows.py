"""Rows on servers do what rows in one process do: read, held, scanned, and brought from a cut."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from support.rows import rows_of
from support.served_rows import RowShares
from support.served_shares import gradient_of, store_of

from elastic.checkpoints.contents import CutRows
from elastic.master.parameters.tables import Share, Tables
from elastic.rows.arithmetic import kernel_of
from elastic.rows.base import Change, Life, RowGradient, Table
from elastic.rows.ids import spread_rows
from elastic.rows.memory import MemoryRows
from elastic.rpc.client import VersionGoneError
from elastic.rpc.layout import SharedMemory
from elastic.rpc.rows import WantedIds, WantedRows, ahead_to_proto, rows_laid, size_of

PATIENCE_S = 300.0
RATE = 0.1
OPTIMIZER = partial(torch.optim.Adagrad, lr=RATE)
TABLES = (Table("deep", 3, "uniform(0.05)"), Table("wide", 1, "zeros"))
IDS = np.array([-(2**63), -9, -1, 0, 1, 2, 3, 5, 8, 13, 2**40, 2**63 - 1])


LIVES = {
    "for good": Life(),
    "admitted": Life(admit_after=3),
    "expired": Life(expire_after=3),
    "admitted and expired": Life(admit_after=2, expire_after=4),
}
"""Those that no server decides otherwise than one process, which has all rows."""


class ReadShares(RowShares):
    def values_at(self, version):
        """Values of the table `deep` as a worker reads them of a version."""
        found = np.empty((len(IDS), 3), np.float32)
        places = spread_rows("deep", IDS, len(self._clients))
        for client, each in zip(self._clients, places, strict=True):
            wanted = WantedRows("deep", IDS[each], 3, version)
            found[each] = client.read_rows(self.strategy.era, wanted).values
            # As a worker elsewhere has just read them, one on this machine does.
            laid = client.read_rows(self.strategy.era, wanted, reader="s0").values
            np.testing.assert_array_equal(laid, found[each])
        return found

    def values_ahead(self):
        """Values of the table `deep` as they come with the newest version."""
        found = np.empty((len(IDS), 3), np.float32)
        version = self.strategy.version
        places = spread_rows("deep", IDS, len(self._clients))
        for client, each in zip(self._clients, places, strict=True):
            wanted = [WantedIds(TABLES[0], IDS[each]), WantedIds(TABLES[1], IDS[each])]
            memory = SharedMemory(size_of(wanted))
            asked = ahead_to_proto(wanted, memory)
            share = client.pull(self.strategy.era, "s0", None, version, True, asked)
            assert (share.version, share.has_rows) == (version, True)
            found[each], _ = rows_laid(wanted, memory)
        return found


class Both:
    """The same updates of servers and of one process, whose rows are compared bit by bit."""

    def __init__(self, shares, store, one, seed):
        self.shares, self._store, self.one = shares, store, one
        self._rng = np.random.default_rng(seed)
        self.held = []

    async def update(self):
        version = self.shares.strategy.version + 1
        given = [(*gradient_of(self._store, version), 2 + each, self._rows()) for each in range(2)]
        assert await self.shares.update(*given) == version
        shares = [Share(rows, num_records) for *_, num_records, rows in given]
        self.one.store.commit(version, self.one.changes(shares, RATE, version))

    async def hold(self):
        version = self.one.store.version
        self.one.store.hold(version)
        self.held.append((version, await self.shares.hold()))

    async def let_go(self):
        if self.held:
            version, rows = self.held.pop(self._rng.integers(len(self.held)))
            rows.let_go()
            self.one.store.let_go(version)

    async def check(self):
        await asyncio.to_thread(self._check)

    def _check(self):
        for table in TABLES:
            for version in [None, *(each for each, _ in self.held)]:
                found = self.shares.tables.read(table.name, IDS, version)
                wanted = self.one.read(table.name, IDS, version)
                assert found.tobytes() == wanted.tobytes(), (table.name, version)
        ahead = self.shares.values_ahead()
        assert ahead.tobytes() == self.one.read("deep", IDS).tobytes()
        for name in [form.table.name for form in self.one.forms]:
            for version, rows in self.held:
                wanted = rows_of(self.one.of_version(version, lambda: None), name)
                found = rows_of(rows, name)
                assert found.keys() == wanted.keys()
                assert all(found[each].tobytes() == wanted[each].tobytes() for each in wanted)
        for ours, others in zip(self.shares.strategy.sizes(), self.one.sizes(), strict=True):
            assert ours == others

    def _rows(self):
        return {table.name: self._gradient(table.dim) for table in TABLES}

    def _gradient(self, dim):
        ids = np.sort(self._rng.choice(IDS, self._rng.integers(0, len(IDS)), replace=False))
        return RowGradient(ids, self._rng.normal(size=(len(ids), dim)).astype(np.float32))


def run(scenario):
    asyncio.run(asyncio.wait_for(scenario, PATIENCE_S))


@asynccontextmanager
async def served(num_servers, seed, begins_with=None, life=LIVES["for good"]):
    store, tables = store_of("torch", OPTIMIZER), [replace(each, life=life) for each in TABLES]
    one = Tables(MemoryRows(), tables, kernel_of(store.updater.row_rule()))
    one.open()
    one.begin(0, begins_with)
    shares = ReadShares(OPTIMIZER, num_servers, tables, lambda each: each.begin(0, begins_with))
    async with shares.serve(store):
        yield Both(shares, store, one, seed)


@pytest.mark.parametrize("num_servers", [1, 3])
@pytest.mark.parametrize("name", LIVES)
def test_whatever_is_updated_held_and_let_go_they_have_the_same_rows(num_servers, name):
    async def scenario():
        seed = 1 + list(LIVES).index(name)
        rng = np.random.default_rng(seed)
        async with served(num_servers, seed, life=LIVES[name]) as both:
            for step in rng.choice(["update", "update", "hold", "let_go"], 24):
                await getattr(both, step)()
                await both.check()

    run(scenario())


def begun():
    """Rows with slots, as a cut has them, in two parts."""
    values = np.arange(len(IDS) * 6, dtype=np.float32).reshape(-1, 6)
    half = len(IDS) // 2
    parts = [Change(IDS[:half], values[:half]), Change(IDS[half:], values[half:])]
    tables = Tables(
        MemoryRows(), TABLES, kernel_of(store_of("torch", OPTIMIZER).updater.row_rule())
    )
    return CutRows(tables.forms, lambda table: parts if table == "deep" else [])


@pytest.mark.parametrize("num_servers", [1, 3])
def test_they_go_on_from_the_rows_of_a_cut(num_servers):
    async def scenario():
        async with served(num_servers, 3, begun()) as both:
            await both.hold()
            await both.check()
            for _ in range(3):
                await both.update()
                await both.check()

    run(scenario())


@pytest.mark.parametrize("num_servers", [1, 3])
def test_an_older_version_is_read_beside_the_newest_until_it_is_released(num_servers):
    async def scenario():
        async with served(num_servers, 4) as both:
            strategy, mirror = both.shares.strategy, store_of("torch", OPTIMIZER).model
            await both.update()
            async with strategy.lock:
                await strategy.keep_values(
                    "reader", 77, mirror.parameters(), mirror.state(), begun()
                )
            await both.update()
            found = await asyncio.to_thread(both.shares.values_at, 77)
            assert found.tolist() == [[6.0 * row, 6 * row + 1, 6 * row + 2] for row in range(12)]
            await both.check()
            strategy.release("reader")
            await both.update()
            with pytest.raises(VersionGoneError, match="77 are not held"):
                await asyncio.to_thread(both.shares.values_at, 77)

    run(scenario())


def test_rows_of_another_size_are_refused_and_nothing_is_staged():
    async def scenario():
        async with served(2, 5) as both:
            gradients = gradient_of(store_of("torch", OPTIMIZER), 1)
            wrong = {"deep": RowGradient(IDS, np.ones((len(IDS), 2), np.float32))}
            with pytest.raises(Exception, match="a gradient of 2 numbers a row of table 'deep'"):
                await both.shares.give("s0", 1, *gradients, 3, rows=wrong)
            await both.update()
            await both.check()

    run(scenario())
