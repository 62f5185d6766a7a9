import json
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from elastic.errors import CheckpointError, ModelDefError
from elastic.frameworks import load_framework
from elastic.frameworks.base import Batch, MetricState
from elastic.spec.model_def import ModelDef
from elastic.spec.platforms import Mode

FRAMEWORK = load_framework("keras")

import keras  # noqa: E402 - load_framework chooses its backend first
import tensorflow as tf  # noqa: E402

from elastic.frameworks.keras import tensors  # noqa: E402
from elastic.frameworks.keras.model import INITIAL_LOSS_SCALE  # noqa: E402
from elastic.frameworks.user_code import too_many_examples  # noqa: E402

layers = keras.layers


def mse(labels, predictions):
    return tf.reduce_mean((labels - predictions) ** 2)


def sgd():
    return keras.optimizers.SGD(0.1)


def sequential():
    return keras.Sequential([layers.Dense(8, activation="tanh"), layers.Dense(2)])


def functional():
    inputs = keras.Input((4,))
    hidden = layers.Dense(8, use_bias=False, kernel_regularizer=keras.regularizers.L2(0.1))(inputs)
    hidden = layers.BatchNormalization(momentum=0.5)(hidden)
    return keras.Model(inputs, layers.Dense(2)(hidden))


class Subclassed(keras.Model):
    def __init__(self, width=8, **kwargs):
        super().__init__(**kwargs)
        self.first = layers.Dense(width, activation="relu")
        self.norm = layers.BatchNormalization()
        self.second = layers.Dense(2)

    def call(self, features, training=False):
        return self.second(self.norm(self.first(features), training=training))


def make_def(
    model=sequential, loss=mse, optimizer=sgd, dataset_fn=lambda dataset, mode: dataset, **rest
):
    return ModelDef("net", "keras", model, loss, optimizer, dataset_fn, **rest)


def make_batch(seed=0, size=8):
    random = np.random.default_rng(seed)
    x = tf.constant(random.normal(size=(size, 4)), tf.float32)
    return Batch(x, tf.constant(random.normal(size=(size, 2)), tf.float32), size)


def build(model_def, seed=1, sample=None, **params):
    return FRAMEWORK.build_model(model_def, params, sample or make_batch(), seed)


def assert_close(left, right, atol=1e-6):
    assert list(left) == list(right)
    for name, array in left.items():
        np.testing.assert_allclose(array, right[name], atol=atol, rtol=1e-6, err_msg=name)


def assert_equal(left, right):
    assert list(left) == list(right)
    for name, array in left.items():
        np.testing.assert_array_equal(array, right[name], err_msg=name)


schedules = keras.optimizers.schedules
OPTIMIZERS = {
    "momentum": lambda: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True, clipnorm=0.5),
    "adam": lambda: keras.optimizers.Adam(
        schedules.ExponentialDecay(0.05, 3, 0.5), global_clipnorm=0.3
    ),
    "adamw-ema": lambda: keras.optimizers.AdamW(
        0.05, weight_decay=0.1, use_ema=True, ema_overwrite_frequency=2
    ),
    "clipvalue": lambda: keras.optimizers.SGD(lambda: 0.05, momentum=0.9, clipvalue=0.01),
    "accumulation": lambda: keras.optimizers.Adagrad(0.1, gradient_accumulation_steps=2),
}


def planned(total_steps):
    return keras.optimizers.SGD(schedules.PolynomialDecay(0.4, total_steps, 0.0))


def test_an_optimizer_may_ask_how_many_updates_there_will_be():
    model_def = make_def(optimizer=planned)
    model = build(model_def)
    updater = FRAMEWORK.build_updater(model_def, model, total_steps=4)
    rates = []
    for step in range(5):
        rates.append(updater.learning_rate())
        updater.apply(model.gradients(make_batch(step), seed=step).gradients)
    assert rates == pytest.approx([0.4, 0.3, 0.2, 0.1, 0.0])


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("model", "optimizer"),
    [
        (sequential, "momentum"),
        (functional, "adam"),
        (Subclassed, "adamw-ema"),
        (functional, "clipvalue"),
        (sequential, "accumulation"),
    ],
)
def test_training_gives_the_numbers_of_the_plain_loop(model, optimizer):
    model_def = make_def(model, optimizer=OPTIMIZERS[optimizer])
    ours = build(model_def)
    updater = FRAMEWORK.build_updater(model_def, ours)
    plain = model()
    plain(make_batch().features)
    plain.set_weights(ours.model.get_weights())
    plain_optimizer = OPTIMIZERS[optimizer]()
    for step in range(6):
        batch = make_batch(step, size=8 - step % 2)
        result = ours.gradients(batch, seed=step)
        updater.apply(result.gradients)
        with tf.GradientTape() as tape:
            loss = mse(batch.labels, plain(batch.features, training=True)) + sum(plain.losses)
        variables = plain.trainable_variables
        plain_optimizer.apply(tape.gradient(loss, variables), variables)
        assert result.loss == pytest.approx(float(loss), rel=1e-5)
        assert updater.learning_rate() == pytest.approx(float(plain_optimizer.learning_rate))
    for mine, theirs in zip(ours.model.weights, plain.weights, strict=True):
        np.testing.assert_allclose(mine.numpy(), theirs.numpy(), atol=2e-6, err_msg=mine.path)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("optimizer", ["momentum", "adam", "adamw-ema"])
