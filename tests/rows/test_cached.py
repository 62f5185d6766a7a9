"""What a commit behind the caller comes to: it is made, or whoever asks next is told."""

import threading
from concurrent.futures import Future

import numpy as np
import pytest
from support.local_jobs import eventually
from support.redis_servers import WRITES_AT_ONCE, redis_server
from support.row_store_contract import DIM, FORMS, make, noted, numbers, rows_of

from elastic.errors import TrainingError
from elastic.rows import cached
from elastic.rows.base import RowsLostError
from elastic.rows.cached import CachedRows, WouldWaitError
from elastic.rows.redis.link import RedisLink
from elastic.rows.redis.store import RedisRows


@pytest.fixture
def server(tmp_path):
    with redis_server(tmp_path / "redis", *WRITES_AT_ONCE) as server:
        yield server


@pytest.fixture
def inner(server):
    return RedisRows(RedisLink(lambda: server.address, 0.5), "job", "run")


@pytest.fixture
def store(inner):
    store = CachedRows(inner)
    store.open(FORMS)
    yield store
    store.close()


def test_what_is_held_is_in_the_server(store, inner):
    make(store, deep=rows_of([1, 2], 1))
    make(store, deep=rows_of([2], 2))
    store.hold(2)
    assert (inner.version, numbers(inner, [1, 2], version=2)) == (2, [1, 2])


def test_rows_that_are_remembered_need_no_server(store, server):
    make(store, deep=rows_of([1], 1))
    store.hold(1)
    server.pause()
    assert numbers(store, [1]) == [1]
    server.resume()


def test_rows_that_were_removed_need_no_server(store, server):
    make(store, deep=rows_of([1, 2], 1))
    make(store, deep=rows_of([3], 2, removed=[1, 9]))
    store.hold(2)
    server.pause()
    assert numbers(store, [1, 2, 3, 9]) == [None, 1, 2, None]
    server.resume()


def test_notes_are_those_of_what_was_committed_last(store, inner):
    make(store, deep=rows_of(range(1000), 1))
    make(store, deep=rows_of([0], 2, removed=range(1, 999)))
    assert (noted(store), inner.version) == ({0: 2, 999: 1}, 2)


def test_a_server_that_is_gone_is_told_to_who_asks_next(store, server):
    make(store, deep=rows_of([1], 1))
    store.hold(1)
    server.kill()
    make(store, deep=rows_of([1], 2))
    with pytest.raises(RowsLostError, match="has not answered"):
        store.hold(2)
    for ask in (lambda: numbers(store, [1]), lambda: make(store, deep=rows_of([1], 3))):
        with pytest.raises(RowsLostError, match="has not answered"):
            ask()


def test_a_full_server_is_told_and_the_held_version_is_gone_back_to(store, server):
    make(store, deep=rows_of(range(1000), 1))
    store.hold(1)
    with server.client() as client:
        client.config_set("maxmemory", "1mb")
    make(store, deep=rows_of(range(2000), 2))
    with pytest.raises(TrainingError, match="no room"):
        store.hold(2)
    with server.client() as client:
        client.config_set("maxmemory", "0")
    assert store.go_back(1)
    assert (store.version, numbers(store, [0, 1999])) == (1, [1, None])
    make(store, deep=rows_of([0], 3))
    assert np.all(store.read("deep", np.asarray([0])).values == 3)


def test_a_fault_of_the_store_is_told_to_who_asks_next_and_nobody_waits(store, inner, monkeypatch):
    def fail(version, changes, before):
        raise IndexError("a fault")

    monkeypatch.setattr(inner, "commit", fail)
    make(store, deep=rows_of([1], 1))
    with pytest.raises(IndexError, match="a fault"):
        store.hold(1)


@pytest.mark.parametrize("asks", ["num_rows", "read", "hold"])
def test_what_was_closed_keeps_nobody_waiting(asks, store):
    """An update that measures the tables while the job goes back, and so closes them."""
    make(store, deep=rows_of([1], 1))
    store.close()
    words = {"num_rows": ("deep",), "read": ("deep", np.asarray([2])), "hold": (1,)}[asks]
    told = Future()

    def ask():
        try:
            told.set_result(getattr(store, asks)(*words))
        except RowsLostError as error:
            told.set_exception(error)

    threading.Thread(target=ask, daemon=True).start()
    with pytest.raises(RowsLostError, match="closed"):
        told.result(20)


@pytest.mark.parametrize(("num_rows", "most"), [(1, 4), (2, 2), (5, 1)])
def test_commits_are_pending_while_there_is_room_for_their_rows(
    store, inner, monkeypatch, num_rows, most
):
    """However large an update is, one may be: the store works while the next is computed."""
    monkeypatch.setattr(cached, "PENDING_BYTES", 8 * 4 * DIM)
    num_commits, behind, make_in_store = 8, [], inner.commit

    def wait_and_make(version, changes, before):
        eventually(lambda: store.version >= min(version + most - 1, num_commits))
        behind.append(store.version - version + 1)
        make_in_store(version, changes, before)

    monkeypatch.setattr(inner, "commit", wait_and_make)
    for version in range(1, num_commits + 1):
        make(store, deep=rows_of(range(num_rows), version))
    store.hold(num_commits)
    assert max(behind) == most
    assert numbers(inner, range(num_rows)) == [num_commits] * num_rows


