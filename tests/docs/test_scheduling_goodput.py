"""The examples of the page on `goodput` come out as shown, and its numbers are the code's."""

import doctest
from pathlib import Path

from elastic.policy.cluster import goodput, offers

PAGE = Path(__file__).parents[2] / "docs" / "scheduling_goodput.md"


def test_the_examples():
    failed, tried = doctest.testfile(str(PAGE), module_relative=False)
    assert (failed, tried) == (0, 12)


def test_the_numbers():
    text = PAGE.read_text()
    assert f"`1 + {goodput.PRICE:g} x jobs behind" in text
    assert f"{goodput.KEEP:.0%}".replace("%", " %") in text
    assert (goodput.AGE_S, goodput.SETTLED_S, offers.EXPLORED) == (86400, 300, 2)
    assert f"the first of {offers.FIRST_GUESS_S:,.0f}," in text
    assert f"{offers.FIRST_GUESS_S * offers.GUESS_FACTOR:,.0f}" in text
