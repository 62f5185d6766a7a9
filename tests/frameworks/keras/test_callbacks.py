"""Callbacks of Keras are called as Keras calls them, with what the master knows."""

import numpy as np
import pytest

from elastic.errors import ModelDefError
from elastic.frameworks import load_framework
from elastic.spec.model_def import ModelDef
from elastic.spec.platforms import Mode

FRAMEWORK = load_framework("keras")

import keras  # noqa: E402 - load_framework chooses its backend first

LambdaCallback, ModelCheckpoint = keras.callbacks.LambdaCallback, keras.callbacks.ModelCheckpoint


def build(*callbacks, num_epochs=3):
    """What the master makes of a user's callbacks."""
    model_def = ModelDef(
        "net", "keras", lambda: keras.Sequential([keras.layers.Dense(1)]),
        lambda labels, predictions: keras.ops.mean((labels - predictions) ** 2),
        keras.optimizers.SGD,
        lambda dataset, mode: dataset.map(lambda record: (record["x"], record["x"])),
        callbacks=lambda: list(callbacks),
    )  # fmt: skip
    records = [{"x": np.ones(1, np.float32)}]
    batch = FRAMEWORK.make_batch(model_def, records, Mode.TRAINING)
    model = FRAMEWORK.build_model(model_def, {}, batch, 1)
    updater = FRAMEWORK.build_updater(model_def, model)
    return FRAMEWORK.build_callbacks(
        model_def, model, updater, is_local=False, num_epochs=num_epochs, with_metrics=False
    )


def test_every_hook_takes_logs():
    calls = []
    [callback] = build(
        LambdaCallback(
            on_train_begin=lambda logs: calls.append(("begin", logs)),
            on_epoch_begin=lambda epoch, logs: calls.append((epoch, logs)),
            on_epoch_end=lambda epoch, logs: calls.append((epoch, logs)),
            on_train_end=lambda logs: calls.append(("end", logs)),
        )
    )
    callback.on_train_begin()
    callback.on_epoch_begin(0)
    callback.on_epoch_end(0, {"loss": 0.5})
    callback.on_train_end()
    assert calls == [("begin", {}), (0, {}), (0, {"loss": 0.5}), ("end", {})]


def test_hooks_know_how_many_epochs_there_are():
    told = []
    made = LambdaCallback(on_train_begin=lambda logs: told.append(made.params))
    [callback] = build(made, num_epochs=7)
    callback.on_train_begin()
    assert told == [{"epochs": 7, "steps": None, "verbose": 0}]


def test_metrics_in_the_names_of_files_are_watched():
    path = "{epoch:02d}-{loss:.2f}-{val_loss:.2f}-{val_pair[0]}-{{val_none}}.keras"
    every, best, plain = build(
        ModelCheckpoint(path),
        ModelCheckpoint("{val_auc}.keras", "val_accuracy", mode="max", save_best_only=True),
        ModelCheckpoint("{epoch}.keras"),
    )
    assert (every.monitor, every.also_watched) == (None, ("loss", "pair"))
    assert (best.monitor, best.also_watched) == ("accuracy", ("auc",))
    assert (plain.monitor, plain.also_watched) == (None, ())


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("{accuracy}.keras", "callbacks gives a ModelCheckpoint whose filepath has a place for "
         "'accuracy': there are 'epoch', 'loss' and the metrics of the evaluations"),
        ("{batch:03d}.keras", "whose filepath has a place for 'batch'"),
        ("{}.keras", "whose filepath has a place for ''"),
        ("{epoch.keras", "the filepath of the callback ModelCheckpoint failed: ValueError"),
    ],
)  # fmt: skip
def test_a_name_that_could_not_be_made_is_refused(path, words):
    with pytest.raises(ModelDefError, match=words):
        build(ModelCheckpoint(path))


def test_a_goal_is_asked_only_of_who_compares(tmp_path):
    every = ModelCheckpoint(str(tmp_path / "{epoch}.keras"), "val_accuracy")
    [callback] = build(every)
    callback.on_train_begin()
    callback.on_epoch_end(0, {"loss": 0.5})
    assert [path.name for path in tmp_path.iterdir()] == ["1.keras"]
    [callback] = build(ModelCheckpoint("best.keras", "val_accuracy", save_best_only=True))
    with pytest.raises(ModelDefError, match="Pass `mode='max'`"):
        callback.on_train_begin()


def test_a_log_that_could_not_be_taken_back_is_refused():
    words = "callbacks gives a CSVLogger for 'gs://bucket/log.csv', where rows .* use --tensorboard"
    with pytest.raises(ModelDefError, match=words):
        build(keras.callbacks.CSVLogger("gs://bucket/log.csv"))