def test_no_more_is_remembered_than_there_is_room_for(store, monkeypatch):
    """Not even while it becomes more: what of it would be free again is of use to nobody."""
    monkeypatch.setattr(cached, "CACHE_BYTES", 64 << 10)
    store.load(0, {})
    num_rows = (64 << 10) // len(FORMS) // (4 * DIM)
    for first in range(0, 40 * num_rows, num_rows // 3):
        make(store, deep=rows_of(range(first, first + num_rows // 3), 1))
        numbers(store, range(first // 2, first // 2 + num_rows // 5))
        cache = store._caches["deep"]
        assert sum(len(each._values) for each in (cache._late, cache._before)) <= num_rows
    assert numbers(store, [0, 1, 2]) == [1, 1, 1]


def test_a_read_of_more_rows_than_are_remembered_takes_one_call(store, inner, monkeypatch):
    """Whoever forgets some for others, and then these for those, never has all of them."""
    monkeypatch.setattr(cached, "CACHE_BYTES", 0)
    store.load(0, {})
    make(store, deep=rows_of(range(9), 1))
    for some in ([20, 21], [30]):
        numbers(store, some)
    asked, read = [], inner.read

    def counted(table, ids, version=None):
        asked.append(len(ids))
        assert len(asked) <= 3, asked
        return read(table, ids, version)

    monkeypatch.setattr(inner, "read", counted)
    assert numbers(store, [*range(9), 20, 21, 30]) == [*[1] * 9, None, None, None]
    assert asked == [9]


# -- what waits for nothing -----------------------------------------------------------------------


def _make_all(store, ids, values):
    for value in values:
        make(store, deep=rows_of(ids, value))


def test_what_is_remembered_is_read_and_changed_at_once(store, server):
    make(store, deep=rows_of([1, 2], 1))
    store.hold(1)
    server.pause()
    with store.at_once():
        assert numbers(store, [1, 2]) == [1, 1]
        make(store, deep=rows_of([2], 2))
        assert numbers(store, [1, 2]) == [1, 2]
    server.resume()
    store.hold(2)
    assert numbers(store, [1, 2], version=2) == [1, 2]


@pytest.mark.parametrize(
    "ask",
    [
        lambda store: numbers(store, [1, 7]),
        lambda store: numbers(store, [1], version=1),
        lambda store: store.hold(2),
        lambda store: store.let_go(1),
        lambda store: store.notes("deep"),
        lambda store: store.num_rows("deep"),
        lambda store: store.size_bytes(),
    ],
    ids=["an unknown row", "an older version", "hold", "let go", "notes", "number", "size"],
)
def test_what_the_store_is_asked_for_is_not_had_at_once_and_then_as_ever(ask, store):
    make(store, deep=rows_of([1, 2], 1))
    store.hold(1)
    make(store, deep=rows_of([2], 2))
    with pytest.raises(WouldWaitError), store.at_once():
        ask(store)
    ask(store)
    assert numbers(store, [1, 2, 7]) == [1, 2, None]


def test_a_commit_that_had_to_wait_for_those_before_changes_nothing(store, server):
    make(store, deep=rows_of([1], 1))
    store.hold(1)
    server.pause()
    # One is being made, four wait.
    with pytest.raises(WouldWaitError), store.at_once():
        _make_all(store, [1], range(2, 8))
    version = store.version
    assert 5 <= version <= 6
    assert numbers(store, [1]) == [version]
    server.resume()
    store.hold(version)
    make(store, deep=rows_of([1], 9))
    store.hold(version + 1)
    assert numbers(store, [1]) == [9]


@pytest.mark.parametrize("what", ["PENDING_BYTES", "CACHE_BYTES"])
def test_a_commit_that_has_no_room_for_its_rows_changes_nothing(store, server, monkeypatch, what):
    monkeypatch.setattr(cached, what, 8 * 4 * DIM)
    store.load(0, {})
    make(store, deep=rows_of([1, 2, 3], 1))
    store.hold(1)
    server.pause()
    with pytest.raises(WouldWaitError), store.at_once():
        _make_all(store, [1, 2, 3, 4, 5], (2, 3))
    version = store.version
    assert version < 3
    server.resume()
    _make_all(store, [1, 2, 3, 4, 5], range(version + 1, 5))
    store.hold(4)
    assert numbers(store, [1, 2, 3, 4, 5]) == [4] * 5


def test_who_works_with_what_is_remembered_is_not_waited_for(store):
    make(store, deep=rows_of([1], 1))
    for ask in (lambda: numbers(store, [1]), lambda: make(store, deep=rows_of([1], 2))):
        with store._lock, pytest.raises(WouldWaitError), store.at_once():
            ask()
    assert (store.version, numbers(store, [1])) == (1, [1])


def test_other_threads_wait_as_ever_meanwhile(store):
    make(store, deep=rows_of([1], 1))
    told = Future()
    with store.at_once():
        asking = threading.Thread(target=lambda: told.set_result(numbers(store, [1, 7])))
        asking.start()
        assert told.result(20) == [1, None]
        asking.join()


def test_a_failure_is_told_at_once_too(store, server):
    make(store, deep=rows_of([1], 1))
    store.hold(1)
    server.kill()
    make(store, deep=rows_of([1], 2))
    store._pending.join()
    with pytest.raises(RowsLostError), store.at_once():
        numbers(store, [1])
