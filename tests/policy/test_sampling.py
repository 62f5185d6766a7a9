"""When a point of a curve is due."""

import pytest

from elastic.master.telemetry import DENSE_UPDATES, INTERVAL_S, is_point_due

LATER = DENSE_UPDATES + 1


@pytest.mark.parametrize(
    ("version", "last_version", "waited_s", "is_due"),
    [
        pytest.param(1, None, 0.0, True, id="the-first"),
        pytest.param(LATER, None, 0.0, True, id="the-first-of-a-resumed-job"),
        pytest.param(2, 1, 0.0, True, id="each-of-the-first-ones"),
        pytest.param(DENSE_UPDATES, DENSE_UPDATES - 1, 0.0, True, id="the-last-of-the-first-ones"),
        pytest.param(LATER, LATER - 1, 0.99 * INTERVAL_S, False, id="later-ones-wait"),
        pytest.param(LATER + 9, LATER - 1, INTERVAL_S, True, id="until-their-time-has-come"),
        pytest.param(5, 5, 2 * INTERVAL_S, False, id="no-version-has-two"),
    ],
)
def test_a_point(version, last_version, waited_s, is_due):
    assert is_point_due(version, last_version, 100.0 + waited_s, 100.0) == is_due


def test_fast_updates_have_as_many_points_as_they_take_seconds():
    points, last_version, last_s = 0, None, 0.0
    for version in range(1, 100_001):
        now_s = version * 0.01
        if is_point_due(version, last_version, now_s, last_s):
            points, last_version, last_s = points + 1, version, now_s
    assert points <= DENSE_UPDATES + 1000
