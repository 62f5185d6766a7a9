"""Requests a second are bounded, whoever sends them."""

import threading
import time

import pytest

from elastic.platforms.kubernetes.api.transport import Pace


@pytest.fixture
def pace():
    """Ten a second, three at once, full at the time it was made."""
    pace = Pace(rate=10.0, burst=3)
    pace.now_s = time.monotonic()
    return pace


def waits(pace, number, after_s=0.0):
    return [pace._take(pace.now_s + after_s) for _ in range(number)]


def test_a_burst_goes_out_at_once_and_the_rest_in_turn(pace):
    assert waits(pace, 6) == pytest.approx([0.0, 0.0, 0.0, 0.1, 0.2, 0.3], abs=1e-3)


def test_what_was_not_used_is_saved_up_to_a_burst(pace):
    waits(pace, 3)
    assert waits(pace, 2, after_s=0.1) == pytest.approx([0.0, 0.1], abs=1e-3)
    assert waits(pace, 4, after_s=60.0) == pytest.approx([0.0, 0.0, 0.0, 0.1], abs=1e-3)


def test_many_threads_share_one_rate():
    pace, began_s = Pace(rate=50.0, burst=1), time.monotonic()
    threads = [threading.Thread(target=lambda: [pace.wait() for _ in range(5)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # 20 requests, of which the first is free.
    assert time.monotonic() - began_s >= 19 / 50.0
