"""The noise of gradients is estimated from those of one update, without bias."""

import numpy as np
import pytest

from elastic.policy.updates.elastic_batch import MEASURED, GradientNoise, GroupGradients


def groups(rng, count, num_records, truth, sigma, num_updates):
    """Updates whose gradients are `truth` with noise of `sigma` in each number of each record."""
    for _ in range(num_updates):
        noise = rng.normal(0, sigma / num_records**0.5, (count, truth.size))
        gradients = truth + noise
        mean_square = float((gradients**2).sum(axis=1).mean())
        yield GroupGradients(
            count, num_records, mean_square, float((gradients.mean(axis=0) ** 2).sum())
        )


def measured(*args):
    noise = GradientNoise()
    for group in groups(*args):
        noise = noise.after(group)
    return noise


@pytest.mark.parametrize(("count", "num_records"), [(2, 8), (6, 8), (2, 64)])
def test_it_is_that_which_the_gradients_have(count, num_records):
    rng, truth = np.random.default_rng(3), np.full(1000, 0.4)
    noise = measured(rng, count, num_records, truth, 2.0, 50)
    assert noise.sqr == pytest.approx(float(truth @ truth), rel=0.15)
    assert noise.var == pytest.approx(1000 * 2.0**2, rel=0.05)
    assert noise.scale == pytest.approx(25, rel=0.2)


def test_it_follows_gradients_that_change():
    rng, truth = np.random.default_rng(4), np.full(500, 0.1)
    noise = measured(rng, 4, 8, truth, 1.0, 60)
    for group in groups(rng, 4, 8, truth, 3.0, 300):
        noise = noise.after(group)
    assert noise.var == pytest.approx(500 * 3.0**2, rel=0.05)


def test_it_is_known_after_some_updates():
    group = GroupGradients(2, 8, 3.0, 2.0)
    noise = GradientNoise()
    for _ in range(MEASURED):
        assert not noise.is_known
        assert noise.scale is None
        noise = noise.after(group)
    assert (noise.is_known, noise.num_updates) == (True, MEASURED)


def test_where_noise_hides_the_gradient_there_is_no_scale():
    noise = GradientNoise()
    for _ in range(MEASURED):
        noise = noise.after(GroupGradients(2, 8, 3.0, 1.0))
    assert noise.sqr < 0
    assert noise.scale is None


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_what_is_no_number_does_not_count(wrong):
    noise = GradientNoise(1.0, 2.0, 20)
    assert noise.after(GroupGradients(2, 8, wrong, 1.0)) == noise
