"""The Keras layer against keras.layers.Embedding with the same values."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from support.whole_tables import Away, AwayError, WholeTables

from elastic.errors import ModelDefError
from elastic.frameworks.base import Batch
from elastic.frameworks.keras import KerasFramework
from elastic.frameworks.keras.embedding import Embedding
from elastic.rows.arithmetic import first_rows
from elastic.rows.base import Table
from elastic.rows.ids import to_ids
from elastic.spec.model_def import ModelDef

DIM, NUM_ROWS = 3, 20


class Net(keras.Model):
    """A layer of ours before one of Keras', with dropout between them where asked for."""

    def __init__(self, look_up, dropout=0.0):
        super().__init__()
        self.items = look_up
        self.dropout = keras.layers.Dropout(dropout, seed=3)
        self.last = keras.layers.Dense(1, kernel_initializer=keras.initializers.GlorotUniform(1))

    def call(self, features, training=False):
        made = tf.tanh(self.dropout(self.items(features), training=training))
        return tf.reshape(self.last(made), [tf.shape(made)[0], -1])


class Combined(keras.layers.Layer):
    """What combiners are by definition: of a dense tensor or a ragged one, padding left out."""

    def __init__(self, combiner, padding=None):
        super().__init__()
        self.table = keras.layers.Embedding(NUM_ROWS, DIM, name="items")
        self.combiner, self.padding = combiner, padding

    def call(self, ids):
        if isinstance(ids, tf.RaggedTensor):
            ids = ids.to_tensor(self.padding)
        is_id = tf.ones_like(ids, tf.float32)
        if self.padding is not None:
            is_id = tf.cast(ids != self.padding, tf.float32)
        total = tf.reduce_sum(self.table(ids) * is_id[..., None], axis=-2)
        number = tf.maximum(tf.reduce_sum(is_id, axis=-1, keepdims=True), 1)
        divisor = {"sum": 1.0, "mean": number, "sqrtn": tf.sqrt(number)}[self.combiner]
        return total / divisor


def loss(labels, predictions):
    return tf.reduce_mean((tf.cast(predictions, tf.float32) - labels[:, None]) ** 2)


def sgd():
    return keras.optimizers.SGD(0.1)


def built(make, batch, reader=None):
    model_def = ModelDef("net", "keras", make, loss, sgd, None, None)
    model = KerasFramework().build_model(model_def, {}, batch, 1)
    if reader is not None:
        model.read_rows_from(reader)
    return model


def batch_of(features, num_examples=3):
    return Batch(features, tf.range(num_examples, dtype=tf.float32) / 4, num_examples)


def same_as(theirs, ours, features):
    """Ours and Keras' layer give the same loss, and the same gradient of each row."""
    reader, batch = WholeTables(NUM_ROWS), batch_of(features)
    table = reader.of("embedding", DIM)
    mine = built(lambda: Net(ours), batch, reader)
    other = built(lambda: Net(theirs), batch)
    name = next(name for name in other.parameters() if name.endswith("embeddings"))
    kernel, bias = mine.parameters().values()
    rest = [each for each in other.parameters() if each != name]
    other.load({name: table, **dict(zip(rest, (kernel, bias), strict=True))}, None)
    result, expected = mine.gradients(batch, 5), other.gradients(batch, 5)
    assert result.loss == pytest.approx(expected.loss, rel=1e-6)
    (rows,) = result.rows.values()
    whole = np.zeros((NUM_ROWS, DIM), np.float32)
    whole[rows.ids] = rows.values
    np.testing.assert_allclose(whole, expected.gradients[name], rtol=1e-5, atol=1e-7)
    for gradient, each in zip(result.gradients.values(), rest, strict=True):
        np.testing.assert_allclose(gradient, expected.gradients[each], rtol=1e-5, atol=1e-7)
    assert mine.metrics(batch)[0].values[0] == pytest.approx(other.metrics(batch)[0].values[0])
    np.testing.assert_allclose(mine.predict(batch), other.predict(batch), rtol=1e-5)
    return rows


REPEATED = tf.constant([[1, 2, 1], [7, 7, 7], [0, 2, 19]])
PADDED = tf.constant([[1, 4, 4], [4, 4, 4], [0, 2, 19]], tf.int64)
PAIRS = tf.constant([[[1, 2], [3, 4]], [[1, 1], [9, 8]], [[3, 3], [0, 2]]])
every_combiner = pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("features", [REPEATED[:, 0], REPEATED, PAIRS], ids=["one", "two", "three"])
def test_a_row_for_each_id(features):
    theirs = keras.layers.Embedding(NUM_ROWS, DIM)
    rows = same_as(theirs, Embedding(DIM), features)
    assert rows.ids.tolist() == sorted(set(features.numpy().flatten().tolist()))


