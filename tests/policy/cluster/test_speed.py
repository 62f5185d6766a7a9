"""Speeds of sizes that were not seen, from those that were."""

import pytest

from elastic.policy.cluster.snapshot import Speed
from elastic.policy.cluster.speed import fit

BATCH = 1024


def true_rate(replicas, nodes):
    """A job whose minibatches cost 1 ms a sample and whose exchange costs 50 ms, 150 over nodes."""
    network = 0.0 if replicas == 1 else 0.05 if nodes == 1 else 0.15
    return BATCH / (0.001 * BATCH / replicas + network)


def seen(*sizes):
    return tuple(Speed(k, nodes, true_rate(k, nodes), BATCH) for k, nodes in sizes)


def test_nothing_seen_is_no_model():
    assert fit(()) is None
    assert fit((Speed(2, 1, 0.0),)) is None


@pytest.mark.parametrize("size", [(1, 1), (4, 1), (8, 2)])
def test_one_size_is_taken_to_grow_in_proportion_so_that_more_is_tried(size):
    model = fit(seen(size))
    rate = true_rate(*size)
    assert model.samples_per_s(2 * size[0], 2) == pytest.approx(2 * rate, rel=1e-6)


def test_a_measured_size_is_what_was_measured():
    model = fit(seen((1, 1), (4, 1), (8, 2)))
    assert model.samples_per_s(4, 1) == pytest.approx(true_rate(4, 1))


def test_a_few_sizes_tell_the_others():
    model = fit(seen((1, 1), (2, 1), (4, 1), (8, 2), (12, 3)))
    for replicas, nodes in [(3, 1), (6, 2), (16, 4), (24, 6)]:
        assert model.samples_per_s(replicas, nodes) == pytest.approx(
            true_rate(replicas, nodes), rel=0.15
        )


def test_minibatches_accumulated_before_an_exchange_compute_only():
    """With 256 at most on a replica, four of 1,024 on one node accumulate and exchange once."""

    def rate(replicas):
        parts = max(1, BATCH // (replicas * 256))
        local = BATCH / replicas / parts
        return BATCH / (parts * (0.02 + 0.001 * local) + (0.05 if replicas > 1 else 0.0))

    speeds = tuple(Speed(k, 1, rate(k), BATCH) for k in (1, 2, 8))
    model = fit(speeds, BATCH, 256)
    assert model.samples_per_s(4, 1) == pytest.approx(rate(4), rel=0.1)


def test_a_larger_batch_gains_where_computing_is_told_apart():
    """Half a step of 64 samples is spent in the exchange: a batch of 256 is nearly as quick."""
    speeds = tuple(
        Speed(4, 2, batch / (0.1 + 0.1 * batch / 64), batch, 0.1 * batch / 64)
        for batch in (64, 128)
    )
    model = fit(speeds, 64, None)
    gained = model.samples_per_s(4, 2, 512) / model.samples_per_s(4, 2, 64)
    assert gained == pytest.approx(16 / 9, rel=0.15)


def test_the_order_of_what_was_seen_does_not_matter():
    sizes = seen((8, 2), (1, 1), (4, 1))
    assert fit(sizes) == fit(sizes[::-1])


def test_sizes_that_are_equally_fast_do_not_promise_any_speed_to_smaller_ones():
    model = fit(tuple(Speed(k, 2, 100.0, BATCH) for k in (4, 6, 8)))
    assert model.samples_per_s(1, 1) <= 1.5 * 100.0 / 4