def test_restoring_continues_bit_by_bit(optimizer):
    model_def = make_def(functional, optimizer=OPTIMIZERS[optimizer])

    def train(model, updater, steps):
        for step in steps:
            updater.apply(model.gradients(make_batch(step), seed=step).gradients)

    model = build(model_def)
    updater = FRAMEWORK.build_updater(model_def, model)
    train(model, updater, range(3))
    saved, state = (model.parameters(), model.state()), updater.state()
    state.values = json.loads(json.dumps(state.values))
    again = build(model_def, seed=99)
    other = FRAMEWORK.build_updater(model_def, again)
    train(again, other, range(7, 9))
    again.load(*saved)
    other.load_state(state)
    assert other.learning_rate() == updater.learning_rate()
    # Trained on, the first model must not reach into what the second was given.
    train(model, updater, range(3, 7))
    train(again, other, range(3, 7))
    # How TensorFlow splits sums over threads may move the last bits, so not even one model
    # repeats itself exactly.
    assert_close(model.parameters(), again.parameters(), atol=1e-7)
    assert_close(updater.state().tensors, other.state().tensors, atol=1e-7)


def test_slots_are_named_after_their_variable():
    build(make_def())
    model_def = make_def(optimizer=lambda: keras.optimizers.SGD(0.1, momentum=0.9))
    updater = FRAMEWORK.build_updater(model_def, build(model_def))
    assert list(updater.state().tensors) == [
        "iteration",
        "learning_rate",
        "sequential/dense/kernel/momentum",
        "sequential/dense/bias/momentum",
        "sequential/dense_1/kernel/momentum",
        "sequential/dense_1/bias/momentum",
    ]


@pytest.mark.parametrize(
    "rate", [0.5, schedules.PiecewiseConstantDecay([100], [0.5, 0.1]), lambda: 0.5]
)
def test_a_scaled_update_has_the_scaled_rate_once(rate):
    model_def = make_def(optimizer=lambda: keras.optimizers.SGD(rate))
    model = build(model_def)
    updater = FRAMEWORK.build_updater(model_def, model)
    before = model.parameters()
    ones = {name: np.ones_like(array) for name, array in before.items()}
    updater.apply(ones, learning_rate_scale=0.25)
    assert_close(model.parameters(), {n: a - 0.125 for n, a in before.items()})
    assert updater.learning_rate() == 0.5
    updater.apply(ones)
    assert_close(model.parameters(), {n: a - 0.625 for n, a in before.items()})
    assert updater.learning_rate() == 0.5
    assert updater.state().tensors["iteration"] == 2


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (keras.optimizers.SGD, True),
        (keras.optimizers.Adam, False),
        (lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.5)), True),
    ],
)
def test_steps_of_sgd_alone_are_in_proportion_to_the_gradient(make, expected):
    model_def = make_def(optimizer=make)
    assert FRAMEWORK.build_updater(model_def, build(model_def)).is_proportional() is expected


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.5)),
        lambda: keras.optimizers.SGD(0.5, loss_scale_factor=8.0),
    ],
)
def test_loss_scaling_does_not_change_the_update(wrapped):
    model_def = make_def(optimizer=wrapped)
    model = build(model_def)
    updater = FRAMEWORK.build_updater(model_def, model)
    before = model.parameters()
    updater.apply({n: np.ones_like(a) for n, a in before.items()}, learning_rate_scale=0.5)
    assert_close(model.parameters(), {n: a - 0.25 for n, a in before.items()})


class KeepsGradient(keras.optimizers.SGD):
    """A user's optimizer that puts the gradient itself into a slot."""

    def build(self, variables):
        super().build(variables)
        self.last = self.add_optimizer_variables(variables, "last")

    def update_step(self, gradient, variable, learning_rate):
        self.assign(self.last[self._get_variable_index(variable)], gradient)
        super().update_step(gradient, variable, learning_rate)


def wide():
    return keras.Sequential([layers.Dense(40_000, use_bias=False), layers.Dense(2)])


