"""The examples of the page on policies come out as shown, and its numbers are the code's."""

import doctest
from pathlib import Path

from elastic.policy.scaling import fulfillment, goodput, offers, sharing

PAGE = Path(__file__).parents[2] / "docs" / "scheduling.md"


def test_the_examples():
    failed, tried = doctest.testfile(str(PAGE), module_relative=False)
    assert (failed, tried) == (0, 47)


def test_the_numbers():
    text = PAGE.read_text()
    assert f"has to be {sharing.KEEP:.0%} better".replace("%", " %") in text
    assert (offers.AGE_S, sharing.SETTLED_S, offers.EXPLORED) == (86400, 300, 2)
    assert goodput.DEFAULT_STARVE_AFTER_S == 86400
    assert fulfillment.Fulfillment() == fulfillment.Fulfillment(0.97, 300.0)
    assert f"the first of {offers.FIRST_GUESS_S:,.0f}," in text
    assert f"{offers.FIRST_GUESS_S * offers.GUESS_FACTOR:,.0f}" in text