def test_padding_gives_zeros_and_has_no_row():
    made = Embedding(2, padding_id=4, initializer="ones")(PADDED)
    np.testing.assert_array_equal(made[..., 0], PADDED.numpy() != 4)
    model = built(lambda: Net(Embedding(DIM, padding_id=4)), batch_of(PADDED))
    assert model.gradients(batch_of(PADDED), 1).rows["embedding"].ids.tolist() == [0, 1, 2, 19]


@pytest.mark.sampled(2)
@every_combiner
@pytest.mark.parametrize(("features", "padding"), [(REPEATED, None), (PADDED, 4), (PAIRS, 1)])
def test_combined_ids(combiner, features, padding):
    ours = Embedding(DIM, combiner, padding_id=padding)
    assert padding not in same_as(Combined(combiner, padding), ours, features).ids


@every_combiner
def test_bags_of_any_length(combiner):
    ragged = tf.ragged.constant([[1, 2, 2], [], [5]])
    rows = same_as(Combined(combiner, 4), Embedding(DIM, combiner), ragged)
    assert rows.ids.tolist() == [1, 2, 5]


@pytest.mark.parametrize(
    ("combiner", "expected"),
    [("sum", [5.0, 0.0]), ("mean", [1.0, 0.0]), ("sqrtn", [5 / 13**0.5, 0.0])],
)
def test_weights(combiner, expected):
    layer = Embedding(1, combiner, "ones", padding_id=9)
    ids = tf.ragged.constant([[1, 2, 9], [3]])
    weights = tf.ragged.constant([[2.0, 3.0, 100.0], [0.0]])
    assert layer(ids, weights)[:, 0].numpy().tolist() == pytest.approx(expected)
    square = layer(tf.constant([[1, 2, 9]]), tf.constant([[2.0, 3.0, 100.0]]))
    assert float(square[0, 0]) == pytest.approx(expected[0])


def test_texts_are_ids():
    layer = Embedding(2, name="words")
    expected = first_rows(Table("words", 2, "uniform(0.05)"), to_ids(["a", "é"]))
    np.testing.assert_array_equal(layer(tf.constant(["a", "é"])), expected)
    bags = Embedding(2, "sum", name="words", padding_id="-")
    made = bags(tf.ragged.constant([["a", "é"], ["-"], []]))
    np.testing.assert_allclose(made, [expected.sum(axis=0), [0, 0], [0, 0]], rtol=1e-6)


class Texts(keras.Model):
    def __init__(self):
        super().__init__()
        self.words = Embedding(2, "mean", name="words")
        self.numbers = Embedding(2)
        self.last = keras.layers.Dense(1)

    def call(self, features):
        made = self.words(features["words"]) + self.numbers(features["ids"])
        return self.last(made + self.numbers(features["others"]) ** 2)


TEXTS = {
    "words": tf.ragged.constant([["a"], ["b", "a"], []]),
    "ids": tf.constant([1, 2, 3]),
    "others": tf.constant([3, 3, 4]),
}


def test_several_tables_one_of_them_read_twice():
    reader = WholeTables()
    model = built(Texts, batch_of(TEXTS))
    assert model.gradients(batch_of(TEXTS), 1).rows["words"].ids.tolist() == sorted(
        to_ids(["a", "b"]).tolist()
    )

    reader.arrays["words"] = np.ones((20, 2), np.float32)
    model.read_rows_from(reader)
    numbers = {**TEXTS, "words": tf.ragged.constant([[1], [2, 1], []], tf.int64, ragged_rank=1)}
    rows = model.gradients(batch_of(numbers), 1).rows
    assert {name: each.ids.tolist() for name, each in rows.items()} == {
        "words": [1, 2], "embedding": [1, 2, 3, 4],
    }  # fmt: skip
    step, table = 1e-3, reader.arrays["embedding"]
    for place in ((3, 0), (4, 1)):
        losses = []
        for sign in (1, -1):
            table[place] += sign * step
            losses.append(model.gradients(batch_of(numbers), 1).loss)
            table[place] -= sign * step
        at = rows["embedding"].ids.tolist().index(place[0])
        slope = (losses[0] - losses[1]) / (2 * step)
        assert rows["embedding"].values[at, place[1]] == pytest.approx(slope, rel=0.02)