def placed(array, offset):
    """A copy of the array that lies `offset` bytes behind memory aligned for TensorFlow."""
    raw = np.empty(array.nbytes + 128, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    copy = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[:] = array
    return copy


@pytest.mark.parametrize("optimizer", [sgd, KeepsGradient])
@pytest.mark.parametrize("offset", [0, 4])
@pytest.mark.parametrize("is_writeable", [True, False])
def test_memory_of_gradients_is_free_after_the_update(optimizer, offset, is_writeable):
    model_def = make_def(wide, optimizer=optimizer)
    model = build(model_def)
    updater = FRAMEWORK.build_updater(model_def, model)
    before = model.parameters()
    gradients = {name: placed(np.ones_like(array), offset) for name, array in before.items()}
    for gradient in gradients.values():
        gradient.flags.writeable = is_writeable
    updater.apply(gradients)
    after = model.parameters()
    rate = np.float32(updater.learning_rate())
    assert_close(after, {name: array - rate for name, array in before.items()})
    for gradient in gradients.values():
        gradient.flags.writeable = True
        gradient[:] = 99.0
    assert_equal(model.parameters(), after)
    slots = {n: a for n, a in updater.state().tensors.items() if n.endswith("/last")}
    assert len(slots) == (len(before) if optimizer is KeepsGradient else 0)
    assert all((slot == 1.0).all() for slot in slots.values())


@pytest.mark.parametrize("offset", [0, 4])
def test_loading_copies(offset):
    model_def = make_def(wide)
    model = build(model_def)
    updater = FRAMEWORK.build_updater(model_def, model)
    shapes = model.parameters()
    arrays = {name: placed(np.zeros_like(array), offset) for name, array in shapes.items()}
    model.load(arrays, None)
    for array in arrays.values():
        array[:] = 5.0
    assert not any(array.any() for array in model.parameters().values())
    model.load(arrays, None)
    updater.apply({name: np.ones_like(array) for name, array in arrays.items()})
    assert all((array == 5.0).all() for array in arrays.values())


def test_given_arrays_never_change():
    model_def = make_def(wide)
    model = build(model_def)
    updater = FRAMEWORK.build_updater(model_def, model)
    parameters = model.parameters()
    copies = {name: array.copy() for name, array in parameters.items()}
    gradients = model.gradients(make_batch(), 0).gradients
    gradient_copies = {name: array.copy() for name, array in gradients.items()}
    for step in range(3):
        updater.apply(model.gradients(make_batch(step), step).gradients)
    assert_equal(parameters, copies)
    assert_equal(gradients, gradient_copies)


# -- names and seeds


def shown(model_def, seed):
    model = build(model_def, seed=seed)
    return {name: array.tobytes().hex() for name, array in model.parameters().items()}


@pytest.mark.sampled(2)
def test_names_and_values_are_the_same_in_another_process():
    code = (
        "import sys, json; sys.path.insert(0, sys.argv[1])\n"
        "import test_keras as t\n"
        "print(json.dumps(t.shown(t.make_def(t.Subclassed), 3)))\n"
    )
    folder = __file__.rpartition("/")[0]
    done = subprocess.run(
        [sys.executable, "-c", code, folder], capture_output=True, text=True, check=True
    )
    build(make_def(Subclassed), seed=8)
    layers.Dense(3)
    here = shown(make_def(Subclassed), 3)
    assert here == json.loads(done.stdout.splitlines()[-1])
    assert here != shown(make_def(Subclassed), 4)
    assert list(here) == [
        "subclassed/dense/kernel",
        "subclassed/dense/bias",
        "subclassed/batch_normalization/gamma",
        "subclassed/batch_normalization/beta",
        "subclassed/dense_1/kernel",
        "subclassed/dense_1/bias",
    ]


class SameNames(layers.Layer):
    def build(self, shape):
        self.one = self.add_weight(shape=(shape[-1], 2), name="w")
        self.two = self.add_weight(shape=(shape[-1], 2), name="w")

    def call(self, x):
        return x @ self.one


def test_equal_paths_get_different_names_and_unused_weights_zeros():
    model = build(make_def(lambda: keras.Sequential([SameNames()])))
    result = model.gradients(make_batch(), 0)
    assert list(result.gradients) == [
        "sequential/same_names/w",
        "sequential/same_names/w#1",
    ]
    assert not result.gradients["sequential/same_names/w#1"].any()


def with_dropout():
    return keras.Sequential([layers.Dense(64), layers.Dropout(0.5), layers.Dense(2)])


def test_the_seed_decides_dropout():
    model = build(make_def(with_dropout))
    assert model.state() == {}
    first = model.gradients(make_batch(), 5).gradients
    other = model.gradients(make_batch(), 6).gradients
    again = model.gradients(make_batch(), 5).gradients
    assert_close(first, again)
    assert any(np.abs(first[name] - other[name]).max() > 1e-3 for name in first)
    elsewhere = build(make_def(with_dropout)).gradients(make_batch(), 5).gradients
    assert_close(first, elsewhere)


# -- dtypes, state and losses


@pytest.mark.parametrize(
    ("policy", "dtype"), [("bfloat16", ml_dtypes.bfloat16), ("float16", np.float16)]
)
def test_half_floats(policy, dtype):
    model_def = make_def(
        lambda: keras.Sequential([layers.Dense(2, dtype=policy)]),
        loss=lambda labels, predictions: mse(labels, tf.cast(predictions, tf.float32)),
    )
    model = build(model_def)
    updater = FRAMEWORK.build_updater(model_def, model)
    before = model.parameters()
    gradients = model.gradients(make_batch(), 0).gradients
    assert {a.dtype for a in [*before.values(), *gradients.values()]} == {np.dtype(dtype)}
    updater.apply(gradients)
    name = "sequential/dense/bias"
    expected = before[name].astype(np.float32) - 0.1 * gradients[name].astype(np.float32)
    np.testing.assert_allclose(model.parameters()[name].astype(np.float32), expected, atol=1e-2)
    model.load(before, None)
    assert_equal(model.parameters(), before)


def half_in_between():
    """Computes in float16, but for its statistics and its output."""
    inputs = keras.Input((4,))
    hidden = layers.BatchNormalization(dtype="float32", momentum=0.5)(inputs)
    hidden = layers.Dense(8, activation="tanh", dtype="mixed_float16")(hidden)
    return keras.Model(inputs, layers.Dense(2, dtype="float32")(hidden))


@pytest.mark.parametrize("size", [1e-7, 1.0, 1e4], ids=["underflow", "usual", "overflow"])
def test_the_size_of_a_loss_does_not_cost_a_gradient_of_float16(size):
    def loss(labels, predictions):
        return size * mse(labels, predictions)

    batch = make_batch()
    model = build(make_def(half_in_between, loss=loss))
    wide = keras.models.clone_model(
        model.model, clone_function=lambda layer: type(layer).from_config(
            layer.get_config() | {"dtype": "float32"}
        ),
    )  # fmt: skip
    wide.set_weights(model.model.get_weights())
    variables = [variable.value for variable in wide.trainable_variables]
    for seed in range(2):
        with tf.GradientTape() as tape:
            value = loss(batch.labels, wide(batch.features, training=True))
        result = model.gradients(batch, seed)
        assert result.loss == pytest.approx(float(value), rel=1e-2)
        for one, other in zip(
            result.gradients.values(), tape.gradient(value, variables), strict=True
        ):
            expected = other.numpy()
            np.testing.assert_allclose(one, expected, atol=1e-2 * np.abs(expected).max())
        # Though the pass was computed several times.
        for one, variable in zip(result.state.values(), wide.non_trainable_variables, strict=True):
            np.testing.assert_allclose(one, variable.numpy(), rtol=1e-3)


def test_a_large_scale_costs_no_gradient_where_parameters_are_float16():
    def loss(labels, predictions):
        return 1e-4 * mse(labels, tf.cast(predictions, tf.float32))

    model = build(make_def(lambda: keras.Sequential([layers.Dense(2, dtype="float16")]), loss=loss))
    usual = model.gradients(make_batch(), 0).gradients
    model._loss_scale.factor = 2 * INITIAL_LOSS_SCALE  # infinite in float16
    for name, gradient in model.gradients(make_batch(), 0).gradients.items():
        assert gradient.any()
        np.testing.assert_allclose(gradient, usual[name], rtol=1e-2)


def test_a_loss_that_is_no_number_says_nothing_about_its_scale():
    model = build(make_def(half_in_between, loss=lambda labels, p: mse(labels, p) * np.nan))
    assert np.isnan(model.gradients(make_batch(), 0).loss)
    assert model._loss_scale.factor == INITIAL_LOSS_SCALE


def test_state_is_what_is_not_trained():
    model = build(make_def(functional))
    state = model.state()
    assert list(state) == ["batch_normalization/moving_mean", "batch_normalization/moving_variance"]
    assert not state["batch_normalization/moving_mean"].any()
    result = model.gradients(make_batch(), 0)
    assert_equal(result.state, model.state())
    assert result.state["batch_normalization/moving_mean"].any()
    model.load(None, state)
    assert_equal(model.state(), state)


def test_several_outputs_and_losses():
    class Two(keras.Model):
        def __init__(self):
            super().__init__()
            self.layer = layers.Dense(1)

        def call(self, features):
            out = self.layer(features["x"])
            return {"a": out, "b": out**2}

    def loss(labels, predictions):
        return {name: tf.reduce_mean(value) for name, value in predictions.items()}

    batch = Batch({"x": make_batch().features}, None, 8)
    model_def = make_def(Two, loss=loss)
    model = build(model_def, sample=batch)
    out = model.model.layer(batch.features["x"])
    expected = float(tf.reduce_mean(out) + tf.reduce_mean(out**2))
    assert model.gradients(batch, 0).loss == pytest.approx(expected, abs=1e-6)


def test_embeddings_give_dense_gradients():
    model_def = make_def(
        lambda: keras.Sequential([layers.Embedding(5, 2)]), loss=lambda y, p: tf.reduce_sum(p)
    )
    batch = Batch(tf.constant([1, 3, 3]), tf.zeros(3), 3)
    gradients = build(model_def, sample=batch).gradients(batch, 0).gradients
    assert gradients["sequential/embedding/embeddings"].tolist() == [
        [0, 0],
        [1, 1],
        [0, 0],
        [2, 2],
        [0, 0],
    ]


def test_minibatches_of_all_other_sizes_share_a_trace():
    traces = []

    def loss(labels, predictions):
        traces.append(predictions.shape[0])
        return mse(labels, predictions)

    model = build(make_def(loss=loss))
    traces.clear()
    for size in (8, 3, 5, 8, 7):
        model.gradients(make_batch(size=size), 0)
    assert traces == [8, None]


# -- metrics and export


def class_metrics():
    return {
        "accuracy": keras.metrics.SparseCategoricalAccuracy(),
        "mean": lambda labels, predictions: tf.reduce_max(predictions, axis=1),
    }


def binary_metrics():
    return {
        "auc": keras.metrics.AUC(),
        "f1": keras.metrics.F1Score(average=None, threshold=0.5),
        "mae": keras.metrics.MeanAbsoluteError(),
    }


def xent(labels, predictions):
    return tf.reduce_mean(
        keras.losses.sparse_categorical_crossentropy(labels, predictions, from_logits=True)
    )


def class_batch():
    batch = make_batch(size=20)
    return Batch(batch.features, tf.constant(np.arange(20) % 2), 20)


def binary_batch():
    batch = make_batch(size=20)
    labels = np.stack([np.arange(20) % 2, np.arange(20) % 3 == 0], axis=1)
    return Batch(batch.features, tf.constant(labels, tf.float32), 20)


def sigmoid_model():
    return keras.Sequential([layers.Dense(2, activation="sigmoid")])


@pytest.mark.parametrize(
    ("model", "loss", "metrics", "batch"),
    [
        (sequential, xent, class_metrics, class_batch()),
        (sigmoid_model, mse, binary_metrics, binary_batch()),
    ],
)
def test_metrics_add_up_over_any_split(model, loss, metrics, batch):
    model_def = make_def(model, loss=loss, eval_metrics_fn=metrics)
    worker = build(model_def, sample=batch)
    master = build(model_def, sample=batch)
    sums = {}
    for part in (slice(0, 7), slice(7, 9), slice(9, 20)):
        piece = Batch(batch.features[part], batch.labels[part], part.stop - part.start)
        for state in worker.metrics(piece):
            old = sums.get(state.name, [0] * len(state.values))
            sums[state.name] = [a + b for a, b in zip(old, state.values, strict=True)]
    merged = [MetricState(name, tuple(values)) for name, values in sums.items()]
    predictions = worker.model(batch.features)
    expected = {"loss": float(loss(batch.labels, predictions))}
    for name, metric in metrics().items():
        if isinstance(metric, keras.Metric):
            metric.update_state(batch.labels, predictions)
            values = np.asarray(metric.result()).reshape(-1)
            names = [name] if len(values) == 1 else [f"{name}_{i}" for i in range(len(values))]
            expected |= dict(zip(names, values.tolist(), strict=True))
        else:
            expected[name] = float(tf.reduce_mean(metric(batch.labels, predictions)))
    assert master.metric_results(merged) == pytest.approx(expected, abs=1e-6)


class LargestError(keras.metrics.Metric):
    def __init__(self):
        super().__init__()
        self.largest = self.add_weight(name="largest", initializer="zeros")

    def update_state(self, labels, predictions, sample_weight=None):
        here = tf.reduce_max(tf.abs(tf.cast(labels, tf.float32) - predictions))
        self.largest.assign(tf.maximum(self.largest, here))

    def result(self):
        return self.largest


def mse_of_any_dtype(labels, predictions):
    return mse(labels, tf.cast(predictions, labels.dtype))


@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_metrics_of_a_training_step_are_of_its_predictions_and_change_nothing(policy):
    model_def = make_def(functional, loss=mse_of_any_dtype, eval_metrics_fn=binary_metrics)
    keras.mixed_precision.set_global_policy(policy)
    try:
        measured, plain, again = (build(model_def) for _ in range(3))
    finally:
        keras.mixed_precision.set_global_policy("float32")
    batch = make_batch()
    batch = Batch(batch.features, tf.cast(batch.labels > 0, tf.float32), batch.num_examples)
    for step in range(2):
        result = measured.gradients(batch, step, with_metrics=True)
        other = plain.gradients(batch, step)
        assert not other.metrics
        assert_close(result.gradients, other.gradients, atol=1e-3 if policy != "float32" else 1e-6)
        assert_close(result.state, other.state)
        found = measured.metric_results(result.metrics)
        # In training mode batch normalisation has another result than in evaluation mode.
        predictions = again.model(batch.features, training=True)
        expected = float(tf.reduce_mean(tf.abs(batch.labels - tf.cast(predictions, tf.float32))))
        assert found["mae"] == pytest.approx(expected, rel=1e-5 if policy == "float32" else 1e-2)


def broken(labels, predictions):
    raise ValueError("no luck in a metric")


class BrokenMetric(keras.metrics.Metric):
    def update_state(self, labels, predictions, sample_weight=None):
        raise ValueError("no luck in update_state")

    def result(self):
        return 0.0


@pytest.mark.parametrize(
    ("metric", "text", "num_fine"),
    [
        pytest.param(broken, "a metric", 0, id="a-function"),
        pytest.param(broken, "a metric", 1, id="a-function-as-it-is-compiled"),
        pytest.param(BrokenMetric(), "update_state", 0, id="an-object"),
    ],
)
def test_a_metric_that_fails_names_itself_and_its_line(metric, text, num_fine):
    seen = []

    def fine_at_first(labels, predictions):
        seen.append(labels)
        return labels if len(seen) <= num_fine else metric(labels, predictions)

    failing = fine_at_first if num_fine else metric
    model = build(make_def(eval_metrics_fn=lambda: {"bad": failing}))
    for _ in range(num_fine):
        model.metrics(make_batch())
    with pytest.raises(ModelDefError) as caught:
        model.metrics(make_batch())
    lines = Path(__file__).read_text().splitlines()
    raised = f'raise ValueError("no luck in {text}")'
    line = next(number for number, each in enumerate(lines, 1) if each.strip() == raised)
    assert str(caught.value).startswith(f"metric 'bad' failed: ValueError: no luck in {text}")
    assert str(caught.value).endswith(f"({Path(__file__)}:{line})")


def test_a_metric_that_keeps_no_sums_is_refused():
    model = build(make_def(eval_metrics_fn=lambda: {"worst": LargestError()}))
    with pytest.raises(ModelDefError, match=r"metric 'worst' .* its variable 'largest' is no sum"):
        model.metrics(make_batch())


def test_evaluation_leaves_state_and_dropout_alone():
    model = build(make_def(functional))
    before = model.state()
    first = model.metric_results(model.metrics(make_batch()))
    assert model.metric_results(model.metrics(make_batch())) == pytest.approx(first, abs=1e-6)
    assert_equal(model.state(), before)


@pytest.mark.parametrize("suffix", ["", ".keras"])
def test_the_export_is_a_keras_file(tmp_path, suffix):
    model = build(make_def(functional))
    path = model.export(f"{tmp_path}/new/model{suffix}")
    assert path == f"{tmp_path}/new/model.keras"
    again = keras.models.load_model(path)
    for mine, theirs in zip(model.model.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert [each.name for each in (tmp_path / "new").iterdir()] == ["model.keras"]


def test_an_export_to_a_full_disk_is_no_fault_of_the_model(small_disk):
    with pytest.raises(OSError, match="No space left on device") as raised:
        build(make_def(wide)).export(f"{small_disk}/model")
    assert not isinstance(raised.value, ModelDefError)
    assert list(small_disk.iterdir()) == []


# -- batches


def rows(count):
    return [(np.full(4, i, np.float32), i) for i in range(count)]


def maker_of(dataset_fn, mode=Mode.TRAINING):
    return FRAMEWORK._makers[(dataset_fn, mode)]


@pytest.mark.parametrize(
    ("records", "dataset_fn", "features"),
    [
        pytest.param(rows(3), lambda d, m: d.map(lambda x, y: (x[0], y)), [0, 1, 2], id="tuples"),
        pytest.param(
            [{"x": 1.5, "y": "a"}, {"x": 2.5, "y": "b"}],
            lambda d, m: d.map(lambda r: (r["x"], r["y"])),
            [1.5, 2.5],
            id="dicts",
        ),
        pytest.param(
            [b"4,1", b"5,0"],
            lambda d, m: d.map(lambda line: tuple(tf.io.decode_csv(line, [0, 0]))),
            [4, 5],
            id="bytes",
        ),
        pytest.param(
            [np.int16(3), np.int16(4)], lambda d, m: d.map(lambda r: (r, r)), [3, 4], id="numbers"
        ),
        pytest.param(
            [[1, 2], [3, 4]], lambda d, m: d.map(lambda r: (r[1], r[0])), [2, 4], id="lists"
        ),
        pytest.param(
            rows(4),
            lambda d, m: (
                d.map(lambda x, y: (x[0], y), num_parallel_calls=tf.data.AUTOTUNE)
                .filter(lambda x, y: y > 1)
                .prefetch(2)
            ),
            [2, 3],
            id="filter",
        ),
        pytest.param(
            rows(2),
            lambda d, m: d.map(lambda x, y: (x[0], y)).repeat(3),
            [0, 1, 0, 1, 0, 1],
            id="repeat",
        ),
    ],
)
def test_batches_hold_exactly_their_records(records, dataset_fn, features):
    model_def = make_def(dataset_fn=dataset_fn)
    for _ in range(3):
        batch = FRAMEWORK.make_batch(model_def, records, Mode.TRAINING)
        assert batch.features.numpy().tolist() == features
        assert batch.num_examples == len(features)
    assert maker_of(dataset_fn)._compiled is not None


def test_any_number_of_records_is_traced_once():
    traces = []

    def dataset_fn(dataset, mode):
        traces.append(mode)
        return dataset.filter(lambda x, y: y >= 4)

    model_def = make_def(dataset_fn=dataset_fn)
    sizes = [FRAMEWORK.make_batch(model_def, rows(n), Mode.TRAINING) for n in (8, 4, 6, 0)]
    assert [batch.num_examples for batch in sizes] == [4, 0, 2, 0]
    # Once eagerly, once traced.
    assert traces == [Mode.TRAINING] * 2


def test_functions_that_iterate_run_eagerly():
    def dataset_fn(dataset, mode):
        values = [int(y) for _, y in dataset]
        return tf.data.Dataset.from_tensor_slices((values, values))

    batch = FRAMEWORK.make_batch(make_def(dataset_fn=dataset_fn), rows(3), Mode.TRAINING)
    assert batch.features.numpy().tolist() == [0, 1, 2]
    assert (
        FRAMEWORK.make_batch(make_def(dataset_fn=dataset_fn), [], Mode.TRAINING).num_examples == 0
    )


def test_records_of_unequal_shapes():
    records = [np.arange(n, dtype=np.float32) for n in (1, 3)]
    model_def = make_def(dataset_fn=lambda d, m: d.map(lambda r: (tf.reduce_sum(r), tf.size(r))))
    batch = FRAMEWORK.make_batch(model_def, records, Mode.TRAINING)
    assert batch.features.numpy().tolist() == [0.0, 3.0]
    assert batch.labels.numpy().tolist() == [1, 3]


def test_prediction_needs_no_labels():
    model_def = make_def(dataset_fn=lambda d, m: d.map(lambda x, y: x))
    batch = FRAMEWORK.make_batch(model_def, rows(3), Mode.PREDICTION)
    assert (batch.features.shape, batch.labels, batch.num_examples) == ((3, 4), None, 3)


# -- what users do wrong


def failing(*_arguments):
    raise ValueError("no luck")


ENDLESS = (
    "dataset_fn repeats its records without end: leave out repeat(), epochs are counted by the job"
)
WHERE = f"({__file__}:{failing.__code__.co_firstlineno + 1})"


@pytest.mark.parametrize(
    ("dataset_fn", "message"),
    [
        (failing, f"dataset_fn failed: ValueError: no luck {WHERE}"),
        (lambda d, m: 3, "dataset_fn returned a int: return a tf.data.Dataset"),
        (
            lambda d, m: d.map(lambda x, y: (x, y, y)),
            "dataset_fn gave a tuple of 3 in mode training: every element must be a tuple "
            "(features, labels)",
        ),
        (
            lambda d, m: d.map(lambda x, y: x),
            "dataset_fn gave a TensorSpec in mode training: every element must be a tuple "
            "(features, labels)",
        ),
    ],
)
def test_what_dataset_fn_does_wrong(dataset_fn, message):
    with pytest.raises(ModelDefError) as caught:
        FRAMEWORK.make_batch(make_def(dataset_fn=dataset_fn), rows(2), Mode.TRAINING)
    assert str(caught.value) == message


def test_a_record_without_what_dataset_fn_looks_for_is_told():
    def looking(dataset, mode):
        return dataset.map(lambda record: (record["z"], record["y"]))

    records = [{f"x{i}": float(i) for i in range(30)} | {"y": 0}] * 2
    with pytest.raises(ModelDefError) as caught:
        FRAMEWORK.make_batch(make_def(dataset_fn=looking), records, Mode.TRAINING)
    where = f"({__file__}:{looking.__code__.co_firstlineno + 1})"
    names = ", ".join(f"x{i}" for i in range(20))
    assert str(caught.value) == (
        f"dataset_fn failed: KeyError: 'z' {where}; a record is a dict with the fields {names} and "
        "11 more"
    )


def test_an_endless_dataset_is_refused():
    model_def = make_def(dataset_fn=lambda d, m: d.repeat())
    with pytest.raises(ModelDefError) as caught:
        FRAMEWORK.make_batch(model_def, rows(2), Mode.TRAINING)
    assert str(caught.value) == ENDLESS


def test_a_dataset_that_becomes_endless_is_refused_in_the_trace():
    is_endless = []

    def dataset_fn(dataset, mode):
        return dataset.repeat() if is_endless else dataset

    model_def = make_def(dataset_fn=dataset_fn)
    FRAMEWORK.make_batch(model_def, rows(2), Mode.TRAINING)
    is_endless.append(True)
    with pytest.raises(ModelDefError) as caught:
        FRAMEWORK.make_batch(model_def, rows(2), Mode.TRAINING)
    assert str(caught.value) == ENDLESS


@pytest.fixture
def few_examples(monkeypatch):
    """Two records may give 300."""
    monkeypatch.setattr("elastic.frameworks.user_code.MAX_EXAMPLES_BESIDE", 100)


@pytest.mark.usefixtures("few_examples")
@pytest.mark.parametrize("num_fine", [0, 1])
def test_a_dataset_that_does_not_tell_of_its_endlessness_is_ended(num_fine):
    """In the first minibatch, and in the compiled pipeline."""
    seen = []

    def dataset_fn(dataset, mode):
        seen.append(mode)
        return dataset if len(seen) <= num_fine else dataset.repeat().filter(lambda *_: True)

    model_def = make_def(dataset_fn=dataset_fn)
    for _ in range(num_fine):
        FRAMEWORK.make_batch(model_def, rows(2), Mode.TRAINING)
    with pytest.raises(ModelDefError) as caught:
        FRAMEWORK.make_batch(model_def, rows(2), Mode.TRAINING)
    assert str(caught.value) == str(too_many_examples(2))


@pytest.mark.usefixtures("few_examples")
def test_many_examples_of_a_record_are_all_taken():
    model_def = make_def(dataset_fn=lambda dataset, mode: dataset.repeat(150))
    for _ in range(2):
        batch = FRAMEWORK.make_batch(model_def, rows(2), Mode.TRAINING)
        assert batch.num_examples == 300


def test_a_bad_record_is_the_users_error():
    def dataset_fn(dataset, mode):
        return dataset.map(lambda line: tuple(tf.io.decode_csv(line, [0, 0])))

    model_def = make_def(dataset_fn=dataset_fn)
    assert FRAMEWORK.make_batch(model_def, [b"1,2"], Mode.TRAINING).num_examples == 1
    with pytest.raises(ModelDefError) as caught:
        FRAMEWORK.make_batch(model_def, [b"1,2", b"1,x"], Mode.TRAINING)
    text = str(caught.value)
    assert text.startswith(
        "dataset_fn failed: InvalidArgumentError: Error in user-defined function"
    )
    assert text.endswith("Field 1 in record 0 is not a valid int32: x")


@pytest.mark.parametrize(
    ("model", "loss", "message"),
    [
        (
            failing,
            mse,
            f"making the model with the parameters {{}} failed: ValueError: no luck {WHERE}",
        ),
        (lambda: 3, mse, "the model function returned a int: return a keras.Model"),
        (
            lambda: keras.Sequential([layers.Flatten()]),
            lambda y, p: tf.reduce_mean(p),
            "the model Sequential has no variables to train: give it layers, or set trainable",
        ),
        (
            sequential,
            lambda y, p: tf.reduce_mean(p, axis=1),
            "loss returned a tensor of shape [8]: return a scalar, such as its mean",
        ),
        (
            sequential,
            lambda y, p: 1.0,
            "loss returned a float: return a scalar tensor, or a dict, list or tuple of them",
        ),
        (sequential, lambda y, p: [], "loss returned nothing: return a scalar tensor"),
        (
            sequential,
            failing,
            f"the model's forward pass with its loss failed: ValueError: no luck {WHERE}",
        ),
    ],
)
def test_what_a_model_does_wrong(model, loss, message):
    with pytest.raises(ModelDefError) as caught:
        build(make_def(model, loss=loss))
    assert str(caught.value) == message


USED = keras.optimizers.SGD(0.1)
USED.build([])


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        (lambda: 3, "optimizer returned a int: return a keras.optimizers.Optimizer"),
        (failing, f"optimizer failed: ValueError: no luck {WHERE}"),
        (
            lambda: USED,
            "optimizer returned an object that is in use already: make a new one in every call",
        ),
        (
            lambda: keras.optimizers.SGD(0.1, use_ema=True),
            "optimizer returned one with use_ema=True, whose averages would not be in the trained "
            "model: set ema_overwrite_frequency, after how many updates they take the place of "
            "the parameters",
        ),
    ],
)
def test_what_an_optimizer_does_wrong(optimizer, message):
    model_def = make_def(optimizer=optimizer)
    with pytest.raises(ModelDefError) as caught:
        FRAMEWORK.build_updater(model_def, build(model_def))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        (failing, f"eval_metrics_fn failed: ValueError: no luck {WHERE}"),
        (
            lambda: {"auc": keras.metrics.AUC},
            "eval_metrics_fn gives AUC for 'auc': give a function f(labels, predictions), or a "
            "metric object",
        ),
    ],
)
def test_what_metrics_do_wrong(metrics, message):
    with pytest.raises(ModelDefError) as caught:
        build(make_def(eval_metrics_fn=metrics)).metrics(make_batch())
    assert str(caught.value) == message


