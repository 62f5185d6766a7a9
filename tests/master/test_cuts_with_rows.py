"""Cuts whose rows a store holds beyond the master's life: what is held, for how long, by whom."""

import asyncio
import itertools
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from unittest.mock import patch

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)
from support.rows import leave_rows, rows_of

from elastic.checkpoints import contents as row_files
from elastic.checkpoints.cuts import list_cuts, newest_cut, read_cut
from elastic.errors import CheckpointError
from elastic.frameworks.base import UpdaterState
from elastic.master import cutter
from elastic.master.kinds.beginning import find_held, held_versions
from elastic.master.parameters.rows import WithRows
from elastic.master.parameters.tables import Share, Tables
from elastic.rows.arithmetic import RowRule, kernel_of
from elastic.rows.base import Change, RowGradient, RowsLostError, Table
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

    def load(self, version, *_):
        self.version = version

    async def copy(self):
        return {"w": np.full(1, self.version, np.float32)}, {}, UpdaterState()


def some(ids, value=1.0, removed=()):
    """Rows of one number each."""
    ids = np.array(sorted(ids), np.int64)
    values = np.full((len(ids), 2), value, np.float32)
    return Change(ids, values, np.array(sorted(removed), np.int64))


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

    def commit(self, changes):
        """Make a version with these changes."""
        version = self.dense.version + 1
        self._make(version, changes)

    def update(self):
        """Make a version in which row 5 is minus the version."""
        gradient = RowGradient(np.array([5], np.int64), np.ones((1, 2), np.float32))
        version = self.dense.version + 1
        share = Share({"items": gradient}, 1)
        self._make(version, self.tables.changes([share], 1.0, version))

    def _make(self, version, changes):
        """As `WithRows.commit` does once the parameters have their update."""
        self.rows._commit_rows(version, changes)
        self.rows._look_after(self.rows._to_let_go)
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


def files_of(path):
    return sorted(each.name for each in path.glob("rows-*"))


def row_5(path):
    """All numbers of row 5 in a cut."""
    return rows_of(read_cut(path).rows, "items")[5].tolist()


def test_recovery_cuts_write_what_has_changed_and_the_store_holds_them(tmp_path, store):
    async def play():
        world = World(tmp_path, store)
        store.commit(1, {"items": some(range(100, 120))})
        world.dense.version = 1
        for _ in range(3):
            await world.cut()
        return world

    asyncio.run(play())
    newest, before = list_cuts(tmp_path / "recovery")
    assert files_of(before) == ["rows-000-001.bin", "rows-000.bin"]
    assert files_of(newest) == ["rows-000-001.bin", "rows-000-002.bin", "rows-000.bin"]
    assert [row_5(path) for path in (newest, before)] == [[-3, -3], [-2, -2]]
    assert (newest / "rows-000-002.bin").stat().st_size == 8 + 2 * 4
    assert store.held == [3, 4]


def test_versions_are_held_as_long_as_a_recovery_cut_is_of_them(tmp_path, store):
    async def play():
        world = World(tmp_path, store)
        for _ in range(5):
            await world.cut()
        world.update()

    asyncio.run(play())
    versions = [read_cut(path).version for path in list_cuts(tmp_path / "recovery")]
    assert sorted(versions) == [4, 5]
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


def test_rows_that_their_store_has_lost_are_no_fault_of_the_disk(tmp_path, store, monkeypatch):
    def lose(*_):
        raise RowsLostError("a server does not answer")

    async def play():
        world = World(tmp_path, store)
        await world.cut()
        monkeypatch.setattr(row_files, "_write_all", lose)
        monkeypatch.setattr(row_files, "_write_changes", lose)
        world.update()
        assert not await world.cutter.recovery_cut()
        return world.events

    [(kind, message)] = asyncio.run(play())
    assert kind == "CheckpointFailed"
    assert message.endswith("rows of 'items' are gone: a server does not answer")


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
        later.cutter.take_over([later.rows.held_at(version) for version in versions], cut)
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


@pytest.fixture
def two_cuts(tmp_path, store):
    """Of versions 1 and 2, the newest first."""

    async def play():
        world = World(tmp_path, store)
        for _ in range(2):
            await world.cut()

    asyncio.run(play())
    return list_cuts(tmp_path / "recovery")


def empty_tables():
    tables = Tables(LastingRows(), [ITEMS], kernel_of(RowRule("sgd")))
    tables.open()
    return tables


