"""The search for what makes a minibatch fail: a record, or its size."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from elastic.policy.minibatches import FaultSearch


def search(num_records, fails):
    """Search records `[0, num_records)` of which a part fails as `fails(start, end)` says."""
    found, parts = FaultSearch(0, num_records), []
    while (part := found.next_part()) is not None:
        parts.append(part)
        found.tell(*part, has_failed=fails(*part))
    return found, parts


def holds(*bad):
    return lambda start, end: any(start <= index < end for index in bad)


def larger_than(size):
    return lambda start, end: end - start > size


def test_bad_record_is_found_by_halving():
    found, parts = search(8, holds(5))
    assert found.culprit == 5
    assert parts == [(0, 4), (4, 8), (4, 6), (4, 5), (5, 6)]


def test_size_that_fails_is_told_from_a_record():
    found, parts = search(32, larger_than(8))
    assert (found.culprit, found.runs_at) == (None, 8)
    assert parts == [(0, 16), (0, 8), (8, 16), (16, 24), (24, 32)], "one part of 16 tells enough"


@pytest.mark.parametrize(("num_records", "limit", "runs_at"), [
    pytest.param(2, 1, 1, id="one-at-a-time"),
    pytest.param(17, 8, 8, id="uneven"),
    pytest.param(20, 8, 5, id="halves-pass-the-limit"),
    pytest.param(32, 31, 16, id="the-first-halves-run"),
])  # fmt: skip
def test_size_that_runs(num_records, limit, runs_at):
    found, _ = search(num_records, larger_than(limit))
    assert (found.culprit, found.runs_at) == (None, runs_at)


def test_size_that_runs_is_below_every_one_that_failed():
    """The first 16 run together, the others do not: as with texts of unequal length."""
    found, _ = search(32, lambda start, end: start >= 16 and end - start > 4)
    assert (found.culprit, found.runs_at) == (None, 4)


def test_bad_record_is_found_where_the_size_fails_too():
    found, _ = search(32, lambda start, end: end - start > 8 or holds(21)(start, end))
    assert found.culprit == 21


def test_search_ends_where_every_record_fails():
    found, parts = search(1024, lambda _start, _end: True)
    assert (found.culprit, len(parts)) == (0, 10)


@given(st.integers(2, 64), st.data())
def test_of_several_bad_records_the_first_is_blamed(num_records, data):
    bad = data.draw(st.sets(st.integers(0, num_records - 1), min_size=1))
    found, _ = search(num_records, holds(*bad))
    assert found.culprit == min(bad)


@given(st.integers(2, 40), st.data())
def test_a_search_ends_whatever_fails_now_and_then(num_records, data):
    found, _ = search(num_records, lambda *_: data.draw(st.booleans()))
    assert found.culprit is not None or 1 <= found.runs_at < num_records


@given(st.integers(2, 200), st.integers(0, 199), st.integers(1, 199))
def test_search_always_ends_with_the_right_answer(num_records, bad, limit):
    has_bad = bad < num_records
    found, parts = search(
        num_records, lambda start, end: end - start > limit or holds(bad)(start, end)
    )
    if has_bad:
        assert found.culprit == bad
    else:
        assert found.culprit is None
        assert 1 <= found.runs_at <= limit
        assert {i for start, end in parts if end - start <= limit for i in range(start, end)} == (
            set(range(num_records))
        )