def test_what_does_not_fit_changes_nothing():
    model = build(make_def(functional))
    before = model.parameters()
    arrays = {name: array + 1 for name, array in before.items()}
    arrays["dense_1/bias"] = np.zeros(3, np.float32)
    with pytest.raises(CheckpointError) as caught:
        model.load(arrays, model.state())
    assert str(caught.value) == (
        "the parameters do not fit this model: dense_1/bias is float32[2] here and float32[3] "
        "there: use the model they were saved from"
    )
    assert_equal(model.parameters(), before)


def test_a_state_of_another_optimizer():
    first, other = make_def(optimizer=keras.optimizers.Adam), make_def()
    state = FRAMEWORK.build_updater(first, build(first)).state()
    with pytest.raises(CheckpointError) as caught:
        FRAMEWORK.build_updater(other, build(other)).load_state(state)
    assert str(caught.value) == (
        "the optimizer's state was saved from Adam and this is SGD: use the same optimizer"
    )


def limited_loss(most):
    """A loss that has room for so many examples, and for none where one of them is bad."""

    def loss(labels, predictions):
        if len(labels) > most or tf.reduce_any(labels > 100):
            raise RuntimeError(f"no room for {len(labels)}")
        return mse(labels, predictions)

    return loss


def test_a_sample_too_large_for_this_machine_is_tried_in_parts():
    model = build(make_def(model=Subclassed, loss=limited_loss(3)))
    assert model._sample.num_examples == 2
    names = list(model.parameters())
    assert names == list(build(make_def(model=Subclassed)).parameters())


def test_what_fails_on_one_example_is_told_as_the_whole_failed():
    sample = make_batch()
    bad = Batch(sample.features, tf.concat([sample.labels[:5], sample.labels[5:] + 101.0], 0), 8)
    with pytest.raises(ModelDefError, match="RuntimeError: no room for 8"):
        build(make_def(loss=limited_loss(100)), sample=bad)


@pytest.mark.parametrize("kind", ["sparse", "ragged"])
def test_rows_of_tensors_that_are_not_dense(kind):
    values = tf.constant([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]])
    make = {"sparse": tf.sparse.from_dense, "ragged": tf.RaggedTensor.from_tensor}[kind]
    taken = tensors.rows(Batch({"x": make(values)}, None, 3), 1, 3)
    dense = tf.sparse.to_dense if kind == "sparse" else tf.RaggedTensor.to_tensor
    assert taken.num_examples == tensors.num_examples(taken.features) == 2
    np.testing.assert_array_equal(dense(taken.features["x"]), values[1:3])
