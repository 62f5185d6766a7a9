"""Interval sets against plain sets."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from elastic.policy.tasks.ledger import IntervalSet


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 8))))
def test_like_a_set_of_integers(spans):
    intervals, plain = IntervalSet(), set()
    for start, length in spans:
        members = set(range(start, start + length))
        assert intervals.add(start, start + length) is not bool(members & plain)
        if not members & plain:
            plain |= members
    assert intervals.size == len(plain)
    assert {i for a, b in intervals.as_lists() for i in range(a, b)} == plain
    gaps = {i for a, b in intervals.gaps(0, 50) for i in range(a, b)}
    assert gaps == set(range(50)) - plain
    again = IntervalSet.from_lists(intervals.as_lists())
    assert again.as_lists() == intervals.as_lists()


def test_neighbours_become_one_interval():
    intervals = IntervalSet.from_lists([[0, 2], [4, 6]])
    assert intervals.add(2, 4)
    assert intervals.as_lists() == [[0, 6]]


def test_overlapping_lists_are_refused():
    with pytest.raises(ValueError, match=r"\[1, 3\) overlaps another"):
        IntervalSet.from_lists([[0, 2], [1, 3]])
