"""A master that is ended from outside gets the moment that it needs, and no more."""

import threading

from elastic.platforms.registry import Departure


def test_whoever_asks_waits_until_the_master_is_ready():
    departure = Departure()
    departure.prepare(lambda: threading.Timer(0.05, departure.be_ready).start())
    assert departure.ask(60.0)


def test_it_is_waited_for_no_longer_than_allowed():
    asked = []
    departure = Departure()
    departure.prepare(lambda: asked.append(1))
    assert not departure.ask(0.01)
    assert not departure.ask(0.01)
    assert asked == [1]


def test_a_master_that_has_nothing_yet_is_not_waited_for():
    departure = Departure()
    assert departure.ask(60.0)
    asked = []
    departure.prepare(lambda: asked.append(1))
    assert asked == [1]
