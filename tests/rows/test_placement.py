"""Which server has a row is the same everywhere, and every server has its part."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from elastic.rows.base import CANDIDATES, Life
from elastic.rows.ids import life_on, servers_of, spread_rows

IDS = np.sort(np.array([-(2**63), -1, 0, 1, 2, 3, 1000, 2**63 - 1], np.int64))


def test_every_row_is_on_one_server():
    for num_servers in (1, 2, 5):
        places = np.concatenate(spread_rows("deep", IDS, num_servers))
        assert sorted(places.tolist()) == list(range(len(IDS)))


def test_a_row_does_not_move_with_the_ids_beside_it():
    together = servers_of("deep", IDS, 3)
    alone = [servers_of("deep", IDS[i : i + 1], 3)[0] for i in range(len(IDS))]
    assert together.tolist() == alone


@pytest.mark.parametrize("step", [1, 2, 1 << 20])
def test_servers_have_about_as_much_each(step):
    counts = np.bincount(servers_of("deep", np.arange(30_000) * step, 3))
    assert np.all(np.abs(counts - 10_000) < 400)


def test_one_id_is_on_different_servers_in_different_tables():
    ids = np.arange(1000)
    assert not np.array_equal(servers_of("deep", ids, 2), servers_of("wide", ids, 2))


def test_an_id_is_counted_where_its_row_will_be():
    there = servers_of("deep", IDS, 3)
    assert servers_of("deep" + CANDIDATES, IDS, 3).tolist() == there.tolist()


@given(st.integers(1, 10**9), st.integers(1, 50))
def test_what_servers_may_have_is_together_what_the_table_may(max_rows, num_servers):
    lives = [life_on(Life(2, 5, max_rows), each, num_servers) for each in range(num_servers)]
    parts = [life.max_rows for life in lives]
    assert sum(parts) == max_rows
    assert max(parts) - min(parts) <= 1
    assert {(life.admit_after, life.expire_after) for life in lives} == {(2, 5)}


def test_rows_that_stay_stay_on_each_server():
    assert life_on(Life(), 1, 3) == Life()
