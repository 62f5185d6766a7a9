"""Rows that come before they are asked for: of the ids and the version that the step would read."""

from types import SimpleNamespace

import numpy as np
import pytest

from elastic.frameworks.base import Batch
from elastic.rows.base import Table
from elastic.rpc import elastic_pb2 as pb
from elastic.rpc.rows import RowsAhead, WantedIds
from elastic.worker.rows import MAX_MISSES, ForeseenRows
from elastic.worker.strategy import MasterExchange

ITEMS, USERS = Table("items", 1, "zeros"), Table("users", 1, "zeros")
FROM_SERVER, AHEAD = 1.0, 2.0


class Server:
    """Has rows, and tells what it was asked for."""

    def __init__(self):
        self.asked = []
        self.read_of = []

    def begin(self, _session):
        pass

    def read_at(self, version, beside):
        self.read_of.append((version, beside))

    def read(self, table, ids):
        self.asked.append((table.name, ids.tolist()))
        return np.full((len(ids), 1), FROM_SERVER, np.float32)


class Worker:
    """Steps of a model that looks up what `reads` takes out of its features."""

    def __init__(self, reads):
        self.server, self.source = Server(), SimpleNamespace(ahead=None)
        self.rows = ForeseenRows(self.server, self.source)
        self._reads = reads

    def step(self, features, version=0, named=None):
        """The numbers of the rows that a minibatch has read."""
        self.rows.read_at(named, version)
        with self.rows.computing(batch_of(features)):
            found = [self.rows.read(table, np.unique(ids)) for table, ids in self._reads(features)]
        return [set(values[:, 0].tolist()) for values in found]

    def bring(self, features, version):
        """Rows come for the minibatch that follows."""
        wanted = self.rows.wanted(batch_of(features))
        rows = [np.full((len(each.ids), 1), AHEAD, np.float32) for each in wanted]
        self.source.ahead = RowsAhead(version, wanted, rows)
        return [(each.table.name, each.ids.tolist()) for each in wanted]


def batch_of(features):
    return Batch(features, None, 2)


def features_of(*items, users=(7, 7)):
    return {"numbers": np.ones(2, np.float32), "ids": (np.array(items), np.array(users, np.int32))}


def both(features):
    return [(ITEMS, features["ids"][0]), (USERS, features["ids"][1])]


def learned():
    worker = Worker(both)
    assert worker.step(features_of(5, 3)) == [{FROM_SERVER}] * 2
    worker.server.asked.clear()
    return worker


def test_ids_are_known_once_it_was_seen_which_columns_they_are():
    worker = Worker(both)
    assert worker.bring(features_of(4, 2), version=1) == []
    worker.step(features_of(5, 3))
    assert worker.bring(features_of(4, 2, users=(9, 8)), 1) == [
        ("items", [2, 4]),
        ("users", [8, 9]),
    ]


def test_rows_that_came_with_the_version_are_asked_for_no_more():
    worker = learned()
    worker.bring(features_of(4, 2), version=1)
    assert worker.step(features_of(4, 2), version=1) == [{AHEAD}] * 2
    assert not worker.server.asked


def test_each_row_that_came_is_used_once():
    """It is of a version; the same minibatch may be computed again on another."""
    worker = learned()
    worker.bring(features_of(4, 2), version=1)
    with worker.rows.computing(batch_of(features_of(4, 2))):
        worker.rows.read_at(None, 1)
        first = worker.rows.read(ITEMS, np.array([2, 4]))
        second = worker.rows.read(ITEMS, np.array([2, 4]))
    assert (first[0, 0], second[0, 0]) == (AHEAD, FROM_SERVER)


@pytest.mark.parametrize(
    ("came_with", "filled", "named", "items"),
    [
        pytest.param(1, 2, None, (4, 2), id="another-version-is-filled-in"),
        pytest.param(1, 1, 1, (4, 2), id="a-version-is-named"),
        pytest.param(1, 1, None, (4, 1), id="other-ids"),
    ],
)
def test_rows_of_anything_else_are_not_used(came_with, filled, named, items):
    worker = learned()
    worker.bring(features_of(4, 2), came_with)
    assert worker.step(features_of(*items), filled, named)[0] == {FROM_SERVER}
    assert worker.server.asked[0] == ("items", sorted(items))


