"""How many records a second are told, for steps of any length."""

import time

import pytest

from elastic.master.coordination.sessions import WINDOW_S, RateMeter

RECORDS = 32


def meter_of(*moments_s):
    meter = RateMeter()
    for moment_s in moments_s:
        meter.add(moment_s, RECORDS)
    return meter


def test_before_two_marks_nobody_knows():
    assert RateMeter().per_second(5.0) == 0.0
    assert meter_of(3.0).per_second(5.0) == 0.0
    assert meter_of(3.0, 3.0).per_second(3.0) == 0.0


@pytest.mark.parametrize("step_s", [0.001, 0.1, 1.0, 4.0, 6.0, 15.0, 90.0])
def test_a_steady_worker_has_its_speed_at_every_moment(step_s):
    meter = meter_of(0.0)
    for number in range(1, 200):
        meter.add(number * step_s, RECORDS)
        for fraction in (0.0, 0.5, 0.99):
            rate = meter.per_second((number + fraction) * step_s, step_s)
            assert rate == pytest.approx(RECORDS / step_s)


@pytest.mark.parametrize("step_s", [4.0, 15.0, 90.0])
def test_workers_whose_gradients_come_together_have_their_speed(step_s):
    """Each of four is a little later than the one before."""
    meter = RateMeter()
    for number in range(20):
        for worker in range(4):
            meter.add((number + 0.03 * worker) * step_s, RECORDS)
            rate = meter.per_second((number + 0.03 * worker) * step_s, step_s)
            if number > 5:
                assert rate == pytest.approx(4 * RECORDS / step_s, rel=0.2)
            assert rate < 1.7 * 4 * RECORDS / step_s


def test_steps_of_unknown_length_are_never_taken_for_a_standstill():
    meter = meter_of(0.0, 15.0, 30.0, 45.0)
    for now_s in (45.0, 50.0, 55.0, 59.9):
        assert RECORDS / 30 < meter.per_second(now_s) <= RECORDS / WINDOW_S


def test_the_speed_falls_when_nothing_comes():
    meter = meter_of(*(number / 10 for number in range(301)))
    rates = [meter.per_second(30.0 + silent_s) for silent_s in (0.0, 5.0, 9.0, 60.0, 3600.0)]
    assert rates[:3] == pytest.approx([320.0, 160.0, 32.0], rel=0.03)
    assert rates[3] < 1.0
    assert rates[4] < 0.01


def test_the_speed_of_slow_steps_falls_once_one_is_overdue():
    meter = meter_of(*(15.0 * number for number in range(10)))
    rates = [meter.per_second(135.0 + silent_s, 15.0) for silent_s in (0, 15, 30, 60, 600, 36000)]
    assert rates[0] == rates[1] == pytest.approx(RECORDS / 15)
    assert rates == sorted(rates, reverse=True)
    assert rates[2] < rates[1]
    assert rates[5] < 0.01


def test_a_pause_is_no_part_of_the_speed_after_it():
    meter = meter_of(*(number / 10 for number in range(100)))
    meter.resume(600.0)
    assert meter.per_second(600.0) == 0.0
    for number in range(1, 300):
        meter.add(600.0 + number / 10, RECORDS)
        assert meter.per_second(600.0 + number / 10) == pytest.approx(320.0)


def test_a_short_pause_is_a_part_of_the_speed():
    meter = meter_of(*(number / 10 for number in range(100)))
    for number in range(1, 400):
        if number % 10 == 1:
            meter.resume(12.0 + number / 8)
        meter.add(12.0 + number / 8, RECORDS)
    assert meter.per_second(12.0 + 399 / 8) == pytest.approx(RECORDS * 8, rel=0.01)
    assert len(meter._marks) > 50


@pytest.mark.parametrize("gap_s", [16.0, 40.0])
def test_steps_that_follow_each_other_more_slowly_than_they_take_have_their_speed(gap_s):
    meter = meter_of(*(gap_s * number for number in range(10)))
    assert meter.per_second(9 * gap_s, 2.0) == pytest.approx(RECORDS / gap_s)


def test_what_many_gradients_a_second_cost_does_not_grow():
    meter = meter_of(*(number / 2000 for number in range(20_000)))
    began_s = time.process_time()
    for number in range(20_000, 40_000):
        meter.add(number / 2000, RECORDS)
    # 0.5 us each; at one pass over the window each it was ten seconds.
    assert time.process_time() - began_s < 1.0
    assert len(meter._marks) <= 20_002
