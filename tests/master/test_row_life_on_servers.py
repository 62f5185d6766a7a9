"""Each server decides by its own rows: as an account of them says, also where others go on."""

import asyncio
from contextlib import asynccontextmanager
from functools import partial

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from support.row_lives import LIVES, UPDATES, Account
from support.rows import rows_of
from support.served_rows import RowShares, begin_without_rows
from support.served_shares import gradient_of, store_of

from elastic.checkpoints.contents import CutRows
from elastic.rows.base import CANDIDATES, Life, RowGradient, Table
from elastic.rows.ids import life_on, servers_of

PATIENCE_S = 300.0
NAME = "items"
OPTIMIZER = partial(torch.optim.SGD, lr=1.0)


class Job:
    """One life of a job, whose rows have the sum of the gradients that they got."""

    def __init__(self, shares, store, accounts):
        self.shares, self._store, self.accounts = shares, store, accounts

    async def update(self, ids):
        """Take 1 from the rows of these ids."""
        ids = np.array(sorted(ids), np.int64)
        rows = {NAME: RowGradient(ids, np.ones((len(ids), 2), np.float32))}
        await self.shares.update((*gradient_of(self._store, 1), 1, rows))
        servers = servers_of(NAME, ids, len(self.accounts))
        for server, account in enumerate(self.accounts):
            account.update(ids[servers == server].tolist())

    async def cut(self):
        """Rows and version as they are now, with nothing left behind."""
        held = await self.shares.hold()
        parts = {}
        for form in held.forms:
            parts[form.table.name] = await asyncio.to_thread(list, held.scan(form.table.name))
        held.let_go()
        return self.shares.strategy.version, CutRows(held.forms, parts.__getitem__)

    async def check(self):
        """See that the servers have the rows that their accounts have."""
        _, rows = await self.cut()
        found = {key: (-row[0], *noted(row)) for key, row in rows_of(rows, NAME).items()}
        # Begun anew, a row has nothing of one that was there before.
        assert all(value == count for value, count, _ in found.values())
        assert {key: row[1:] for key, row in found.items()} == merged(self.accounts, "rows")
        if len(rows.forms) > 1:
            found = {key: noted(row) for key, row in rows_of(rows, NAME + CANDIDATES).items()}
            assert found == merged(self.accounts, "candidates")


def go_back(version, rows, tables):
    tables.go_back(version, rows)


def noted(row):
    return tuple(row[-2:].view(np.int32).tolist())


def merged(accounts, what):
    together = {}
    for account in accounts:
        together |= getattr(account, what)
    return together


def split(accounts, life, num_servers):
    """The same, of other servers."""
    parts = [
        Account(life_on(life, server, num_servers), accounts[0].step)
        for server in range(num_servers)
    ]
    for what in ("rows", "candidates"):
        for key, notes in merged(accounts, what).items():
            (server,) = servers_of(NAME, np.array([key]), num_servers)
            getattr(parts[server], what)[key] = notes
    return parts


@asynccontextmanager
async def at_work(life, num_servers, accounts, cut=None):
    """A job that goes on from a cut, on so many servers."""
    store = store_of("torch", OPTIMIZER)
    begin = begin_without_rows
    if cut is not None:
        store.version = cut[0]
        begin = partial(go_back, *cut)
    shares = RowShares(OPTIMIZER, num_servers, [Table(NAME, 2, "zeros", life)], begin)
    async with shares.serve(store):
        yield Job(shares, store, split(accounts, life, num_servers))


def run(scenario):
    asyncio.run(asyncio.wait_for(scenario, PATIENCE_S))


def are_enough(life):
    return life.max_rows is None or life.max_rows >= 3


@settings(max_examples=25)
@given(
    LIVES.filter(are_enough),
    UPDATES,
    st.integers(0, 40),
    st.sampled_from([(3, 3), (1, 3), (3, 2), (3, 1)]),
)
@example(Life(3, 20), [set(range(20))] * 4, 1, (3, 2))
def test_rows_live_as_the_accounts_say_however_many_servers_go_on(life, updates, restart, numbers):
    async def scenario():
        accounts, cut = [Account(life)], None
        for number, some in zip(numbers, (updates[:restart], updates[restart:]), strict=True):
            async with at_work(life, number, accounts, cut) as job:
                for ids in some:
                    await job.update(ids)
                    await job.check()
                accounts, cut = job.accounts, await job.cut()

    run(scenario())


def test_a_job_that_goes_back_decides_as_it_has():
    life = Life(max_rows=12)
    rng = np.random.default_rng(1)
    updates = [rng.choice(40, 6, replace=False) for _ in range(12)]

    async def go(job, some):
        for ids in some:
            await job.update(ids.tolist())
        return merged(job.accounts, "rows"), (await job.cut())[1]

    async def scenario():
        async with at_work(life, 3, [Account(life)]) as job:
            await go(job, updates[:4])
            accounts, cut = split(job.accounts, life, 3), await job.cut()
            wanted, first = await go(job, updates[4:])
        async with at_work(life, 3, accounts, cut) as job:
            found, second = await go(job, updates[4:])
            await job.check()
        assert found == wanted
        assert as_bytes(first) == as_bytes(second)

    run(scenario())


def as_bytes(rows):
    return {key: row.tobytes() for key, row in rows_of(rows, NAME).items()}


@pytest.mark.parametrize("num_servers", [1, 3])
def test_all_servers_together_have_no_more_rows_than_the_table_may_have(num_servers):
    life = Life(max_rows=31)

    async def scenario():
        async with at_work(life, num_servers, [Account(life)]) as job:
            for start in range(0, 200, 20):
                await job.update(range(start, start + 20))
                (size,) = job.shares.strategy.sizes()
                assert size.rows <= 31
            assert size.rows + size.evicted == 200
            assert size.rows > 31 * 3 // 4

    run(scenario())
