"""The batch that a master chooses between those that its user allows."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic.policy.cluster import ElasticBatch, Group, Job, JobPhase, Speed, Telling
from elastic.policy.scaling.offers import efficiency, offers_of
from elastic.policy.updates.elastic_batch import (
    LEAST_GAIN,
    MEASURED,
    MEMORY,
    BatchChoice,
    EarlierBatch,
    GradientNoise,
    GroupGradients,
    NoiseGrowth,
    elastic_batch,
    rate_gain,
)
from elastic.spec.values import BatchRange

LIMITS = BatchRange(64, 512)
NOISY = GradientNoise(1.0, 64_000.0, MEASURED)
QUIET = GradientNoise(1.0, 1.0, MEASURED)
LOST = GradientNoise(-1.0, 5.0, MEASURED)


def choice(noise=NOISY, batch=64, is_proportional=True, size=16):
    return BatchChoice(LIMITS, size, is_proportional, batch, noise)


def take(own, num, scale):
    """Updates of two gradients each, whose noise has this scale."""
    one = own.batch // 2
    for _ in range(num):
        own.take(GroupGradients(2, one, 1.0 + scale / one, 1.0 + scale / own.batch))


def test_before_the_noise_is_known_nothing_changes():
    unknown = choice(GradientNoise(1.0, 64_000.0, MEASURED - 1))
    assert unknown.reconsider([Speed(2, 1, 100.0, 64)], 2, 1) is None
    assert (unknown.batch, unknown.rate_scale(512)) == (64, 1.0)


def test_another_batch_is_tried_that_wastes_little():
    noisy, quiet = choice(NOISY), choice(QUIET)
    assert noisy.reconsider([Speed(2, 1, 100.0, 64)], 2, 1) == (
        "updates of 512 records instead of 64, each worth 99%: to see how fast it is"
    )
    assert (noisy.batch, noisy.num_gradients) == (512, 32)
    quiet.reconsider([Speed(2, 1, 100.0, 64)], 2, 1)
    assert quiet.batch == 96
    back = quiet.reconsider([Speed(2, 1, 100.0, 64), Speed(2, 1, 110.0, 96)], 2, 1)
    assert (
        back == "updates of 64 records instead of 96, each worth 100%: 36% more progress a second"
    )


def test_what_was_measured_decides():
    seen = [Speed(2, 1, 100.0, 64), Speed(2, 1, 190.0, 512)]
    better = choice(NOISY, 64)
    assert "more progress a second" in better.reconsider(seen, 2, 1)
    assert better.batch > 64
    # Whose records are worth a third at 512: 64 is as good as twice as fast there.
    worse = choice(GradientNoise(1.0, 64.0, MEASURED), 512)
    assert worse.reconsider(seen, 2, 1)
    assert worse.batch < 512


@settings(max_examples=15, deadline=None)
@given(st.floats(0.98, 1.02), st.lists(st.floats(0.98, 1.02), min_size=20, max_size=20))
def test_speeds_that_are_measured_twice_do_not_move_it(start, wobbles):
    """All batches are alike, but for what measuring gives."""
    speeds = dict.fromkeys(range(64, 513, 16), 100.0 * start)
    steady = choice(GradientNoise(1.0, 1e9, MEASURED), 256)
    for wobble in wobbles:
        speeds[steady.batch] = 100.0 * wobble
        seen = [Speed(2, 1, each, batch) for batch, each in speeds.items()]
        assert steady.reconsider(seen, 2, 1) is None


def test_a_change_promises_something():
    seen = [Speed(2, 1, 100.0, batch) for batch in range(64, 512, 16)]
    noise = GradientNoise(0.0, 1e9, MEASURED)
    little, enough = (choice(noise) for _ in range(2))
    assert little.reconsider([*seen, Speed(2, 1, 100 * (LEAST_GAIN + 0.99), 512)], 2, 1) is None
    assert enough.reconsider([*seen, Speed(2, 1, 100 * (LEAST_GAIN + 1.01), 512)], 2, 1)


def test_each_worker_has_a_minibatch():
    many = choice(QUIET)
    seen = [Speed(8, 1, 100.0, 64), Speed(8, 1, 210.0, 128)]
    assert many.reconsider(seen, 8, 1)
    assert many.batch == 128


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([NOISY, QUIET, LOST]),
    st.integers(1, 8),
    st.lists(st.tuples(st.integers(4, 32), st.floats(1.0, 1000.0)), min_size=1, max_size=6),
)
def test_it_is_in_whole_minibatches_and_within_what_is_allowed(noise, workers, measured):
    chosen = choice(noise)
    for count, speed in measured:
        chosen.reconsider([Speed(workers, 1, speed, count * 16)], workers, 1)
        assert LIMITS.minimum <= chosen.batch <= LIMITS.maximum
        assert chosen.batch == chosen.num_gradients * 16


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.integers(32, 1024))
def test_the_rate_grows_by_no_more_than_the_batch(sqr, var, num_records):
    batch = ElasticBatch(64, 512, sqr, var)
    gain = rate_gain(batch, num_records)
    assert 1.0 - 1e-9 <= gain <= max(1.0, num_records / 64) * (1 + 1e-9)


def test_the_rate_follows_the_optimizer():
    assert choice(NOISY).rate_scale(256) == pytest.approx(4.0, rel=0.01)
    assert choice(NOISY, is_proportional=False).rate_scale(256) == pytest.approx(2.0, rel=0.01)
    assert choice(QUIET).rate_scale(256) == pytest.approx(1.0, rel=0.02)
    assert choice(NOISY).rate_scale(16) == 1.0
    # Without a gradient to be seen all is noise.
    assert choice(LOST).rate_scale(256) == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("earlier", "batch", "noise"),
    [
        pytest.param(None, 64, GradientNoise(), id="begins-small"),
        pytest.param(EarlierBatch(256, NOISY), 256, NOISY, id="goes-on"),
        pytest.param(EarlierBatch(1024, NOISY), 64, NOISY, id="too-large-now"),
        pytest.param(EarlierBatch(72, NOISY), 64, NOISY, id="other-minibatches-now"),
    ],
)
def test_a_next_life_goes_on_with_what_was_told(earlier, batch, noise):
    begun = BatchChoice.begun(LIMITS, 16, True, earlier)
    assert (begun.batch, begun.noise) == (batch, noise)


def test_what_the_first_updates_were_like_is_kept():
    own = choice(GradientNoise())
    take(own, MEMORY, 2.0)
    first = own.noise
    assert own.first_noise == first
    take(own, 2 * MEMORY, 100.0)
    assert own.noise.scale > 10 * first.scale
    assert own.first_noise == first
    goes_on = BatchChoice.begun(LIMITS, 16, True, EarlierBatch(64, own.noise, own.first_noise))
    take(goes_on, 1, 100.0)
    assert goes_on.first_noise == first


def with_another_batch(own):
    seen = [Speed(2, 1, 100.0, 64), Speed(2, 1, 400.0, 256), Speed(2, 1, 10.0, 512)]
    assert own.reconsider(seen, 2, 1)
    return own.batch / 64


def test_how_noise_grows_with_the_batch_is_seen_where_it_is_changed():
    own = choice(GradientNoise())
    take(own, MEASURED, 1000.0)
    change = with_another_batch(own)
    assert change >= 2
    # Until enough is known of the new batch that of before counts.
    take(own, MEASURED - 1, 1000.0 * change)
    assert own.noise.scale == pytest.approx(1000.0)
    assert own.told.measured_at == 64
    take(own, 1, 1000.0 * change)
    assert own.noise.scale == pytest.approx(1000.0 * change)
    assert own.told.measured_at == own.batch
    take(own, MEMORY - MEASURED - 1, 1000.0 * change)
    assert own.told.noise_growth is None
    take(own, 1, 1000.0 * change)
    assert own.told.noise_growth == pytest.approx(1.0)
    take(own, MEMORY, 1000.0 * change)
    assert own.growth.num_changes == 1
    # The first updates are those before the change.
    assert own.first_noise.scale == pytest.approx(1000.0)


def test_what_noise_is_taken_to_be_elsewhere_does_not_raise_the_rate():
    measured = choice(GradientNoise(1.0, 64.0, MEASURED))
    guessed = replace(measured, growth=NoiseGrowth(1.0, 1))
    assert guessed.rate_scale(512) == measured.rate_scale(512)
    assert efficiency(guessed.told, 512) > efficiency(measured.told, 512)


@pytest.mark.parametrize(
    ("change", "now", "seen"),
    [
        pytest.param(4.0, 800.0, NoiseGrowth(0.75, 2), id="mean-of-both"),
        pytest.param(0.25, 50.0, NoiseGrowth(0.25, 2), id="smaller"),
        pytest.param(1.9, 400.0, NoiseGrowth(0.0, 1), id="little-change"),
        pytest.param(4.0, -5.0, NoiseGrowth(0.0, 1), id="hidden-by-noise"),
    ],
)
def test_each_change_that_is_large_enough_counts_once(change, now, seen):
    before = GradientNoise(1.0, 100.0, MEMORY)
    after = GradientNoise(1.0 if now > 0 else now, abs(now), MEMORY)
    grown = NoiseGrowth(0.0, 1).after(change, before, after)
    assert grown == (pytest.approx(seen.power), seen.num_changes)


def test_a_next_life_goes_on_with_how_noise_grows():
    told = EarlierBatch(256, NOISY, QUIET, 64, NoiseGrowth(0.5, 3))
    begun = BatchChoice.begun(LIMITS, 16, True, told)
    assert (begun.told.measured_at, begun.told.noise_growth) == (64, 0.5)
    # What is no batch any more is what was measured at nevertheless.
    begun = BatchChoice.begun(LIMITS, 16, True, EarlierBatch(1024, NOISY))
    assert (begun.batch, begun.told.measured_at) == (64, 1024)


def test_where_the_batch_is_another_before_its_noise_is_known_it_is_measured_anew():
    few = GradientNoise(1.0, 5.0, 3)
    begun = BatchChoice.begun(LIMITS, 16, True, EarlierBatch(1024, few, few))
    take(begun, MEASURED, 300.0)
    assert begun.noise.scale == pytest.approx(300.0)
    assert begun.first_noise == begun.noise


@pytest.mark.parametrize("noise", [NOISY, QUIET, LOST])
def test_the_policy_of_the_cluster_would_choose_the_same(noise):
    seen = (Speed(2, 1, 100.0, 64), Speed(2, 1, 180.0, 512))
    own = choice(noise)
    own.reconsider(seen, 2, 1)
    telling = Telling(
        seen, 1e6, global_batch_size=64, max_local_batch=16,
        elastic_batch=elastic_batch(LIMITS, 16, noise),
    )  # fmt: skip
    workers = Group(1, 4, 2, {}, {}, {"n0": 2})
    job = Job("a", "team", "train", workers, 0.0, JobPhase.RUNNING, telling=telling)
    [offer] = offers_of([job], [8], 100.0)
    assert own.batch == offer.speed_at(2, 1).batch
