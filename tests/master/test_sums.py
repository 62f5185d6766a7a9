"""What is told of an epoch: a mean over its records, and the time that it took."""

import json
import math

import numpy as np
import pytest

from elastic.frameworks.base import MetricState
from elastic.master.coordination.rounds import EpochMeter, MeanLoss
from elastic.policy.tasks.epochs import MAX_EPOCHS, EpochResult


def committed(*pairs):
    """Losses and records of minibatches that have counted together."""
    group = MeanLoss()
    for loss, num_records in pairs:
        group.add(loss, num_records)
    return group


def test_the_loss_is_the_mean_over_the_records_and_not_over_the_minibatches():
    meter = EpochMeter()
    meter.work_begins(10.0)
    meter.loss.take(committed((1.0, 30), (4.0, 10)))
    assert meter.mean_loss == 1.75
    assert meter.end(0, 7, 40, 12.5) == EpochResult(0, 7, 40, 1.75, 2.5)
    assert meter.history[-1].samples_per_s == 16.0


def test_each_epoch_is_told_by_itself():
    meter = EpochMeter()
    assert meter.mean_loss is None
    meter.work_begins(0.0)
    meter.loss.take(committed((8.0, 10)))
    meter.end(0, 1, 10, 1.0)
    assert meter.mean_loss == 8.0, "until something of the next one counts"
    # A callback takes three seconds.
    meter.pause_ends(4.0)
    meter.work_begins(4.5)
    meter.loss.take(committed((2.0, 10)))
    assert meter.mean_loss == 2.0
    assert meter.end(1, 2, 10, 6.0).seconds == 2.0


def test_another_master_goes_on_with_the_epoch_and_leaves_out_the_time_between():
    meter, other = EpochMeter(), EpochMeter()
    meter.work_begins(0.0)
    meter.loss.take(committed((8.0, 10)))
    meter.end(0, 1, 10, 1.0)
    meter.loss.take(committed((3.0, 30)))
    other.restore(json.loads(json.dumps(meter.snapshot(3.0))))
    assert other.mean_loss == 3.0
    other.work_begins(500.0)
    other.loss.take(committed((1.0, 10)))
    assert other.end(1, 5, 40, 502.0) == EpochResult(1, 5, 40, 2.5, 4.0)
    assert [each.epoch for each in other.history] == [0, 1]


def test_the_sums_of_metrics_are_handed_on_exactly():
    meter, other = EpochMeter(), EpochMeter()
    values = (np.array([0.1, 1e300]), np.array([3], np.int64))
    meter.metrics.add([MetricState("recall", values)])
    meter.loss.take(committed((1.0, 3)))
    other.restore(json.loads(json.dumps(meter.snapshot(0.0))))
    other.metrics.add([MetricState("recall", values)])
    [state] = other.metrics.states()
    assert [value.dtype for value in state.values] == [np.float64, np.int64]
    assert [value.tolist() for value in state.values] == [[0.2, 2e300], [6]]
    assert other.end(0, 1, 3, 1.0, {"recall": 0.5}).metrics == {"recall": 0.5}
    assert not other.metrics.states()
    again = EpochMeter()
    again.restore(json.loads(json.dumps(other.snapshot(0.0))))
    assert again.history == other.history


def test_a_cut_of_an_earlier_version_has_the_loss_alone():
    meter = EpochMeter()
    meter.restore({"loss": [20.0, 10]})
    assert meter.mean_loss == 2.0
    meter.restore({})
    assert meter.mean_loss is None


def test_an_epoch_without_gradients_has_no_loss():
    result = EpochMeter().end(0, 0, 40, 1.0)
    assert math.isnan(result.loss)
    assert result.samples_per_s == 0.0


@pytest.mark.parametrize("num_epochs", [MAX_EPOCHS, MAX_EPOCHS + 3])
def test_the_newest_are_remembered(num_epochs):
    meter = EpochMeter()
    for epoch in range(num_epochs):
        meter.end(epoch, epoch, 1, 0.0)
    assert [each.epoch for each in meter.history] == list(range(num_epochs))[-MAX_EPOCHS:]
