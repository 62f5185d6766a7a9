"""A job is measured at each size that it has, and so is what a change of size costs."""

import pytest

from elastic.policy.accounts import MOST_SIZES, SizeSpeeds

ONE, TWO = (1, 1, None), (2, 1, None)


class Run:
    """A job that is looked at four times a second."""

    def __init__(self, book=None):
        self.book = book or SizeSpeeds()
        self.now_s = 100.0
        self.records = 0.0

    def go(self, seconds, size, per_s):
        for _ in range(round(seconds * 4)):
            self.now_s += 0.25
            self.records += per_s / 4
            self.book.look(self.now_s, size, round(self.records))
        return self.book


def test_a_speed_is_told_once_the_job_has_settled():
    run = Run()
    assert run.go(15, ONE, 40).told == {}
    assert run.go(10, ONE, 40).told == {ONE: pytest.approx(40, rel=0.01)}


def test_each_size_has_its_own():
    run = Run()
    run.go(25, ONE, 40)
    run.go(25, TWO, 70)
    assert run.book.told == {ONE: pytest.approx(40, rel=0.01), TWO: pytest.approx(70, rel=0.01)}


def test_the_newest_measurement_counts_most():
    run = Run()
    run.go(21, ONE, 40)
    assert run.go(10, ONE, 80).told[ONE] == pytest.approx(60, abs=3)
    assert run.go(60, ONE, 80).told[ONE] == pytest.approx(80, rel=0.02)


def test_growing_costs_what_those_there_before_did_not_do():
    run = Run()
    run.go(25, ONE, 40)
    run.go(4, TWO, 0)
    run.go(25, TWO, 40)
    # Nothing for 4 of 10 seconds.
    assert run.book.rescale_s == pytest.approx(4, abs=0.3)


def test_growing_without_a_pause_costs_nothing():
    run = Run()
    run.go(25, ONE, 40)
    assert run.go(25, TWO, 70).rescale_s == 0


def test_shrinking_costs_what_those_left_would_have_done():
    run = Run()
    run.go(25, TWO, 70)
    run.go(5, ONE, 0)
    assert run.go(25, ONE, 40).rescale_s == pytest.approx(5, abs=0.3)


def test_a_long_standstill_after_a_change_is_all_of_it_cost():
    run = Run()
    run.go(25, ONE, 40)
    run.go(20, TWO, 0)
    assert run.go(40, TWO, 70).rescale_s == pytest.approx(20, abs=0.5)


def test_sizes_that_do_not_last_are_one_change():
    run = Run()
    run.go(25, ONE, 40)
    run.go(3, TWO, 0)
    run.go(3, (3, 1, None), 0)
    assert run.go(40, (4, 1, None), 100).rescale_s == pytest.approx(6, abs=1)


def test_what_a_master_did_again_is_no_speed():
    run = Run()
    run.go(25, ONE, 40)
    run.records = 0
    assert run.go(12, ONE, 40).told[ONE] == pytest.approx(40, rel=0.02)


def test_pauses_are_no_part_of_a_speed():
    run = Run()
    run.go(11, ONE, 40)
    run.go(30, None, 0)
    assert run.go(21, ONE, 40).told[ONE] == pytest.approx(40, rel=0.02)


def test_a_next_life_goes_on_with_what_was_told():
    book = SizeSpeeds.of([(ONE, 40.0)], 3.0)
    run = Run(book)
    run.go(1, None, 0)
    assert (book.told, book.rescale_s) == ({ONE: 40.0}, 3.0)


def test_the_sizes_measured_longest_ago_are_forgotten():
    run = Run(SizeSpeeds.of([((size, 1, None), 1.0) for size in range(1, MOST_SIZES + 1)], None))
    run.go(25, (99, 1, None), 40)
    assert len(run.book.told) == MOST_SIZES
    assert ONE not in run.book.told


def test_another_batch_is_another_size_and_costs_nothing():
    run = Run()
    run.go(25, (2, 1, 64), 40)
    run.go(4, (2, 1, 128), 0)
    run.go(25, (2, 1, 128), 60)
    assert run.book.told == {
        (2, 1, 64): pytest.approx(40, rel=0.01), (2, 1, 128): pytest.approx(60, rel=0.01),
    }  # fmt: skip
    assert run.book.rescale_s is None


def test_it_says_when_a_speed_was_measured():
    book = SizeSpeeds()
    told = [book.look(second, ONE, second) for second in range(35)]
    assert [second for second, is_measured in enumerate(told) if is_measured] == [20, 30]