def test_batches_of_any_size():
    model = built(lambda: Net(Embedding(DIM, "mean", padding_id=0)), batch_of(REPEATED))
    for size in (3, 1, 2, 7):
        batch = batch_of(tf.ones([size, 3], tf.int32) * size, size)
        assert model.gradients(batch, 1).rows["embedding"].ids.tolist() == [size]
        assert model.predict(batch).shape == (size, 1)


def test_nothing_but_padding():
    model = built(lambda: Net(Embedding(DIM, "mean", padding_id=0)), batch_of(REPEATED))
    rows = model.gradients(batch_of(tf.zeros([3, 3], tf.int32)), 1).rows["embedding"]
    assert (rows.ids.shape, rows.values.shape) == ((0,), (0, DIM))


def test_names_are_counted_anew_in_each_model():
    for _ in range(2):
        model = built(Texts, batch_of(TEXTS))
        assert sorted(table.name for table in model.tables) == ["embedding", "words"]


def test_many_names_stay_in_order():
    class Many(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.all = [Embedding(number) for number in range(1, 13)]

        def call(self, ids):
            return tf.concat([each(ids) for each in self.all], -1)

    for _ in range(2):
        model = built(lambda: Net(Many()), batch_of(REPEATED[:, 0]))
        tables = {table.name: table.dim for table in model.tables}
        assert tables == {"embedding": 1} | {f"embedding_{n}": n + 1 for n in range(1, 12)}


def test_equal_seeds_give_equal_gradients():
    model = built(lambda: Net(Embedding(DIM), dropout=0.5), batch_of(REPEATED))
    first, again, other = (
        model.gradients(batch_of(REPEATED), seed).rows["embedding"].values for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_what_a_reader_raises_comes_out_as_it_is(capfd):
    model = built(lambda: Net(Embedding(DIM)), batch_of(REPEATED), Away())
    batch = batch_of(REPEATED)
    for run in (lambda: model.gradients(batch, 1), lambda: model.metrics(batch)):
        with pytest.raises(AwayError, match=r"embedding \[0, 1, 2, 7, 19\]"):
            run()
    with pytest.raises(AwayError):
        model.predict(batch)
    assert "Traceback" not in capfd.readouterr().err
    model.read_rows_from(WholeTables())
    assert model.gradients(batch, 1).rows


@pytest.fixture
def half_precision():
    keras.config.set_dtype_policy("mixed_float16")
    yield
    keras.config.set_dtype_policy("float32")


def test_half_precision_and_its_loss_scale(half_precision):
    reader = WholeTables()
    model = built(lambda: Net(Embedding(DIM, "mean")), batch_of(REPEATED), reader)
    half = model.gradients(batch_of(REPEATED), 1)
    keras.config.set_dtype_policy("float32")
    full = built(lambda: Net(Embedding(DIM, "mean")), batch_of(REPEATED), reader)
    full.load(model.parameters(), None)
    expected = full.gradients(batch_of(REPEATED), 1)
    assert half.rows["embedding"].values.dtype == np.float32
    np.testing.assert_allclose(
        half.rows["embedding"].values, expected.rows["embedding"].values, rtol=0.02, atol=1e-3
    )


def test_a_loss_scale_that_is_too_large_for_rows_alone_is_made_smaller(half_precision):
    def make():
        # Of rows of zeros the kernel's gradient is 0, and theirs is the kernel times the loss's.
        steep = keras.layers.Dense(1, kernel_initializer=keras.initializers.Constant(100))
        return keras.Sequential(
            [keras.Input((3,), dtype="int64"), Embedding(2, "sum", "zeros"), steep]
        )

    model = built(make, batch_of(REPEATED))
    before = model._loss_scale.factor
    result = model.gradients(batch_of(REPEATED), 1)
    assert np.isfinite(result.rows["embedding"].values).all()
    assert 0 < model._loss_scale.factor < before


def test_a_saved_model_loads_again(tmp_path):
    Embedding(1)  # so that Keras does not begin to count with the next
    ids, words = keras.Input((3,), dtype="int64"), keras.Input((), dtype="string")
    each = Embedding(2, "mean", "normal(1)", padding_id=0)(ids)
    made = keras.layers.Concatenate()([each, Embedding(3, name="words")(words)])
    model = built(lambda: keras.Model([ids, words], keras.layers.Dense(1)(made)), Batch(0, 0, 0))
    path = model.export(f"{tmp_path}/net.keras")
    loaded = keras.models.load_model(path)
    features = [tf.constant([[1, 2, 0]]), tf.constant(["a"])]
    np.testing.assert_array_equal(loaded(features), model.model(features))
    again = KerasFramework().build_model(
        ModelDef("net", "keras", lambda: loaded, loss, sgd, None, None), {}, Batch(0, 0, 0), 1
    )
    assert set(again.tables) == set(model.tables)
    again.load_export(path)


def test_a_layer_of_a_file_stores_its_rows_as_before():
    layer = Embedding(4, name="items", row_dtype="int8", dtype="float16")
    again = Embedding.from_config(layer.get_config())
    assert again.source.table == layer.source.table
    assert (again.source.table.row_dtype, again.compute_dtype) == ("int8", "float16")


def test_a_saved_model_without_python_is_refused(tmp_path):
    model = built(lambda: Net(Embedding(DIM)), batch_of(REPEATED))
    with pytest.raises(ModelDefError, match=r"SavedModel.*--output.*\.keras"):
        model.export(f"{tmp_path}/folder/")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"dim": 0}, "dim 0"),
        ({"dim": 2, "combiner": "max"}, "'max': take sum, mean or sqrtn"),
        ({"dim": 2, "initializer": "glorot"}, r"'glorot'.*uniform\(0.05\)"),
        ({"dim": 2, "row_dtype": "float16"}, "'float16': take float32, bfloat16, int8"),
    ],
)
def test_arguments_are_checked(options, told):
    with pytest.raises(ModelDefError, match=told):
        Embedding(**options)


