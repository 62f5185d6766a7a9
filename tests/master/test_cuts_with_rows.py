"""Cuts whose rows a store holds beyond the master's life: what is held, for how long, by whom."""

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest
from support.rows import rows_of

from elastic.checkpoints.cuts import list_cuts, newest_cut, read_cut
from elastic.errors import CheckpointError
from elastic.frameworks.base import UpdaterState
from elastic.master import cutter
from elastic.master.parameters.rows import WithRows
from elastic.master.parameters.tables import Share, Tables
from elastic.master.prepare.restoring import find_held, held_versions
from elastic.rows.base import RowGradient, Table
from elastic.rows.kernels import RowRule, kernel_of
from elastic.rows.memory import MemoryRows

ITEMS = Table("items", 2, "zeros")


class LastingRows(MemoryRows):
    """Stands for a store that another process has."""

    is_durable = True


class Dense:
    """A strategy whose parameters are its version."""

    def __init__(self, version=0):
        self.version = version
        self.lock = asyncio.Lock()

    async def copy(self):
        return {"w": np.full(1, self.version, np.float32)}, {}, UpdaterState()


class World:
    """A job whose rows are updated and cut by hand; `store` outlives its masters."""

    def __init__(self, folder, store, version=0):
        self.dense = Dense(version)
        self.tables = Tables(store, [ITEMS], kernel_of(RowRule("sgd")))
        self.rows = WithRows(self.dense, self.tables)
        self.events = []
        job = SimpleNamespace(
            parameters=self.rows,
            ledger=SimpleNamespace(snapshot=lambda: None),
            updates=SimpleNamespace(loss=None),
        )
        plan = cutter.CutPlan(folder / "recovery", folder / "kept", "job", "run")
        self.cutter = cutter.Cutter(job, plan, lambda *event: self.events.append(event))

    def update(self):
        """Make a version in which row 5 is minus the version."""
        gradient = RowGradient(np.array([5], np.int64), np.ones((1, 2), np.float32))
        version = self.dense.version + 1
        share = Share({"items": gradient}, 1)
        self.rows._update_rows(version, [share], 1.0, self.rows._to_let_go)
        self.rows._to_let_go = []
        self.dense.version = version

    async def cut(self, num_updates=1):
        for _ in range(num_updates):
            self.update()
        assert await self.cutter.recovery_cut()


@pytest.fixture
def store():
    made = LastingRows()
    Tables(made, [ITEMS], kernel_of(RowRule("sgd"))).open()
    return made


def test_recovery_cuts_leave_rows_to_the_store_but_each_tenth(tmp_path, store):
    async def play():
        world, has_files = World(tmp_path, store), []
        for _ in range(cutter.WITH_ROWS_EACH + 2):
            await world.cut()
            has_files.append(bool(list(list_cuts(tmp_path / "recovery")[0].glob("rows-*"))))
        return has_files

    has_files = asyncio.run(play())
    assert has_files == [True, *[False] * (cutter.WITH_ROWS_EACH - 1), True, False]


def test_versions_are_held_as_long_as_a_recovery_cut_is_of_them(tmp_path, store):
    async def play():
        world = World(tmp_path, store)
        for _ in range(5):
            await world.cut()
        world.update()

    asyncio.run(play())
    versions = [read_cut(path).version for path in list_cuts(tmp_path / "recovery")]
    # The first has its rows itself, and stays for a store that is lost.
    assert sorted(versions) == [1, 4, 5]
    assert store.held == [4, 5]


def test_a_cut_that_cannot_be_written_holds_nothing(tmp_path, store, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    async def play():
        world = World(tmp_path, store)
        await world.cut()
        monkeypatch.setattr(cutter, "write_cut", fail)
        world.update()
        assert not await world.cutter.recovery_cut()
        world.update()

    asyncio.run(play())
    assert store.held == []


def test_the_next_master_goes_back_to_what_the_store_holds_and_lets_go_of_it_later(tmp_path, store):
    async def play():
        world = World(tmp_path, store)
        # For a reader that goes with this master.
        store.hold(0)
        for _ in range(3):
            await world.cut()
        world.update()
        assert store.version == 4
        folder = tmp_path / "recovery"
        _, cut = newest_cut(
            [folder], "run", pytest.fail, lambda *found: find_held(world.tables, *found)
        )
        assert (cut.version, store.version) == (3, 3)
        later = World(tmp_path, store, cut.version)
        later.tables.go_back(cut.version, cut.rows)
        assert later.tables.read("items", np.array([5], np.int64)).tolist() == [[-3, -3]]
        versions = held_versions(folder, cut.version)
        later.tables.let_go_but(versions)
        assert versions == store.held == [2, 3]
        later.cutter.take_over([later.rows.held_at(version) for version in versions])
        later.cutter._num_recovery_cuts = 1
        for _ in range(2):
            await later.cut()
        later.update()
        return store.held

    assert asyncio.run(play()) == [4, 5]


def test_a_checkpoint_has_the_rows_of_its_version_whatever_comes_meanwhile(tmp_path, store):
    async def play():
        world = World(tmp_path, store)
        world.update()
        assert await world.cutter.final_checkpoint()
        world.update()
        world.update()
        return read_cut(world.cutter.newest_checkpoint)

    cut = asyncio.run(play())
    assert cut.version == 1
    assert {row_id: row.tolist() for row_id, row in rows_of(cut.rows, "items").items()} == {
        5: [-1, -1]
    }
    assert store.held == []


def test_a_store_without_the_version_is_told_and_the_cut_removed(tmp_path, store):
    """Else the job would take it once it has come to that version by another way."""

    async def play():
        world = World(tmp_path, store)
        for _ in range(2):
            await world.cut()

    asyncio.run(play())
    path = list_cuts(tmp_path / "recovery")[0]
    empty = Tables(LastingRows(), [ITEMS], kernel_of(RowRule("sgd")))
    empty.open()
    with pytest.raises(
        CheckpointError, match="leaves its rows to the store, which has version 2 no"
    ):
        find_held(empty, path, read_cut(path))
    assert path not in list_cuts(tmp_path / "recovery")
