"""What of a model's untrained weights no training step changes, and what is done with it."""

import numpy as np
import pytest

from elastic.errors import CheckpointError
from elastic.frameworks import load_framework
from elastic.frameworks.base import Batch, load_whole, split_state
from elastic.spec.model_def import ModelDef

FRAMEWORK = load_framework("keras")

import keras  # noqa: E402 - load_framework chooses its backend first

from elastic.frameworks.keras.model import FROZEN_BYTES  # noqa: E402

INPUTS = 64
LARGE = 4096 + 8
"""Units of a layer of more than a megabyte, the least that is worth a look."""
FROZEN = {"tuned/base/kernel", "tuned/base/bias", "tuned/words/embeddings"}
MOVING = {"tuned/norm/moving_mean", "tuned/norm/moving_variance", "tuned/teacher/kernel"}
IN_A_LOOP = {f"tuned/memory/lstm_cell/{name}" for name in ("kernel", "recurrent_kernel", "bias")}


class Teacher(keras.layers.Layer):
    """Weights that follow those of a layer that is trained, without being trained themselves."""

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], 5), name="kernel", trainable=False)

    def call(self, inputs, student):
        self.kernel.assign(0.5 * self.kernel + 0.5 * student)
        return inputs @ self.kernel


class Tuned(keras.Model):
    """Has weights of each kind that is not trained."""

    def __init__(self, units=LARGE):
        super().__init__()
        self.base = keras.layers.Dense(units, activation="relu", name="base")
        self.base.trainable = False
        self.norm = keras.layers.BatchNormalization(name="norm")
        self.words = keras.layers.Embedding(7, 3, name="words")
        self.words.trainable = False
        self.memory = keras.layers.LSTM(2, name="memory")
        self.memory.trainable = False
        self.student = keras.layers.Dense(5, name="student")
        self.teacher = Teacher(name="teacher")
        self.dropout = keras.layers.Dropout(0.5)
        self.head = keras.layers.Dense(1, name="head")

    def call(self, inputs, training=False):
        hidden = self.norm(self.base(inputs), training=training)
        memory = self.memory(self.words(keras.ops.cast(inputs[:, :2] > 0, "int32")))
        student = self.student(inputs)
        parts = [hidden, memory, student, self.teacher(inputs, self.student.kernel)]
        return self.head(self.dropout(keras.ops.concatenate(parts, -1), training=training))


def squares(labels, predictions):
    return keras.ops.mean((labels - predictions[:, 0]) ** 2)


def sgd():
    return keras.optimizers.SGD(0.1)


def batch(size=8, seed=0):
    features = np.random.default_rng(seed).normal(size=(size, INPUTS)).astype(np.float32)
    return Batch(
        keras.ops.convert_to_tensor(features),
        keras.ops.convert_to_tensor(features.sum(axis=1)),
        size,
    )


def build(units=LARGE, sample=None, seed=1):
    model_def = ModelDef(
        "net",
        "keras",
        Tuned,
        squares,
        lambda: keras.optimizers.SGD(0.1),
        lambda dataset, _: dataset,
    )
    return FRAMEWORK.build_model(model_def, {"units": units}, sample or batch(), seed)


@pytest.fixture(scope="module")
def model():
    return build()


def test_a_weight_is_frozen_where_no_step_can_change_it(model):
    assert set(model.frozen_names) == FROZEN
    # To a loop it is given whole, which may write to it.
    assert set(model.state()) == MOVING | IN_A_LOOP


def test_a_step_gives_the_state_that_it_may_change(model):
    frozen = {name: array.copy() for name, array in model.frozen().items()}
    before = {name: array.copy() for name, array in model.state().items()}
    for size in (8, 3):
        after = model.gradients(batch(size), 0).state
        assert set(after) == MOVING | IN_A_LOOP
        assert all(np.array_equal(before[n], after[n]) == (n in IN_A_LOOP) for n in before)
    assert set(frozen) == FROZEN
    assert all(np.array_equal(frozen[name], array) for name, array in model.frozen().items())


def test_steps_of_equal_size_compile_nothing_more(model):
    for seed in range(2):
        model.gradients(batch(seed=seed), seed)
    sizes = model._step.experimental_get_tracing_count()
    model.gradients(batch(seed=3), 3)
    assert model._step.experimental_get_tracing_count() == sizes


def test_little_is_not_worth_a_look():
    model = build(units=LARGE // 8)
    size_bytes = sum(array.nbytes for array in model.state().values())
    assert 0 < size_bytes < FROZEN_BYTES
    assert not model.frozen_names
    assert set(model.state()) == FROZEN | MOVING | IN_A_LOOP
    assert model._step.experimental_get_tracing_count() == 0


def test_without_labels_there_is_no_step():
    sample = batch()
    model = build(sample=Batch(sample.features, None, sample.num_examples))
    assert not model.frozen_names
    assert set(model.state()) == FROZEN | MOVING | IN_A_LOOP


def test_a_cut_fills_a_model_whole(model):
    other = build(seed=2)
    assert not np.array_equal(
        other.frozen()["tuned/base/kernel"], model.frozen()["tuned/base/kernel"]
    )
    state = {**model.state(), **model.frozen()}
    load_whole(other, model.parameters(), state)
    for name, array in {**model.parameters(), **state}.items():
        there = {**other.parameters(), **other.state(), **other.frozen()}
        assert np.array_equal(there[name], array), name


def test_a_version_fills_all_but_what_is_frozen(model):
    other = build(seed=2)
    frozen = {name: array.copy() for name, array in other.frozen().items()}
    other.load(model.parameters(), model.state())
    assert np.array_equal(
        other.state()["tuned/teacher/kernel"], model.state()["tuned/teacher/kernel"]
    )
    assert all(np.array_equal(frozen[name], array) for name, array in other.frozen().items())
    other.load_frozen(model.frozen())
    assert all(np.array_equal(model.frozen()[n], array) for n, array in other.frozen().items())


@pytest.mark.parametrize("spoil", ["missing", "shape"])
def test_frozen_weights_that_do_not_fit_change_nothing(model, spoil):
    before = {name: array.copy() for name, array in model.frozen().items()}
    values = {name: array + 1 for name, array in before.items()}
    if spoil == "missing":
        del values["tuned/words/embeddings"]
        message = "the state do not fit this model: missing tuned/words/embeddings"
    else:
        values["tuned/words/embeddings"] = np.zeros((7, 4), np.float32)
        message = r"tuned/words/embeddings is float32\[7, 3\] here and float32\[7, 4\] there"
    with pytest.raises(CheckpointError, match=message):
        model.load_frozen(values)
    assert all(np.array_equal(before[name], array) for name, array in model.frozen().items())


def test_a_cut_is_split_by_names(model):
    state = {**model.state(), **model.frozen()}
    moving, frozen = split_state(model, state)
    assert (set(moving), set(frozen)) == (MOVING | IN_A_LOOP, FROZEN)
