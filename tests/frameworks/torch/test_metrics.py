"""Metric objects of torch's world: their sums add up over any split of the records."""

from pathlib import Path

import numpy as np
import pytest
import torch
from frameworks.torch.test_torch import assert_equal, build, make_batch, make_def

from elastic.errors import CheckpointError, ModelDefError
from elastic.frameworks.base import Batch, MetricState


class MacroRecall:
    """One of a user's own, with numbers that are no sums among its attributes."""

    def __init__(self, threshold=0.5):
        self.threshold = threshold
        self.reset()

    def reset(self):
        self.hits = torch.zeros(2)
        self.positives = torch.zeros(2)
        self.num_updates = 0

    def update(self, predictions, labels):
        positive = labels > 0
        self.hits += (positive & (predictions > self.threshold)).sum(0)
        self.positives += positive.sum(0)
        self.num_updates += 1

    def compute(self):
        return (self.hits / self.positives).mean()


class Declared(torch.nn.Module):
    """In the form of torchmetrics: states are declared, and a result is kept until it changes."""

    def __init__(self, default, fold):
        super().__init__()
        self._defaults = {"state": default}
        self._fold = fold
        self._computed = None
        self.reset()

    @property
    def metric_state(self):
        return {name: getattr(self, name) for name in self._defaults}

    def reset(self):
        for name, default in self._defaults.items():
            setattr(self, name, [] if default == [] else default.clone())
        self._computed = None

    def update(self, predictions, labels):
        self.state = self._fold(self.state, predictions)
        self._computed = None

    def compute(self):
        if self._computed is None:
            self._computed = self.state * 1
        return self._computed

    def forward(self, predictions, labels):
        raise AssertionError("it is no function of labels and predictions")


def summing(default=None):
    zeros = torch.zeros(2) if default is None else default
    return Declared(zeros, lambda state, predictions: state + predictions.sum(0))


def pieces_of(batch, *ends):
    starts = (0, *ends)
    return [
        Batch(batch.features[a:b], batch.labels[a:b], b - a)
        for a, b in zip(starts, (*ends, batch.num_examples), strict=True)
    ]


def merged(model, batches):
    """As a master adds up what workers report."""
    each = [model.metrics(batch) for batch in batches]
    return [
        MetricState(states[0].name, tuple(map(sum, zip(*(s.values for s in states), strict=True))))
        for states in zip(*each, strict=True)
    ]


def test_they_add_up_over_any_split_in_another_process():
    model_def = make_def(
        eval_metrics_fn=lambda: {
            "recall": MacroRecall(0.1),
            "sums": summing(),
            "mae": lambda labels, predictions: (labels - predictions).abs(),
        }
    )
    worker, master = build(model_def), build(model_def)
    batch = make_batch(size=20)
    results = master.metric_results(merged(worker, pieces_of(batch, 3, 4, 15)))
    with torch.no_grad():
        predictions = worker.module(batch.features)
    recall = MacroRecall(0.1)
    recall.update(predictions, batch.labels)
    assert results["recall"] == pytest.approx(float(recall.compute()), abs=1e-6)
    sums = predictions.sum(0)
    assert [results["sums_0"], results["sums_1"]] == pytest.approx(sums.tolist(), abs=1e-5)
    assert list(results) == ["loss", "recall", "sums_0", "sums_1", "mae"]


def test_an_earlier_result_is_not_told_again():
    model = build(make_def(eval_metrics_fn=lambda: {"sums": summing()}))
    first, second = make_batch(0), make_batch(1)
    of_first = model.metric_results(model.metrics(first))
    of_second = model.metric_results(model.metrics(second))
    assert of_first["sums_0"] != of_second["sums_0"]
    assert model.metric_results(model.metrics(first)) == of_first


def test_large_counts_stay_exact():
    """Beyond 2**24 float32 does not count any more."""
    model = build(make_def(eval_metrics_fn=lambda: {"sums": summing()}))
    (_, state) = model.metrics(make_batch())
    assert [value.dtype for value in state.values] == [np.float64]


