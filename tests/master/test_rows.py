"""Rows beside the parameters: one update changes both by the average of its records, or neither."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from elastic.errors import CheckpointError, TrainingError
from elastic.master.parameters.rows import WithRows
from elastic.master.parameters.strategy import Incoming, ParametersLostError
from elastic.master.parameters.tables import Share, Tables
from elastic.rows.arithmetic import RowRule, first_rows, kernel_of
from elastic.rows.base import RowGradient, RowsLostError, Table
from elastic.rows.memory import MemoryRows

ITEMS = Table("items", 2, "normal(1)")
RATE = 0.5


class Dense:
    """The strategy inside: it counts, and fails where it is told to."""

    def __init__(self):
        self.version = 0
        self.lock = asyncio.Lock()
        self.learning_rate = RATE
        self.fault = None
        self.staged = []
        self.kept = set()

    async def receive(self, incoming):
        incoming.check_no_rows()
        return incoming

    def stage(self, contribution, learning_rate_scale):
        self.staged.append(contribution)

    async def commit(self, state_share, rate_scale):
        self.staged = []
        if self.fault is not None:
            raise self.fault
        self.version += 1
        self.applied_learning_rate = self.learning_rate
        # As with a schedule, whose rate after the update is the next one's.
        self.learning_rate /= 2
        return self.version

    def drop_staged(self):
        self.staged = []

    async def keep(self, reader):
        self.kept.add(reader)

    def release(self, reader):
        self.kept.discard(reader)

    async def copy(self):
        return {}, {}, None

    async def lost(self):
        await asyncio.Event().wait()


class FailingRows(MemoryRows):
    """A store whose next commit fails."""

    fault = None

    def commit(self, version, changes):
        if self.fault is not None:
            raise self.fault
        super().commit(version, changes)


def beside(dense, store=None, kind="sgd", folder=None):
    tables = Tables(store or MemoryRows(), [ITEMS], kernel_of(RowRule(kind)))
    tables.open()
    return WithRows(dense, tables, folder)


def gradient(*ids, value=1.0):
    return RowGradient(np.array(ids, np.int64), np.full((len(ids), 2), value, np.float32))


async def stage(rows, num_records, gradients, scale=1.0):
    incoming = Incoming("session", num_records, None, None, None, None, rows=gradients)
    rows.stage(await rows.receive(incoming), scale)


def first(*ids):
    return first_rows(ITEMS, np.array(ids, np.int64))


def read(rows, *ids, version=None):
    return rows.tables.read("items", np.array(ids, np.int64), version)


def test_a_group_changes_rows_by_its_records():
    """Id 5 is in one of the two minibatches alone: the other counts 0 for it."""

    async def play():
        rows = beside(Dense())
        await stage(rows, 3, {"items": gradient(5, 7, value=1.0)})
        await stage(rows, 1, {"items": gradient(7, value=5.0)})
        assert await rows.commit() == 1
        return read(rows, 5, 7, 9) - first(5, 7, 9)

    moved = asyncio.run(play())
    np.testing.assert_allclose(moved[:, 0], [-RATE * 3 / 4, -RATE * 2, 0], rtol=1e-6)


def test_the_rate_is_that_of_the_update_with_its_scale():
    async def play():
        rows = beside(Dense())
        for _ in range(2):
            await stage(rows, 1, {"items": gradient(5)}, scale=0.1)
            await rows.commit()
        return read(rows, 5) - first(5)

    np.testing.assert_allclose(asyncio.run(play())[0, 0], -(RATE + RATE / 2) * 0.1, rtol=1e-5)


def test_the_rate_of_a_whole_update_is_scaled_too():
    async def play():
        rows = beside(Dense())
        await stage(rows, 1, {"items": gradient(5)}, scale=0.1)
        await rows.commit(rate_scale=3.0)
        return read(rows, 5) - first(5)

    np.testing.assert_allclose(asyncio.run(play())[0, 0], -RATE * 0.3, rtol=1e-5)


def test_adam_counts_the_version_that_is_made():
    """Its first step is as long as the rate, where the step is 1."""

    async def play():
        rows = beside(Dense(), kind="adam")
        await stage(rows, 1, {"items": gradient(5, value=0.01)})
        await rows.commit()
        return read(rows, 5) - first(5)

    np.testing.assert_allclose(asyncio.run(play())[0], -RATE, rtol=1e-4)


def test_an_update_of_no_row_makes_a_version_of_rows():
    async def play():
        rows = beside(Dense())
        await stage(rows, 1, {})
        await rows.commit()
        await stage(rows, 1, {"items": gradient()})
        await rows.commit()
        return rows.tables.store.version

    assert asyncio.run(play()) == 2


def test_a_dropped_group_leaves_rows_as_they_are():
    async def play():
        rows = beside(Dense())
        await stage(rows, 1, {"items": gradient(5)})
        rows.drop_staged()
        await stage(rows, 1, {"items": gradient(6)})
        await rows.commit()
        return read(rows, 5) - first(5)

    assert not asyncio.run(play()).any()


def test_an_optimizer_that_fails_changes_no_row():
    async def play():
        dense = Dense()
        rows = beside(dense)
        dense.fault = TrainingError("of the user")
        await stage(rows, 1, {"items": gradient(5)})
        with pytest.raises(TrainingError, match="of the user"):
            await rows.commit()
        return rows.tables.store.version, read(rows, 5) - first(5)

    version, moved = asyncio.run(play())
    assert version == 0
    assert not moved.any()


def test_lost_rows_are_lost_parameters():
    """Whoever waits for a loss hears why."""

    async def play():
        store = FailingRows()
        rows = beside(Dense(), store)
        waiting = asyncio.ensure_future(rows.lost())
        store.fault = RowsLostError("the store has gone")
        await stage(rows, 1, {"items": gradient(5)})
        with pytest.raises(ParametersLostError, match="the store has gone"):
            await rows.commit()
        return await waiting

    assert asyncio.run(play()) == "the store has gone"


@pytest.mark.parametrize("fault", [RowsLostError("it has gone"), TrainingError("it is full")])
def test_neither_cut_nor_update_is_made_of_parameters_whose_rows_were_not_stored(fault):
    """They are a version ahead of the rows and of the account of records."""

    async def play():
        store = FailingRows()
        rows = beside(Dense(), store)
        await stage(rows, 1, {"items": gradient(5)})
        await rows.commit()
        await rows.copy()
        store.fault = fault
        await stage(rows, 1, {"items": gradient(5)})
        with pytest.raises((ParametersLostError, TrainingError)):
            await rows.commit()
        with pytest.raises(ParametersLostError, match="rows of version 2 were not stored"):
            await rows.copy()
        store.fault = None
        await stage(rows, 1, {"items": gradient(5)})
        with pytest.raises(ParametersLostError, match="rows of version 2 were not stored"):
            await rows.commit()

    asyncio.run(play())


def test_a_version_is_read_until_nobody_keeps_it():
    async def play():
        rows = beside(Dense())
        ids = np.array([5, 6], np.int64)
        for _ in range(2):
            await stage(rows, 1, {"items": gradient(5)})
            await rows.commit()
        async with rows.lock:
            await rows.keep("evaluation")
            held = await rows.hold_rows()
        kept = await rows.rows("items", ids, 2)
        await stage(rows, 1, {"items": gradient(5, 6)})
        await rows.commit()
        np.testing.assert_array_equal(await rows.rows("items", ids, 2), kept)
        assert (await rows.rows("items", ids) != kept).all()
        rows.release("evaluation")
        (part,) = held.scan("items")
        assert part.ids.tolist() == [5]
        np.testing.assert_array_equal(await rows.rows("items", ids, 2), kept)
        held.let_go()
        return await rows.rows("items", ids, 2)

    assert asyncio.run(play()) is None


@pytest.mark.parametrize("is_in_files", [False, True])
def test_an_older_version_is_kept_by_its_rows(is_in_files, tmp_path):
    folder = tmp_path if is_in_files else None

    class Kept(Dense):
        async def keep_values(self, reader, version, parameters, state):
            self.kept.add(reader)

    async def play():
        rows = beside(Kept())
        await stage(rows, 1, {"items": gradient(5)})
        await rows.commit()
        async with rows.lock:
            held = await rows.hold_rows()
        old = await rows.rows("items", np.array([5, 6], np.int64))
        await stage(rows, 1, {"items": gradient(5)})
        await rows.commit()
        later = beside(Kept(), folder=folder)
        await later.keep_values("round", 1, {}, {}, held)
        assert later._old[1].store.folder == folder
        read_again = await later.rows("items", np.array([5, 6], np.int64), 1)
        np.testing.assert_array_equal(read_again, old)
        later.release("round")
        return await later.rows("items", np.array([5, 6], np.int64), 1)

    assert asyncio.run(play()) is None


WRONG = {
    "unknown-table": ({"others": gradient(5)}, "the model has no table 'others'"),
    "width": (
        {"items": RowGradient(np.array([5]), np.ones((1, 3), np.float32))},
        "a gradient of 3 numbers a row of table 'items', which has 2",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_rows_of_no_table_of_the_model_are_refused(case):
    rows, message = WRONG[case]
    with pytest.raises(ValueError, match=message):
        asyncio.run(stage(beside(Dense()), 1, rows))


def test_a_model_without_tables_takes_no_rows():
    incoming = Incoming("session", 1, None, None, None, None, rows={"items": gradient(5)})
    with pytest.raises(ValueError, match="rows of items, and the model has no such table"):
        incoming.check_no_rows()


# -- cuts of another job ---------------------------------------------------------------------------


def held(tables):
    tables.store.hold(tables.store.version)
    return tables.of_version(tables.store.version, lambda: None)


def opened(table=ITEMS, kind="sgd"):
    tables = Tables(MemoryRows(), [table], kernel_of(RowRule(kind)))
    tables.open()
    return tables


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (None, "it has no rows of embeddings"),
        (held(opened(Table("items", 3, "normal(1)"))), r"are items\[3\] normal\(1\), this"),
        (held(opened(Table("items", 2, "zeros"))), r"items\[2\] zeros, this model's are items"),
        (held(opened(kind="adam")), "of an optimizer with the slots .*, this job's has no slots"),
    ],
    ids=["none", "dim", "initializer", "optimizer"],
)
def test_rows_of_another_model_or_optimizer_are_refused(rows, message):
    with pytest.raises(CheckpointError, match=message):
        opened().go_back(3, rows)


def test_a_job_that_begins_with_rows_begins_their_slots():
    given = opened(kind="adam")
    changes = given.changes([Share({"items": gradient(5)}, 1)], RATE, 1)
    given.store.commit(1, changes)
    tables = opened(kind="adam")
    tables.begin(0, held(given))
    found = tables.store.read("items", np.array([5], np.int64))
    np.testing.assert_array_equal(found.values[:, :2], changes["items"].values[:, :2])
    assert not found.values[:, 2:].any()
    assert changes["items"].values[:, 2:].any()


NARROW = ["bfloat16", "int8"]


@pytest.mark.parametrize("row_dtype", NARROW)
def test_rows_in_fewer_bits_follow_those_in_float32(row_dtype):
    """Slots are the same; a job that goes back to a cut has all as it was, bit by bit."""

    def trained(tables, steps):
        for step in steps:
            share = Share({"items": gradient(5, 7, value=1.0 + step % 3)}, 1)
            changes = tables.changes([share], RATE / 10, step)
            tables.store.commit(step, changes)
        return tables

    narrow = replace(ITEMS, row_dtype=row_dtype)
    tables, wide = (
        trained(opened(narrow, "adam"), range(1, 11)),
        trained(opened(kind="adam"), range(1, 11)),
    )
    ids = np.array([5, 7, 9], np.int64)
    found, wanted = tables.read("items", ids), wide.read("items", ids)
    np.testing.assert_allclose(found[:2], wanted[:2], atol=0.1 * np.abs(wanted).max())
    np.testing.assert_array_equal(found[2], wanted[2])
    np.testing.assert_array_equal(
        tables.store.read("items", ids).values[:, narrow.num_words :],
        wide.store.read("items", ids).values[:, ITEMS.dim :],
    )
    cut = held(tables)
    again = opened(narrow, "adam")
    again.go_back(10, cut)
    for each in (tables, again):
        trained(each, range(11, 14))
    assert (
        again.store.read("items", ids).values.tobytes()
        == tables.store.read("items", ids).values.tobytes()
    )


@pytest.mark.parametrize("row_dtype", NARROW)
def test_a_job_goes_on_with_rows_of_another_dtype(row_dtype):
    narrow = replace(ITEMS, row_dtype=row_dtype)
    ids = np.array([5, 7], np.int64)
    for before, after in ((ITEMS, narrow), (narrow, ITEMS)):
        first_job, goes_on, begins = (opened(each, "adam") for each in (before, after, after))
        first_job.store.commit(1, first_job.changes([Share({"items": gradient(5, 7)}, 1)], RATE, 1))
        goes_on.go_back(1, held(first_job))
        begins.begin(1, held(first_job))
        wanted = first_job.read("items", ids)
        for each in (goes_on, begins):
            np.testing.assert_allclose(each.read("items", ids), wanted, rtol=0.02, atol=0.02)
        slots = goes_on.store.read("items", ids).values[:, after.num_words :]
        assert (
            slots.tobytes()
            == first_job.store.read("items", ids).values[:, before.num_words :].tobytes()
        )
        assert not begins.store.read("items", ids).values[:, after.num_words :].any()


@pytest.mark.parametrize(
    ("row_dtype", "num_bytes"), [("float32", 24), ("bfloat16", 20), ("int8", 24)]
)
def test_the_bytes_of_a_row_are_told_as_they_are_stored(row_dtype, num_bytes):
    """Of 2 numbers, one slot and the id: of so few int8 spares nothing, for it has a scale."""
    tables = opened(replace(ITEMS, row_dtype=row_dtype), "adagrad")
    tables.store.commit(1, tables.changes([Share({"items": gradient(5)}, 1)], RATE, 1))
    (size,) = tables.sizes()
    assert (size.rows, size.size_bytes) == (1, num_bytes)
