"""Speeds of sizes that were not seen, from those that were."""

from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic.policy.cluster import Speed
from elastic.policy.scaling import speed
from elastic.policy.scaling.speed import FREE_TRIALS, OVERLAPS, Seen, fit, fit_all, speeds_at

BATCH = 1024


def true_rate(replicas, nodes):
    """A job whose minibatches cost 1 ms a sample and whose exchange costs 50 ms, 150 over nodes."""
    network = 0.0 if replicas == 1 else 0.05 if nodes == 1 else 0.15
    return BATCH / (0.001 * BATCH / replicas + network)


def seen(*sizes):
    return tuple(Speed(k, nodes, true_rate(k, nodes), BATCH) for k, nodes in sizes)


def test_nothing_seen_is_no_model():
    assert fit(Seen(())) is None
    assert fit(Seen((Speed(2, 1, 0.0),))) is None


@pytest.mark.parametrize("size", [(1, 1), (4, 1), (8, 2)])
def test_one_size_is_taken_to_grow_in_proportion_so_that_more_is_tried(size):
    model = fit(Seen(seen(size)))
    rate = true_rate(*size)
    assert model.samples_per_s(2 * size[0], 2) == pytest.approx(2 * rate, rel=1e-6)


def test_a_measured_size_is_what_was_measured():
    model = fit(Seen(seen((1, 1), (4, 1), (8, 2))))
    assert model.samples_per_s(4, 1) == pytest.approx(true_rate(4, 1))


def test_a_few_sizes_tell_the_others():
    model = fit(Seen(seen((1, 1), (2, 1), (4, 1), (8, 2), (12, 3))))
    for replicas, nodes in [(3, 1), (6, 2), (16, 4), (24, 6)]:
        assert model.samples_per_s(replicas, nodes) == pytest.approx(
            true_rate(replicas, nodes), rel=0.15
        )


def test_one_job_of_many_is_as_it_was_seen_and_elsewhere_as_much_faster():
    sizes = ((1, 1), (4, 1), (8, 2))
    model = fit(Seen(seen(*sizes)))
    own = {(4, 1, BATCH): 2 * true_rate(4, 1)}
    fast = model.of_one(own)
    for replicas, nodes in (*sizes, (16, 4)):
        rate = model.samples_per_s(replicas, nodes)
        assert fast.samples_per_s(replicas, nodes) == pytest.approx(2 * rate)
    assert model.of_one({}) == model


def test_minibatches_accumulated_before_an_exchange_compute_only():
    """With 256 at most on a replica, four of 1,024 on one node accumulate and exchange once."""

    def rate(replicas):
        parts = max(1, BATCH // (replicas * 256))
        local = BATCH / replicas / parts
        return BATCH / (parts * (0.02 + 0.001 * local) + (0.05 if replicas > 1 else 0.0))

    speeds = tuple(Speed(k, 1, rate(k), BATCH) for k in (1, 2, 8))
    model = fit(Seen(speeds, BATCH, 256))
    assert model.samples_per_s(4, 1) == pytest.approx(rate(4), rel=0.1)


def test_a_larger_batch_gains_where_computing_is_told_apart():
    """Half a step of 64 samples is spent in the exchange: a batch of 256 is nearly as quick."""
    speeds = tuple(
        Speed(4, 2, batch / (0.1 + 0.1 * batch / 64), batch, 0.1 * batch / 64)
        for batch in (64, 128)
    )
    model = fit(Seen(speeds, 64))
    gained = model.samples_per_s(4, 2, 512) / model.samples_per_s(4, 2, 64)
    assert gained == pytest.approx(16 / 9, rel=0.15)


def test_the_order_of_what_was_seen_does_not_matter():
    sizes = seen((8, 2), (1, 1), (4, 1))
    assert fit(Seen(sizes)) == fit(Seen(sizes[::-1]))


def test_sizes_that_are_equally_fast_do_not_promise_any_speed_to_smaller_ones():
    model = fit(Seen(tuple(Speed(k, 2, 100.0, BATCH) for k in (4, 6, 8))))
    assert model.samples_per_s(1, 1) <= 1.5 * 100.0 / 4


sizes_seen = st.lists(
    st.builds(
        Speed,
        replicas=st.sampled_from([1, 2, 3, 4, 8, 16]),
        nodes=st.integers(1, 4),
        samples_per_s=st.floats(0.1, 1e4),
        global_batch_size=st.sampled_from([64, 64, 96]),
        compute_s=st.none() | st.floats(0.01, 10.0),
    ),
    min_size=2,
    max_size=6,
    unique_by=lambda each: each.replicas,
)
jobs_seen = st.builds(
    Seen,
    speeds=sizes_seen.map(tuple),
    batch=st.sampled_from([None, 64]),
    max_local_batch=st.sampled_from([None, 16, 40]),
)


@pytest.mark.parametrize("overlaps", [OVERLAPS, FREE_TRIALS])
@settings(max_examples=4, derandomize=True)
@given(many=st.lists(jobs_seen, min_size=33, max_size=40))
def test_many_jobs_at_once_learn_the_same_as_one_by_one(overlaps, many):
    many = [*many, Seen(()), Seen(seen((4, 1)))]
    alone = [fit(each, overlaps) for each in many]
    assert fit_all(many, overlaps) == alone
    # And in parts, of which the last has few.
    with patch.object(speed, "_AT_ONCE", len(many) - 3):
        assert fit_all(many, overlaps) == alone


@pytest.mark.parametrize("overlaps", [OVERLAPS, FREE_TRIALS])
@settings(max_examples=20, derandomize=True)
@given(many=st.lists(jobs_seen, min_size=1, max_size=8), most=st.integers(1, 8))
def test_speeds_of_many_jobs_at_once_are_the_same_as_one_by_one(overlaps, many, most):
    models = fit_all(many, overlaps)
    sizes = [range(1 + at % 2, 20) for at in range(len(models))]
    nodes = [[-(-size // most) for size in each] for each in sizes]
    alone = [
        tuple(model.samples_per_s(*size) for size in zip(*each, strict=True))
        for model, *each in zip(models, sizes, nodes, strict=True)
    ]
    assert speeds_at(models, sizes, nodes) == alone
    assert speeds_at([], [], []) == []
