"""What every `RowStore` must do; each implementation runs this suite."""

from threading import Event, Thread
from typing import Protocol

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from elastic.rows.base import Change, RowsLostError, RowStore, Table, TableForm

TABLE = TableForm(Table("deep", 3, "uniform(0.05)"), ("moment",), ("count", "seen"))
OTHER = TableForm(Table("wide", 1, "zeros"))
FORMS = (TABLE, OTHER)
DIM = TABLE.width
EXTREMES = [np.iinfo(np.int64).min, -1, 0, np.iinfo(np.int64).max]


class Harness(Protocol):
    """Makes stores, each of which knows nothing of those before."""

    def opened(self, forms=FORMS) -> RowStore:
        """A store that has been opened."""


def ids_of(ids):
    """Strictly ascending."""
    return np.unique(np.asarray(list(ids), np.int64))


def rows_of(ids, value, width=DIM, removed=()):
    """These rows, each with this number in all places, and without those."""
    ids = ids_of(ids)
    return Change(ids, np.full((len(ids), width), value, np.float32), ids_of(removed))


def numbers(store, ids, version=None, table="deep"):
    """The first number of each row; None where it is not there."""
    rows = store.read(table, np.asarray(ids, np.int64), version)
    first = rows.values[:, 0].tolist()
    return [value if there else None for value, there in zip(first, rows.is_there, strict=True)]


def scanned(store, version, table="deep"):
    """All rows of a held version: the first number by id, each id once."""
    found = {}
    for part in store.scan(table, version):
        assert np.all(part.ids[1:] > part.ids[:-1])
        assert not found.keys() & set(part.ids.tolist())
        found |= zip(part.ids.tolist(), part.values[:, 0].tolist(), strict=True)
    return found


def noted(store):
    """The last note of each row, by id, as the number that the row has everywhere."""
    notes = store.notes("deep")
    assert notes.numbers.shape == (len(notes.ids), TABLE.num_notes)
    last = np.ascontiguousarray(notes.numbers[:, -1]).view(np.float32)
    return dict(zip(notes.ids.tolist(), last.tolist(), strict=True))


def make(store, **tables):
    """One commit of these tables."""
    store.commit(store.version + 1, tables)


