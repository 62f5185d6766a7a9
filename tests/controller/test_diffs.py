"""Merge patches of statuses: what one makes of the old status is the new one, and it is small."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.api_objects import merged

from elastic.controller.machinery.writing import merge_patch, without_none

LEAVES = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a"])
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=8,
)
STATUSES = st.dictionaries(st.sampled_from("abcd"), VALUES, max_size=4)


@pytest.mark.parametrize(
    ("there", "wanted", "patch"),
    [
        ({}, {}, {}),
        ({"a": 1, "b": 2}, {"a": 1, "b": 2}, {}),
        ({"a": 1}, {"a": 2}, {"a": 2}),
        ({"a": 1, "b": 2}, {"b": 2}, {"a": None}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}, {"a": {"c": 3}}),
        ({"a": [1, 2]}, {"a": [1]}, {"a": [1]}),
        ({"a": {"b": 1}}, {"a": {}}, {"a": {"b": None}}),
        ({}, {"a": {}}, {"a": {}}),
        ({}, {"a": {"b": None}}, {"a": {}}),
        ({"a": 1}, {"a": None}, {"a": None}),
        ({"a": True}, {"a": 1}, {"a": 1}),
        ({"a": 1}, {"a": {"b": 1}}, {"a": {"b": 1}}),
    ],
)
def test_patches(there, wanted, patch):
    assert merge_patch(there, wanted) == patch


@given(STATUSES, STATUSES)
def test_a_patch_leads_to_what_is_wanted_and_is_empty_only_there(there, wanted):
    there = without_none(there)
    patch = merge_patch(there, wanted)
    assert merged(there, patch) == without_none(wanted)
    assert merge_patch(merged(there, patch), wanted) == {}
