"""What callbacks have decided, and have seen, outlives the master, and nothing else does."""

import asyncio
import json
from functools import partial
from types import SimpleNamespace

import keras
import pytest
import tensorflow as tf

from elastic.callbacks import BestCheckpoint, Callback, EarlyStopping, StopTraining
from elastic.errors import ModelDefError
from elastic.frameworks.keras.callbacks import KerasCallback, KerasCsvLogger
from elastic.master import evaluator
from elastic.master.callbacks import CallbackRunner
from elastic.policy.evaluation import Evaluation


class Stamped(Callback):
    """Notes what is different in each life of a master, and ends training."""

    lives = 0

    def __init__(self, limit=1):
        self.limit = limit

    def on_train_begin(self):
        type(self).lives += 1
        self.began = self.lives

    def on_evaluation_end(self, version, metrics):
        return StopTraining("enough") if version >= self.limit else None


def steering(*callbacks):
    return CallbackRunner(callbacks, SimpleNamespace(version=3), 60.0, lambda *_: None)


async def _life(callbacks, losses=(), before=None):
    """One life of a master; gives the steering, whose snapshot has been through JSON."""
    one = steering(*callbacks)
    await one.begin()
    if before is not None:
        one.restore(json.loads(json.dumps(before.snapshot())))
    for version, metrics in enumerate(losses, 1):
        await one.evaluated(Evaluation(version, 0, metrics), False, None)
    return one


def test_an_ending_outlives_what_a_hook_sets_anew_in_each_life():
    async def play():
        first = await _life([Stamped()], [{"loss": 1.0}])
        assert first.ending is not None
        second = await _life([Stamped()], before=first)
        assert second.ending == first.ending
        changed = await _life([Stamped(limit=5)], before=second)
        assert changed.ending is None, "its author has changed it, to train on"

    asyncio.run(play())


def test_patience_goes_on_where_it_was():
    async def play():
        losses = [{"loss": value} for value in (1.0, 2.0)]
        first = await _life([EarlyStopping(patience=2)], losses)
        second = await _life([EarlyStopping(patience=2)], [{"loss": 3.0}], before=first)
        assert "has not improved on 1" in second.ending.message

    asyncio.run(play())


class Noted:
    """Some hooks of an object that nothing is derived for."""

    __slots__ = ("best", "seen")

    def __init__(self):
        self.seen = {}
        self.best = tf.constant(1e9)

    def on_evaluation_end(self, version, metrics):
        self.seen[version] = (version, metrics["loss"])
        self.best = tf.minimum(self.best, metrics["loss"])


def test_what_an_object_notes_goes_on_as_it_was():
    async def play():
        first = await _life([Noted()], [{"loss": 0.5}])
        noted = Noted()
        await _life([noted], before=first)
        assert noted.seen == {1: (1, 0.5)}
        noted.on_evaluation_end(2, {"loss": 0.25})
        assert float(noted.best) == 0.25

    asyncio.run(play())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (("val_accuracy", "max"), ("val_loss", "min")),
        (("val_accuracy", "max"), ("val_accuracy", "min")),
    ],
)
def test_what_was_seen_of_another_metric_is_forgotten(before, after):
    async def play():
        seen = [{"accuracy": 0.5, "loss": 9.0}] * 2
        first = await _life([EarlyStopping(*before, patience=4)], seen)
        falling = [{"accuracy": value, "loss": value} for value in (2.5, 1.5, 1.0)]
        second = await _life([EarlyStopping(*after, patience=2)], falling, before=first)
        assert second.ending is None

    asyncio.run(play())


@pytest.mark.parametrize("mode", ["min", "auto"])
def test_two_callbacks_that_want_the_same_best_agree_before_training(mode):
    stopping = keras.callbacks.EarlyStopping("val_loss", mode=mode, restore_best_weights=True)
    wrapped = KerasCallback(stopping, keras.Sequential(), None, num_epochs=1)
    steering(wrapped, BestCheckpoint("val_loss")).check(has_data=True, metrics=["loss"])
    other = keras.callbacks.EarlyStopping("val_loss", mode="max", restore_best_weights=True)
    wrapped = KerasCallback(other, keras.Sequential(), None, num_epochs=1)
    with pytest.raises(ModelDefError, match="choose the best version by"):
        steering(wrapped, BestCheckpoint("val_loss")).check(has_data=True, metrics=["loss"])


async def _logged(logger, epochs, cut, cut_before=None):
    """One life that ends without a word; gives the cut before an epoch, or that at the end."""
    model = SimpleNamespace(parameters=dict, state=dict, load=lambda *_: None)
    wrapped = KerasCsvLogger(logger, SimpleNamespace(), None, num_epochs=5)
    store = SimpleNamespace(version=3, model=model, whole=partial(asyncio.sleep, 0, model))
    one = CallbackRunner([wrapped], store, 60.0, lambda *_: None)
    await one.begin()
    if cut is not None:
        one.restore(json.loads(cut))
    for epoch in epochs:
        await one.epoch_begins(epoch)
        if epoch == cut_before:
            cut = json.dumps(one.snapshot())
        await one.epoch_ended(epoch, {"loss": epoch / 2})
    if not epochs:
        await one.end()
    elif cut_before is None:
        cut = json.dumps(one.snapshot())
    logger.csv_file.close()
    return cut


@pytest.mark.parametrize("append", [False, True])
@pytest.mark.parametrize("is_gone", [False, True], ids=["", "file-is-gone"])
@pytest.mark.parametrize("cut_before", [0, 2])
def test_a_log_has_each_epoch_once(append, is_gone, cut_before, tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("of another job\n")

    async def play():
        def logger():
            return keras.callbacks.CSVLogger(str(path), append=append)

        cut = await _logged(logger(), range(3), None, cut_before)
        if is_gone:
            path.unlink()
        cut = await _logged(logger(), range(cut_before, 5), cut)
        for _ in range(2):
            # A master may be lost after its last hooks, too.
            await _logged(logger(), [], cut)

    asyncio.run(play())
    first = "of another job" if append and not is_gone else "epoch,loss,val_loss"
    epochs = range(cut_before if is_gone else 0, 5)
    rows = [f"{epoch},{epoch / 2},NA" for epoch in epochs]
    assert path.read_text().splitlines() == [first, *rows]


@pytest.mark.parametrize(
    ("kept", "logs"),
    [
        ([3, {"accuracy": 0.75, "loss": 0.5}], {"accuracy": 0.75, "loss": 0.5}),
        ([3, None], None),
        # Of an earlier version.
        ([3, 0.5], {"loss": 0.5}),
    ],
)
def test_what_an_epochs_training_came_to_outlives_the_master(kept, logs):
    occasion = evaluator._from_list(kept)
    assert occasion == evaluator.Occasion(3, logs)
    assert evaluator._from_list(json.loads(json.dumps(evaluator._to_list(occasion)))) == occasion