class RowStoreContract:
    @pytest.fixture
    def harness(self):
        raise NotImplementedError

    @pytest.fixture
    def store(self, harness):
        return harness.opened()

    def test_it_begins_at_version_0_without_rows(self, store):
        assert store.version == 0
        assert numbers(store, EXTREMES) == [None] * 4
        assert store.num_rows("deep") == 0
        assert not store.read("deep", np.asarray([5])).values.any()

    def test_it_has_what_was_committed_slots_included(self, store):
        values = np.arange(4 * DIM, dtype=np.float32).reshape(4, DIM)
        make(store, deep=Change(np.asarray(EXTREMES), values))
        rows = store.read("deep", np.asarray([-7, -1, 0, 8]))
        assert rows.is_there.tolist() == [False, True, True, False]
        assert rows.values[1:3].tolist() == values[1:3].tolist()
        assert store.num_rows("deep") == 4

    def test_it_keeps_numbers_as_they_are(self, store):
        values = np.asarray([[0.1, -0.0, 1e-42, np.inf, 3e38, np.nan, 0, 1]], np.float32)
        make(store, deep=Change(np.asarray([1]), values))
        assert store.read("deep", np.asarray([1])).values.tobytes() == values.tobytes()

    def test_it_keeps_every_bit_wherever_rows_go(self, store):
        """Some words are numbers of half the size or a quarter, and not one of them is changed."""
        bits = np.random.default_rng(6).integers(0, 2**32, (500, DIM), np.uint32)
        bits[0] = [0x7F800001, 0xFF812345, 0x7FFFFFFF, 0xFFFFFFFF, 1, 0x80000000, 0, 0x7FC00000]
        change = Change(np.arange(500), bits.view(np.float32))
        make(store, deep=change)
        store.hold(1)
        make(store, deep=rows_of(range(400), 5))
        held = store.read("deep", change.ids, 1)
        parts = list(store.scan("deep", 1))
        order = np.argsort(np.concatenate([part.ids for part in parts]))
        whole = np.concatenate([part.values for part in parts])[order]
        store.load(7, {"deep": parts})
        loaded = store.read("deep", change.ids)
        for values in (held.values, whole, loaded.values):
            assert values.tobytes() == bits.tobytes()

    def test_tables_have_nothing_to_do_with_each_other(self, store):
        make(store, deep=rows_of([1], 5), wide=rows_of([1, 2], 6, 1))
        assert numbers(store, [1, 2]) == [5, None]
        assert numbers(store, [1, 2], table="wide") == [6, 6]

    def test_a_read_is_the_callers(self, store):
        make(store, deep=rows_of([1], 5))
        store.read("deep", np.asarray([1])).values[:] = 9
        assert numbers(store, [1]) == [5]

    def test_a_commit_without_rows_is_a_version(self, store):
        make(store)
        assert store.version == 1

    def test_versions_follow_each_other(self, store):
        make(store, deep=rows_of([1], 5))
        for version in (0, 1, 3):
            with pytest.raises(RowsLostError):
                store.commit(version, {"deep": rows_of([1], 9)})
        assert (store.version, numbers(store, [1])) == (1, [5])

    def test_a_held_version_stays_as_it_was(self, store):
        make(store, deep=rows_of([1, 2], 5))
        store.hold(1)
        make(store, deep=rows_of([2, 3], 6))
        make(store, deep=rows_of([2, 3], 7))
        assert numbers(store, [1, 2, 3], version=1) == [5, 5, None]
        assert numbers(store, [1, 2, 3]) == numbers(store, [1, 2, 3], version=3) == [5, 7, 7]
        assert scanned(store, 1) == {1: 5, 2: 5}

    def test_several_versions_are_held_at_once(self, store):
        make(store, deep=rows_of([1], 1))
        store.hold(1)
        make(store, deep=rows_of([1, 2], 2))
        store.hold(2)
        make(store, deep=rows_of([1, 2, 3], 3))
        assert scanned(store, 1) == {1: 1}
        assert scanned(store, 2) == {1: 2, 2: 2}
        store.let_go(1)
        assert numbers(store, [1, 2, 3], version=2) == [2, 2, None]

    def test_it_tells_which_versions_are_held(self, store):
        store.hold(0)
        store.hold(0)
        make(store, deep=rows_of([1], 1))
        make(store, deep=rows_of([1], 2))
        store.hold(2)
        assert store.held == [0, 2]
        store.let_go(0)
        store.let_go(2)
        assert store.held == [0]
        assert store.go_back(0)
        store.load(5, {})
        assert store.held == []

    def test_the_last_of_its_holders_lets_a_version_go(self, store):
        store.hold(0)
        store.hold(0)
        make(store, deep=rows_of([1], 5))
        store.hold(0)
        store.let_go(0)
        store.let_go(0)
        assert numbers(store, [1], version=0) == [None]
        store.let_go(0)
        self._assert_not_held(store, 0)

    def test_what_is_not_held_cannot_be_read(self, store):
        make(store)
        make(store)
        for version in (0, 1, 3):
            self._assert_not_held(store, version)
            with pytest.raises(KeyError):
                store.hold(version)

    def _assert_not_held(self, store, version):
        with pytest.raises(KeyError):
            store.read("deep", np.asarray([1]), version)
        with pytest.raises(KeyError):
            list(store.scan("deep", version))

    def test_it_goes_back_to_the_older_of_two(self, store):
        make(store, deep=rows_of([1, 2], 1))
        store.hold(1)
        make(store, deep=rows_of([2, 3], 2))
        store.hold(2)
        make(store, deep=rows_of([1, 3, 4], 3))
        assert store.go_back(1)
        assert (store.version, store.num_rows("deep")) == (1, 2)
        assert numbers(store, [1, 2, 3, 4]) == [1, 1, None, None]
        self._assert_not_held(store, 2)

    def test_it_goes_back_to_the_newer_of_two_and_then_to_the_other(self, store):
        store.hold(0)
        make(store, deep=rows_of([1], 1))
        store.hold(1)
        make(store, deep=rows_of([1, 2], 2))
        assert store.go_back(1)
        assert scanned(store, 1) == {1: 1}
        make(store, deep=rows_of([1, 2], 3))
        assert store.go_back(1)
        assert numbers(store, [1, 2]) == [1, None]
        assert store.go_back(0)
        assert numbers(store, [1, 2]) == [None, None]

    def test_it_goes_on_from_where_it_went_back_to(self, store):
        make(store, deep=rows_of([1], 1))
        store.hold(1)
        make(store, deep=rows_of([1, 2], 2))
        assert store.go_back(1)
        make(store, deep=rows_of([2, 3], 3))
        assert numbers(store, [1, 2, 3]) == [1, 3, 3]
        assert scanned(store, 1) == {1: 1}

    def test_it_does_not_go_back_to_what_is_not_held(self, store):
        make(store, deep=rows_of([1], 1))
        make(store, deep=rows_of([1], 2))
        for version in (1, 2, 7):
            assert not store.go_back(version)
        assert (store.version, numbers(store, [1])) == (2, [2])

    def test_a_load_forgets_everything_else(self, store):
        make(store, deep=rows_of([1, 2], 1), wide=rows_of([1], 1, 1))
        store.hold(1)
        store.load(40, {"deep": iter([rows_of([2, 9], 4), rows_of([3], 5)])})
        assert (store.version, store.num_rows("deep"), store.num_rows("wide")) == (40, 3, 0)
        assert numbers(store, [1, 2, 3, 9]) == [None, 4, 5, 4]
        self._assert_not_held(store, 1)
        make(store, deep=rows_of([1], 6))
        assert (store.version, numbers(store, [1])) == (41, [6])

    def test_a_removed_row_is_as_if_it_had_never_been(self, store):
        make(store, deep=rows_of([1, 2, 3], 1))
        make(store, deep=rows_of([3], 2, removed=[2, 9]))
        assert numbers(store, [1, 2, 3, 9]) == [1, None, 2, None]
        assert not store.read("deep", np.asarray([2])).values.any()
        assert (store.num_rows("deep"), noted(store)) == (2, {1: 1, 3: 2})
        make(store, deep=rows_of([2], 3))
        assert (numbers(store, [1, 2, 3]), store.num_rows("deep")) == ([1, 3, 2], 3)

    def test_a_held_version_keeps_what_is_removed(self, store):
        make(store, deep=rows_of([1, 2, 3], 1))
        store.hold(1)
        make(store, deep=rows_of([4], 2, removed=[1, 3]))
        make(store, deep=rows_of([3], 3))
        store.hold(3)
        make(store, deep=rows_of([], 4, removed=[3, 4]))
        assert scanned(store, 1) == {1: 1, 2: 1, 3: 1}
        assert numbers(store, [1, 2, 3, 4], version=1) == [1, 1, 1, None]
        assert scanned(store, 3) == {2: 1, 3: 3, 4: 2}
        assert numbers(store, [1, 2, 3, 4]) == [None, 1, None, None]
        assert (store.num_rows("deep"), noted(store)) == (1, {2: 1})
        store.let_go(1)
        assert scanned(store, 3) == {2: 1, 3: 3, 4: 2}

    def test_it_goes_back_to_before_rows_were_removed(self, store):
        make(store, deep=rows_of([1, 2, 3], 1))
        store.hold(1)
        make(store, deep=rows_of([4], 2, removed=[1, 3]))
        store.hold(2)
        make(store, deep=rows_of([1], 3, removed=[2]))
        assert store.go_back(1)
        assert numbers(store, [1, 2, 3, 4]) == [1, 1, 1, None]
        assert (store.num_rows("deep"), noted(store)) == (3, {1: 1, 2: 1, 3: 1})
        store.let_go(1)
        make(store, deep=rows_of([5], 4, removed=[2]))
        assert (numbers(store, [1, 2, 3, 5]), store.num_rows("deep")) == ([1, None, 1, 4], 3)

    def test_notes_are_kept_as_they_are(self, store):
        """Any integer, also where its bits are those of no number."""
        wanted = np.array([[0x7F800001, -1], [0, 0x7FA00000]], np.int32)
        values = np.zeros((2, DIM), np.float32)
        values[:, -2:] = wanted.view(np.float32)
        make(store, deep=Change(np.asarray([3, 8]), values))
        read = store.read("deep", np.asarray([3, 8]))
        store.load(4, {"deep": [Change(np.asarray([3, 8]), read.values)]})
        notes = store.notes("deep")
        assert notes.numbers[np.argsort(notes.ids)].tolist() == wanted.tolist()

    def test_a_hundred_thousand_rows(self, store):
        rng = np.random.default_rng(7)
        ids = np.unique(rng.integers(-(2**63), 2**63 - 1, 100_000))
        first = Change(ids, rng.random((len(ids), DIM), np.float32))
        make(store, deep=first)
        store.hold(1)
        some = np.sort(rng.choice(ids, 10_000, replace=False))
        make(store, deep=rows_of(some, 2), wide=rows_of(ids, 3, 1))
        assert np.array_equal(store.read("deep", ids, 1).values, first.values)
        assert np.all(store.read("deep", some).values == 2)
        make(store, deep=Change(ids[:0], first.values[:0], ids[::2]))
        assert np.array_equal(store.read("deep", ids).is_there, np.arange(len(ids)) % 2 == 1)
        make(store, deep=rows_of(ids[::2], 4))
        assert store.num_rows("deep") == store.num_rows("wide") == len(ids)
        assert len(scanned(store, 1)) == len(ids)
        assert store.size_bytes() >= len(ids) * (DIM + 1) * 4
        assert store.go_back(1)
        assert np.array_equal(store.read("deep", ids).values, first.values)
        assert store.num_rows("wide") == 0

    def test_a_held_version_is_read_while_commits_go_on(self, store):
        """The commits begin while it is read, and it is read until they are done."""
        ids = np.arange(10_000)
        make(store, deep=rows_of(ids, 1))
        store.hold(1)
        has_begun, is_done = Event(), Event()

        def commit():
            has_begun.wait()
            for value in range(2, 14):
                make(store, deep=rows_of(ids[:: value % 3 + 1] + value, value))
            is_done.set()

        thread = Thread(target=commit)
        thread.start()
        while not is_done.is_set():
            assert set(scanned(store, 1).items()) == {(id_, 1) for id_ in ids.tolist()}
            assert np.all(store.read("deep", ids, 1).values == 1)
            has_begun.set()
        thread.join()

    def test_what_is_read_is_of_one_version(self, store):
        """Rows of one commit are read as all of it has left them, or none."""
        ids = np.arange(10_000)
        make(store, deep=rows_of(ids, 1))
        is_done = Event()

        def commit():
            for value in range(2, 16):
                make(store, deep=rows_of(ids, value))
            is_done.set()

        thread = Thread(target=commit)
        thread.start()
        while not is_done.is_set():
            assert len(np.unique(store.read("deep", ids).values)) == 1
        thread.join()

    def test_rows_are_removed_while_they_are_read(self, store):
        """They are there or not, and never missed."""
        ids = np.arange(5_000)
        make(store, deep=rows_of(ids, 1))
        is_done = Event()

        def commit():
            for value in range(2, 20):
                even = value % 2 == 0
                make(store, deep=rows_of([] if even else ids, value, removed=ids if even else []))
            is_done.set()

        thread = Thread(target=commit)
        thread.start()
        while not is_done.is_set():
            rows = store.read("deep", ids)
            assert len(np.unique(rows.values)) == len(np.unique(rows.is_there)) == 1
        thread.join()