@pytest.mark.parametrize(
    ("make", "features", "told"),
    [
        (lambda: Embedding(2), tf.constant([0.5, 1, 1]), "float32: give integers or texts"),
        (lambda: Embedding(2), tf.ragged.constant([[1], [2, 3], []]), "needs a combiner"),
    ],
)
def test_ids_are_checked(make, features, told):
    with pytest.raises(ModelDefError, match=told):
        built(lambda: Net(make()), batch_of(features))


def test_a_combiner_has_something_to_combine():
    with pytest.raises(ModelDefError, match="single id"):
        Embedding(2, "sum")(tf.constant(1))


def test_ids_are_checked_in_a_compiled_step_too():
    model = built(lambda: Net(Embedding(DIM)), batch_of(REPEATED))
    with pytest.raises(ModelDefError, match=r"ids of an embedding are of type float32"):
        model.predict(batch_of(tf.cast(REPEATED, tf.float32)))


def test_a_sequential_model_is_told_its_type():
    first = keras.Input((3,), dtype="int64")
    model = built(lambda: keras.Sequential([first, *combined_layers()]), batch_of(REPEATED))
    assert model.gradients(batch_of(REPEATED), 1).rows["embedding"].ids.tolist() == [0, 1, 2, 7, 19]
    with pytest.raises(ModelDefError, match=r"float32.*keras.Input\(shape"):
        built(lambda: keras.Sequential(combined_layers()), batch_of(REPEATED))


def combined_layers():
    return [Embedding(2, "sum"), keras.layers.Dense(1)]


def test_a_read_within_a_loop_is_refused():
    class Looping(Net):
        def call(self, ids, training=False):
            made = tf.map_fn(self.items, ids, fn_output_signature=tf.float32)
            return self.last(made)

    model = built(lambda: Looping(Embedding(DIM)), batch_of(REPEATED[:, 0]))
    with pytest.raises(ModelDefError, match=r"within a loop.*before it"):
        model.gradients(batch_of(REPEATED[:, 0]), 1)


def test_two_tables_of_one_name_are_refused():
    def make():
        return keras.Sequential(
            [Embedding(2, name="t"), keras.Sequential([Embedding(2, name="t")])]
        )

    with pytest.raises(ModelDefError, match=r"named 't'.*its own name"):
        built(make, Batch(None, None, 0))


def test_a_model_of_embeddings_alone_is_refused():
    with pytest.raises(ModelDefError, match=r"Sequential has rows.*nothing else"):
        built(lambda: keras.Sequential([Embedding(1, "sum")]), Batch(0, 0, 0))


def test_the_optimizer_tells_its_rule():
    framework = KerasFramework()
    model_def = ModelDef("net", "keras", lambda: Net(Embedding(DIM)), loss, sgd, None, None)
    model = framework.build_model(model_def, {}, batch_of(REPEATED), 1)
    assert framework.build_updater(model_def, model).row_rule().kind == "sgd"
    _, updater = framework.build_share(model_def, {}, model.parameters(), {})
    assert updater.row_rule().kind == "sgd"
