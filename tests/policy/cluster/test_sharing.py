"""Sizes of jobs that share room: against what theory says, and against all there are."""

import itertools
import math
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic.policy.scaling import sharing
from elastic.policy.scaling.offers import Sizes
from elastic.policy.scaling.sharing import Sharer, targets_of

CARDS = 64


def sharer(rates, sizes=None, cards=CARDS, **more):
    """A job that may have sizes of 1, 2, …, unless said otherwise."""
    sizes = tuple(sizes or range(1, len(rates) + 1))
    told = {
        "share": 1 / cards,
        "beside": 0.0,
        "placed": 0,
        "remaining_samples": 1e6,
        "rescale_s": 0.0,
        "settled_s": math.inf,
        "may_wait": True,
    }
    return Sharer(sizes=Sizes(sizes, tuple(rates), (None,) * len(sizes)), **told | more)


def powers(power, most=CARDS, rate=1.0):
    return [rate * k**power for k in range(1, most + 1)]


def replicas(sharers, room=1.0):
    found = zip(sharers, targets_of(sharers, room), strict=True)
    return [0 if t.place is None else s.sizes.replicas[t.place] for s, t in found]


@pytest.mark.parametrize("power", [0.3, 0.5, 0.8])
@pytest.mark.parametrize("jobs", [1, 2, 5, 9])
def test_jobs_whose_speed_is_a_power_of_their_size_have_what_theory_says(power, jobs):
    """Berg et al., "heSRPT", 2019: of m jobs the i-th from the last has (i^c - (i-1)^c) / m^c, with
    c = 1 / (1 - power).
    """
    c = 1 / (1 - power)
    cards = 640
    each = [sharer(powers(power, cards), cards=cards, rescale_s=0.0) for _ in range(jobs)]
    theory = [cards * (i**c - (i - 1) ** c) / jobs**c for i in range(jobs, 0, -1)]
    assert replicas(each) == pytest.approx(theory, abs=0.02 * cards)


def test_where_speed_is_in_proportion_the_first_to_end_has_all():
    assert replicas([sharer(powers(1.0))] * 3) == [CARDS, 0, 0]


def test_one_that_more_does_not_make_faster_leaves_the_rest_to_others():
    assert replicas([sharer([5.0] * CARDS), sharer(powers(1.0))]) == [1, CARDS - 1]


def test_a_sample_is_worth_what_makes_all_work_worth_the_seconds_it_saves():
    """The equation of the module, for each number of jobs."""
    sharers = [sharer(powers(0.5 + 0.05 * at, rate=at)) for at in range(1, 7)]
    for first in range(len(sharers)):
        behind = sharers[first:]
        worth = sum(target.value for target in targets_of(behind, 1.0))
        assert worth == pytest.approx(len(behind), rel=0.03)


def test_a_change_has_to_be_worth_what_it_costs():
    """Twice the size is a third faster: not within a settled time of twice what a change costs."""
    rates = [3.0, 4.0]
    for rescale_s, size in ((0.0, 2), (30.0, 2), (150.0, 1)):
        job = sharer(rates, cards=2, placed=1, rescale_s=rescale_s, settled_s=300.0)
        assert replicas([job]) == [size]


def test_those_that_may_not_wait_have_their_least_be_there_room_or_not():
    least = [sharer(powers(1.0, 3), sizes=(4, 5, 6), may_wait=False)] * 3
    assert replicas(least, room=8 / CARDS) == [4, 4, 4]
    assert replicas([sharer(powers(1.0)), *least], room=8 / CARDS) == [0, 4, 4, 4]
    assert replicas([sharer(powers(1.0)), *least], room=-1.0) == [0, 4, 4, 4]


def test_what_a_job_needs_beside_its_replicas_counts():
    job = sharer(powers(1.0, 8), cards=8, beside=2 / 8)
    assert replicas([job]) == [6]
    assert replicas([job], room=2 / 8) == [0]


def test_no_jobs_have_nothing():
    assert targets_of([], 1.0) == []


jobs = st.builds(
    sharer,
    rates=st.lists(st.floats(0.1, 100.0), min_size=1, max_size=5),
    cards=st.just(8),
    placed=st.integers(0, 5),
    remaining_samples=st.floats(0.0, 1e6),
    rescale_s=st.floats(0.0, 100.0),
    settled_s=st.sampled_from([300.0, math.inf]),
    may_wait=st.booleans(),
)


def values(sharer, target):
    """Of all its sizes, smallest first."""
    return [
        target.value_of(sharer, rate, stays=size == sharer.placed)
        for size, rate in zip(sharer.sizes.replicas, sharer.sizes.samples_per_s, strict=True)
    ]


@given(sharers=st.lists(jobs, min_size=1, max_size=4), room=st.sampled_from([0.5, 1.0]))
def test_sizes_fit_and_nobody_could_use_what_is_left(sharers, room):
    targets = targets_of(sharers, room)
    has = replicas(sharers, room)
    least = sum(not each.may_wait for each in sharers)
    left = max(least, room * 8) - sum(has)
    assert left >= -1e-6
    for one, target, size in zip(sharers, targets, has, strict=True):
        worth = values(one, target)
        assert size or one.may_wait
        assert target.value == pytest.approx(worth[size - 1] if size else 0.0)
        more = worth[size : size + int(left + 1e-6)]
        assert max(more, default=0.0) <= target.value * (1 + 1e-9)


@given(sharers=st.lists(jobs, min_size=1, max_size=4))
def test_sizes_are_worth_nearly_the_most_of_all_there_are(sharers):
    """A price finds the best but for what it leaves over, which is given out one by one."""
    targets = targets_of(sharers, 1.0)
    options = [
        [*([(0, 0.0)] if one.may_wait else []), *enumerate(values(one, target), 1)]
        for one, target in zip(sharers, targets, strict=True)
    ]
    best = max(
        sum(value for _, value in each) for each in itertools.product(*options)
         if sum(size for size, _ in each) <= 8
    )  # fmt: skip
    assert sum(each.value for each in targets) >= 0.7 * best


def test_of_very_many_jobs_those_that_follow_each_other_are_weighed_together():
    sharers = [
        sharer(powers(0.3 + 0.6 * ((at * 7) % 10) / 10, 16, rate=1.0 + at % 3), cards=400)
        for at in range(100)
    ]
    alone = targets_of(sharers, 1.0)
    with patch.object(sharing, "WEIGHED_APART", 20):
        together = targets_of(sharers, 1.0)
    by_worth = [
        sum(
            exact.worth_s * each.sizes.samples_per_s[found.place]
            for each, exact, found in zip(sharers, alone, targets, strict=True)
            if found.place is not None
        )
        for targets in (alone, together)
    ]
    assert by_worth[1] > 0.97 * by_worth[0]
    assert [each.place for each in together] != [each.place for each in alone]