def test_a_store_without_the_version_is_loaded_with_the_files_of_the_cut(two_cuts):
    cut, tables = read_cut(two_cuts[0]), empty_tables()
    find_held(tables, two_cuts[0], cut)
    tables.go_back(cut.version, cut.rows)
    assert tables.store.version == 2
    assert tables.read("items", np.array([5], np.int64)).tolist() == [[-2, -2]]


def test_a_cut_without_files_that_the_store_has_no_more_is_told_and_removed(two_cuts):
    """Else the job would take it once it has come to that version by another way."""
    path = leave_rows(two_cuts[0])
    with pytest.raises(
        CheckpointError, match="leaves its rows to the store, which has version 2 no"
    ):
        find_held(empty_tables(), path, read_cut(path))
    assert not path.exists()
    assert two_cuts[1].exists()


# -- whatever happens ------------------------------------------------------------------------------

NUM_IDS = 12
SOME_IDS = st.sets(st.integers(0, NUM_IDS - 1), max_size=5)


class Schedules(RuleBasedStateMachine):
    """Masters come and go, and so does the store; each cut has the rows of its version."""

    @initialize(is_durable=st.booleans())
    def begin(self, is_durable):
        self.temporary = TemporaryDirectory()
        self.folder = Path(self.temporary.name)
        self.is_durable = is_durable
        self.history = {0: {}}
        self.random = itertools.count(1)
        self.life(0, None)

    def teardown(self):
        self.temporary.cleanup()

    def life(self, version, cut, store=None):
        """A master begins."""
        is_new = store is None
        store = store or (LastingRows if self.is_durable else MemoryRows)()
        self.world = World(self.folder, store, version)
        if is_new:
            self.world.tables.open()
        self.world.rows.load(version, {}, {}, None)
        if cut is not None:
            find_held(self.world.tables, cut.rows.path, cut)
            self.world.tables.go_back(version, cut.rows)
            versions = held_versions(self.folder / "recovery", version)
            self.world.tables.let_go_but(versions)
            held = [self.world.rows.held_at(each) for each in versions]
            self.world.cutter.take_over(held, cut)

    @rule(changed=SOME_IDS, removed=SOME_IDS)
    def update(self, changed, removed):
        rows, value = self.history[self.world.dense.version], float(next(self.random))
        removed -= changed
        self.world.commit({"items": some(changed, value, removed)})
        rows = {each: number for each, number in rows.items() if each not in removed}
        self.history[self.world.dense.version] = rows | dict.fromkeys(changed, value)

    @rule(is_wanted=st.booleans())
    def cut(self, is_wanted):
        assert asyncio.run(self.world.cutter.recovery_cut(is_wanted))
        self.check(list_cuts(self.folder / "recovery"))

    @rule()
    def cut_that_fails(self):
        with patch.object(cutter, "write_cut", side_effect=OSError(28, "No space left on device")):
            asyncio.run(self.world.cutter.recovery_cut(is_wanted=True))

    @rule()
    def checkpoint(self):
        assert asyncio.run(self.world.cutter.final_checkpoint())
        # Others may be of what was undone since.
        self.check([self.world.cutter.newest_checkpoint])

    @rule(is_store_lost=st.booleans())
    def lose_the_master(self, is_store_lost):
        paths = list_cuts(self.folder / "recovery")
        if not paths:
            return
        cut = read_cut(paths[0])
        is_left = self.is_durable and not is_store_lost
        self.life(cut.version, cut, self.world.tables.store if is_left else None)
        ids = np.arange(NUM_IDS)
        found = self.world.tables.store.read("items", ids)
        there = dict(
            zip(ids[found.is_there].tolist(), found.values[found.is_there, 0], strict=True)
        )
        assert there == self.history[cut.version]

    def check(self, paths):
        for path in paths:
            rows = rows_of(read_cut(path).rows, "items")
            numbers = {row_id: row[0] for row_id, row in rows.items()}
            assert numbers == self.history[read_cut(path).version]


def test_each_cut_has_the_rows_of_its_version_whatever_came_before(monkeypatch):
    monkeypatch.setattr(row_files, "MAX_CHANGES", 3)
    # A disk that loses what was written is another matter, and takes most of the time.
    monkeypatch.setattr(os, "fsync", lambda _: None)
    run_state_machine_as_test(Schedules, settings=settings(max_examples=20, deadline=None))