def test_a_new_session_uses_no_rows_of_the_one_before():
    worker = learned()
    worker.bring(features_of(4, 2), version=1)
    worker.rows.read_at(None, 1)
    worker.rows.begin(None)
    assert worker.rows.read(ITEMS, np.array([2, 4]))[0, 0] == FROM_SERVER


def test_a_model_that_makes_its_ids_itself_is_soon_left_alone():
    worker = Worker(lambda features: [(ITEMS, features["ids"][0] + 1)])
    for _ in range(MAX_MISSES + 1):
        worker.step(features_of(5, 3))
    assert worker.bring(features_of(4, 2), version=1) == []


def test_so_is_one_that_mostly_asks_for_others_than_it_did_first():
    worker = learned()
    for version in range(1, MAX_MISSES + 1):
        worker.bring(features_of(4, 2), version)
        worker.step(features_of(6, 1), version)
    assert worker.bring(features_of(4, 2), version=9) == []


def test_steps_for_which_nothing_came_are_no_reason_to_give_up():
    """The first ones of tasks, and those of a worker that is ahead of its group."""
    worker = learned()
    worker.bring(features_of(4, 2), version=1)
    worker.step(features_of(4, 2), version=1)
    for version in range(2, 3 * MAX_MISSES):
        worker.step(features_of(4, 2), version)
    assert len(worker.bring(features_of(4, 2), version=99)) == 2


def test_nor_are_minibatches_that_were_lost_now_and_then():
    worker = learned()
    for version in range(1, 3 * MAX_MISSES):
        worker.bring(features_of(4, 2), version)
        worker.step(features_of(6, 1) if version % 2 else features_of(4, 2), version)
    assert len(worker.bring(features_of(4, 2), version=99)) == 2


def test_rows_that_nobody_reads_any_more_are_not_brought_for_ever():
    read = [both]
    worker = Worker(lambda features: read[0](features))
    worker.step(features_of(5, 3))
    read[0] = lambda features: both(features)[:1]
    for version in range(1, MAX_MISSES + 1):
        worker.bring(features_of(4, 2), version)
        worker.step(features_of(4, 2), version)
    assert worker.bring(features_of(4, 2), version=99) == []


def test_what_nobody_ever_brings_is_not_looked_for_for_ever():
    """The memory of another machine cannot be laid rows in."""
    worker = learned()
    for version in range(MAX_MISSES):
        worker.step(features_of(4, 2), version)
    assert worker.bring(features_of(4, 2), version=99) == []


def test_a_column_that_is_asked_for_later_is_found_as_well():
    """By a table that has one already: when rows have come for that one alone."""
    columns = [0]
    worker = Worker(lambda features: [(ITEMS, features["ids"][place]) for place in columns])
    worker.step(features_of(5, 3))
    for version in (1, 2):
        worker.bring(features_of(4, 2), version)
        worker.step(features_of(4, 2), version)
        columns[:] = [0, 1]
    assert worker.bring(features_of(4, 2), 3) == [("items", [2, 4]), ("items", [7])]


def test_what_is_no_column_of_integers_is_passed_over():
    worker = Worker(lambda features: [(ITEMS, np.array([1, 2]))])
    features = {"texts": np.array(["a", "b"]), "ragged": object(), "number": np.int64(1)}
    worker.step(features)
    assert worker.bring(features, version=1) == []


class Client:
    """A connection whose calls are answered, some of them at the second try."""

    def __init__(self):
        self.num_retries = 0
        self.is_away = False
        self.memory = []

    def report_gradient(self, _session, header, _gradients, _state, *, narrows):
        self.memory.append(header.rows_ahead.buffer.nonce)
        self.num_retries += self.is_away
        return pb.ReportGradientReply(rows_version=3)


def test_memory_that_a_call_which_was_given_up_may_still_come_to_is_not_used_again():
    client = Client()
    exchange = MasterExchange(client)
    exchange.begin(SimpleNamespace(shares_memory=True))
    for client.is_away in (False, True, False):
        wanted = [WantedIds(ITEMS, np.array([1, 2]))]
        exchange.report_gradient(pb.GradientHeader(), {}, {}, {}, wanted)
        if client.is_away:
            # Two tries may have laid rows, each of another version.
            assert exchange.ahead is None
        else:
            assert (exchange.ahead.version, exchange.ahead.rows[0].shape) == (3, (2, 1))
    first, second, third = client.memory
    assert first == second != third
    exchange.report_gradient(pb.GradientHeader(), {}, {})
    assert exchange.ahead is None
