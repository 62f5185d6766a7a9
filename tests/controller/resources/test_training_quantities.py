"""Amounts of resources, as Kubernetes reads them."""

from decimal import Decimal

import pytest
from elastic.controller.resources.quantities import amount
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("quantity", "expected"),
    [
        ("2", "2"),
        (2, "2"),
        (0.5, "0.5"),
        ("500m", "0.5"),
        ("1.5", "1.5"),
        (".5", "0.5"),
        ("1.", "1"),
        ("1Gi", 2**30),
        ("1G", 10**9),
        ("1k", 1000),
        ("1Ki", 1024),
        ("3E", 3 * 10**18),
        ("3e2", 300),
        ("3E2", 300),
        ("1e-3", "0.001"),
        ("250u", "0.00025"),
        ("-1", -1),
    ],
)
def test_forms(quantity, expected):
    assert amount(quantity) == Decimal(expected)


@pytest.mark.parametrize(
    "text", ["", "lots", "1 Gi", "1gi", "1K", "m", "0x10", "1e", "nan", "inf", "1e99999999", "١"]
)
def test_what_is_none(text):
    with pytest.raises(ValueError, match="quantity|exponent"):
        amount(text)


@given(st.integers(-(10**12), 10**12), st.sampled_from(["m", "", "k", "M", "Ki", "Mi", "Gi"]))
def test_a_suffix_is_a_factor(number, suffix):
    one = amount(f"1{suffix}")
    assert amount(f"{number}{suffix}") == number * one
