"""Ordinary Keras layers that become tables: which do, and that they train as before."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from elastic.errors import ModelDefError
from elastic.frameworks.base import Batch
from elastic.frameworks.keras import KerasFramework
from elastic.spec.model_def import ModelDef

NUM_IDS, DIM = 40, 4
SIZE = NUM_IDS * DIM * 4
IDS = tf.constant([[1, 2, 1], [7, 7, 7], [0, 2, 39]])


def functional(**options):
    """Its layer is in a model within the model."""
    ids = keras.Input((3,), dtype="int32")
    rows = keras.layers.Embedding(NUM_IDS, DIM, name="items", **options)(ids)
    inner = keras.Model(ids, rows, name="inner")
    small = keras.layers.Embedding(NUM_IDS, 1)(ids)
    both = keras.layers.Concatenate()([inner(ids), small])
    return keras.Model(ids, keras.layers.Dense(1)(keras.layers.LSTM(5)(both)))


def sequential(**options):
    return keras.Sequential(
        [
            keras.layers.Embedding(NUM_IDS, DIM, name="items", **options),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(1),
        ]
    )


class Subclassed(keras.Model):
    """Its layer is in a list and in an attribute."""

    def __init__(self, **options):
        super().__init__()
        self.items = keras.layers.Embedding(NUM_IDS, DIM, name="items", **options)
        self.known = [self.items]
        self.last = keras.layers.Dense(1)

    def call(self, ids):
        return self.last(tf.tanh(self.items(ids) + self.known[0](ids[:, ::-1]))[:, 0])


MAKERS = {"functional": functional, "sequential": sequential, "subclassed": Subclassed}


def loss(labels, predictions):
    return tf.reduce_mean((predictions[:, 0] - labels) ** 2)


def built(make, threshold=None, features=IDS):
    model_def = ModelDef("net", "keras", make, loss, lambda: keras.optimizers.SGD(0.1), None, None)
    batch = Batch(features, tf.range(3, dtype=tf.float32) / 4, 3)
    return KerasFramework().build_model(model_def, {}, batch, 1, threshold), batch


class OfTable:
    """Has the rows of one ordinary variable."""

    def __init__(self, values):
        self._values = np.array(values)

    def read(self, table, ids):
        return self._values[ids].copy()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "options", "features"),
    [
        ("functional", {}, IDS),
        ("functional", {"mask_zero": True}, IDS),
        ("sequential", {"mask_zero": True}, IDS),
        ("sequential", {}, tf.cast(IDS, tf.float32)),
        ("subclassed", {"embeddings_initializer": "normal"}, IDS),
    ],
)
def test_it_gives_what_the_ordinary_layer_gives(name, options, features):
    theirs, batch = built(lambda: MAKERS[name](**options), features=features)
    mine, _ = built(lambda: MAKERS[name](**options), SIZE, features)
    begins = "normal(0.05)" if options.get("embeddings_initializer") else "uniform(0.05)"
    assert mine.replacement.replaced == {"items": begins}
    (table,) = mine.tables
    assert table.name == "items"
    ordinary = next(each for each in theirs.parameters() if each.endswith("items/embeddings"))
    values = theirs.parameters()[ordinary]
    mine.read_rows_from(OfTable(values))
    rest = [array for each, array in theirs.parameters().items() if each != ordinary]
    mine.load(dict(zip(mine.parameters(), rest, strict=True)), None)
    result, expected = mine.gradients(batch, 5), theirs.gradients(batch, 5)
    assert result.loss == pytest.approx(expected.loss, rel=1e-6)
    whole = np.zeros(values.shape, np.float32)
    whole[result.rows["items"].ids] = result.rows["items"].values
    np.testing.assert_allclose(whole, expected.gradients.pop(ordinary), rtol=1e-5, atol=1e-7)
    for ours, other in zip(result.gradients.values(), expected.gradients.values(), strict=True):
        np.testing.assert_allclose(ours, other, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(mine.predict(batch), theirs.predict(batch), rtol=1e-5)


@pytest.mark.sampled(2)
def test_an_exported_model_is_read_by_keras_and_by_a_job(tmp_path):
    model, batch = built(lambda: functional(mask_zero=True), SIZE)
    path = model.export(str(tmp_path / "model.keras"))
    alone = keras.models.load_model(path)
    np.testing.assert_allclose(alone(IDS), model.predict(batch), rtol=1e-5)
    again, _ = built(lambda: functional(mask_zero=True), SIZE)
    again.load_export(path)
    np.testing.assert_allclose(again.predict(batch), model.predict(batch), rtol=1e-5)


def test_names_that_keras_numbers_are_the_same_in_each_process():
    for _ in range(2):
        model, _ = built(lambda: keras.Sequential([keras.layers.Embedding(NUM_IDS, DIM),
                                                   keras.layers.Flatten(),
                                                   keras.layers.Dense(1)]), SIZE)  # fmt: skip
        assert [table.name for table in model.tables] == ["embedding"]


class Own(keras.layers.Embedding):
    pass


def of_own():
    return keras.Sequential(
        [Own(NUM_IDS, DIM), keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(1)]
    )


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: functional(embeddings_regularizer="l2"), "embeddings_regularizer"),
        (lambda: functional(embeddings_constraint="max_norm"), "embeddings_constraint"),
        (lambda: functional(trainable=False), "it is not trained"),
        (lambda: functional(dtype="bfloat16"), "no float32"),
        (lambda: functional(embeddings_initializer="identity"), "its first values are neither"),
        (of_own, "it is a Own"),
    ],
)
def test_what_would_be_something_else_stays_and_is_told(make, reason):
    model, _ = built(make, SIZE)
    assert not model.tables
    (told,) = model.replacement.left.values()
    assert reason in told


def test_a_model_that_reads_the_values_is_told_which():
    class Reads(Subclassed):
        def call(self, ids):
            return super().call(ids) + tf.reduce_sum(self.items.embeddings)

    with pytest.raises(ModelDefError, match="reads embeddings of the layer items"):
        built(Reads, SIZE)


def test_ids_that_the_layer_had_not_are_refused():
    model, _ = built(functional, SIZE)
    batch = Batch(tf.fill((3, 3), NUM_IDS), None, 3)
    with pytest.raises(ModelDefError, match="given the id 40, and has ids from 0 to 39"):
        model.predict(batch)