LARGEST = Declared(torch.zeros(2), lambda s, p: torch.maximum(s, p.abs().amax(0)))


class Smallest(MacroRecall):
    """Begins with a number that is no sum."""

    def reset(self):
        super().reset()
        self.smallest = torch.tensor(1e9)

    def update(self, predictions, labels):
        super().update(predictions, labels)
        self.smallest = torch.minimum(self.smallest, predictions.min())


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        pytest.param(LARGEST, "'state' of its Declared is no sum", id="largest"),
        pytest.param(Smallest(), "'smallest' of its Smallest is no sum", id="smallest"),
        pytest.param(
            Declared([], lambda s, p: [*s, p]), "'state' of its Declared is no sum", id="examples"
        ),
    ],
)
def test_what_cannot_be_added_up_is_refused(metric, message):
    model = build(make_def(eval_metrics_fn=lambda: {"worst": metric}))
    with pytest.raises(ModelDefError) as caught:
        model.metrics(make_batch())
    assert str(caught.value).startswith(
        f"metric 'worst' cannot be put together from minibatches: {message} over the examples"
    )


def test_one_that_keeps_nothing_is_refused():
    class Empty:
        def reset(self): ...
        def update(self, predictions, labels): ...
        def compute(self): ...

    model = build(make_def(eval_metrics_fn=lambda: {"none": Empty()}))
    with pytest.raises(ModelDefError, match="metric 'none' keeps nothing that is 0 after reset"):
        model.metrics(make_batch())


def test_sums_of_another_metric_are_refused():
    one = build(make_def(eval_metrics_fn=lambda: {"m": summing()}))
    other = build(make_def(eval_metrics_fn=lambda: {"m": MacroRecall()}))
    with pytest.raises(CheckpointError, match="the metric 'm' keeps 3 sums here and 1 there"):
        other.metric_results(one.metrics(make_batch()))


def line_of(text):
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.strip().startswith(text))


class Breaks(MacroRecall):
    def update(self, predictions, labels):
        raise ValueError("no luck in update")

    def compute(self):
        raise ValueError("no luck in compute")


class BreaksLate(MacroRecall):
    compute = Breaks.compute


def breaks(labels, predictions):
    raise ValueError("no luck in a function")


@pytest.mark.parametrize(
    ("metric", "text"),
    [(Breaks(), "update"), (BreaksLate(), "compute"), (breaks, "a function")],
)
def test_one_that_fails_names_itself_and_its_line(metric, text):
    model = build(make_def(eval_metrics_fn=lambda: {"fine": MacroRecall(), "bad": metric}))
    with pytest.raises(ModelDefError) as caught:
        model.metric_results(model.metrics(make_batch()))
    line = line_of(f'raise ValueError("no luck in {text}")')
    assert str(caught.value) == (
        f"metric 'bad' failed: ValueError: no luck in {text} ({Path(__file__)}:{line})"
    )


def test_a_training_step_measures_its_own_predictions_and_is_the_same_step():
    def largest(labels, predictions):
        return torch.tensor(predictions.numpy()).amax(1)

    model_def = make_def(eval_metrics_fn=lambda: {"sums": summing(), "largest": largest})
    measured, plain = build(model_def), build(model_def)
    batch = make_batch()
    result = measured.gradients(batch, 5, with_metrics=True)
    other = plain.gradients(batch, 5)
    assert not other.metrics
    assert_equal(result.gradients, other.gradients)
    assert_equal(result.state, other.state)
    again = build(model_def)
    again.module.train()
    predictions = again.module(batch.features).detach()
    found = measured.metric_results(result.metrics)
    assert list(found) == ["sums_0", "sums_1", "largest"]
    assert found["sums_0"] == pytest.approx(float(predictions[:, 0].sum()), abs=1e-6)
    assert found["largest"] == pytest.approx(float(predictions.amax(1).mean()), abs=1e-6)