IDS = st.sets(st.integers(-3, 12), max_size=6)


class RowStoreMachine(RuleBasedStateMachine):
    """A store beside dicts that are copied whole. Subclasses say how it is opened."""

    def open_store(self):
        raise NotImplementedError

    @initialize()
    def begin(self):
        self.store = self.open_store()
        self.newest = {}
        self.held = {}
        self.holders = {}

    @rule(ids=IDS, removed=IDS)
    def commit(self, ids, removed):
        version, removed = self.store.version + 1, removed - ids
        make(self.store, deep=rows_of(ids, version + 0.5, removed=removed))
        left = {id_: value for id_, value in self.newest.items() if id_ not in removed}
        self.newest = left | dict.fromkeys(ids, version + 0.5)

    @rule()
    def hold(self):
        version = self.store.version
        self.store.hold(version)
        self.held[version] = self.newest
        self.holders[version] = self.holders.get(version, 0) + 1

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def let_go(self, data):
        version = data.draw(st.sampled_from(sorted(self.held)))
        self.store.let_go(version)
        self.holders[version] -= 1
        if not self.holders[version]:
            del self.held[version], self.holders[version]

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def go_back(self, data):
        version = data.draw(st.sampled_from(sorted(self.held)))
        assert self.store.go_back(version)
        self.newest = self.held[version]
        for newer in [each for each in self.held if each > version]:
            del self.held[newer], self.holders[newer]

    @rule(ids=IDS)
    def load(self, ids):
        version = self.store.version + 10
        self.store.load(version, {"deep": [rows_of(ids, version)]})
        self.newest = dict.fromkeys(ids, float(version))
        self.held, self.holders = {}, {}

    @rule(ids=IDS)
    def read(self, ids):
        wanted = sorted(ids)
        for version, rows in [(None, self.newest), *self.held.items()]:
            assert numbers(self.store, wanted, version) == [rows.get(each) for each in wanted]

    @rule()
    def count(self):
        assert self.store.num_rows("deep") == len(self.newest)
        assert noted(self.store) == self.newest
        for version, rows in self.held.items():
            assert scanned(self.store, version) == rows
