"""Amounts as people read them."""

import pytest

from elastic.policy.placement.rooms import shown


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        pytest.param("memory", 8 * 2**30, "8Gi memory", id="whole"),
        pytest.param("memory", 1536 * 2**20, "1536Mi memory", id="as-written"),
        pytest.param("memory", 23647796 * 2**10, "22.6Gi memory", id="rest-of-a-node"),
        pytest.param("memory", 100 * 2**10, "100Ki memory", id="small"),
        pytest.param("cpu", 1800, "1800m CPU", id="cores"),
    ],
)
def test_an_amount_is_short(resource, amount, text):
    assert shown(resource, amount) == text
