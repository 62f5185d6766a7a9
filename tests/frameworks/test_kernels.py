"""Updates by a kernel of the framework's are those of the optimizer's own formulas."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from elastic.frameworks import load_framework
from elastic.frameworks.base import Batch
from elastic.frameworks.keras.updater import LARGE_BYTES
from elastic.spec.model_def import ModelDef

NUM_STEPS = 4
MORE = {
    "plain": {},
    "decayed": {"weight_decay": 0.1},
    "clipped": {"clipnorm": 0.5},
    "averaged": {"use_ema": True, "ema_overwrite_frequency": 2},
}
# Each compiles both models anew, for a quarter of a second.
few_for_each = settings(max_examples=5, deadline=None)
SHAPES = st.lists(
    st.lists(st.integers(1, 5), max_size=3).map(tuple), min_size=1, max_size=3, unique=True
)


class OwnStep(keras.optimizers.SGD):
    """A class of the user's, which is never given a kernel."""


class OwnAdam(keras.optimizers.Adam):
    """Another one."""


class OwnAdamW(keras.optimizers.AdamW):
    """Another one."""


class OwnAdagrad(keras.optimizers.Adagrad):
    """Another one."""


class Weights(keras.Model):
    def __init__(self, shapes, dtype):
        super().__init__()
        initial = np.random.default_rng(0)
        self.own = [
            self.add_weight(
                shape=shape,
                dtype=dtype,
                name=f"w{i}",
                initializer=lambda s, dtype: tf.cast(initial.normal(size=s), dtype),
            )
            for i, shape in enumerate(shapes)
        ]

    def call(self, features):
        return features


def _keras_pair(shapes, dtype, optimizer):
    framework = load_framework("keras")
    model_def = ModelDef(
        "net",
        "keras",
        lambda: Weights(shapes, dtype),
        None,
        optimizer,
        lambda dataset, mode: dataset,
    )
    model = framework.build_model(model_def, {}, Batch(tf.ones((1, 2)), None, 1), seed=0)
    return model, framework.build_updater(model_def, model)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("more", MORE.values(), ids=MORE)
@few_for_each
@given(
    shapes=SHAPES,
    dtype=st.sampled_from(["float32", "float16", "bfloat16"]),
    momentum=st.sampled_from([0.0, 0.5, 0.9]),
    nesterov=st.booleans(),
    learning_rate=st.floats(1e-3, 1.0),
    seed=st.integers(0, 1000),
)
def test_keras_sgd(shapes, dtype, momentum, nesterov, learning_rate, more, seed):
    settings = {"momentum": momentum, "nesterov": nesterov, **more}
    _check_keras_pair(
        [
            _keras_pair(shapes, dtype, lambda cls=cls: cls(learning_rate, **settings))
            for cls in (keras.optimizers.SGD, OwnStep)
        ],
        dtype,
        seed,
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "more", [*MORE.values(), {"amsgrad": True}], ids=[*MORE, "with-the-largest-slot"]
)
@few_for_each
@given(
    shapes=SHAPES,
    dtype=st.sampled_from(["float32", "float16", "bfloat16"]),
    classes=st.sampled_from([(keras.optimizers.Adam, OwnAdam), (keras.optimizers.AdamW, OwnAdamW)]),
    beta_1=st.sampled_from([0.0, 0.5, 0.9]),
    epsilon=st.sampled_from([1e-3, 1e-1]),
    learning_rate=st.floats(1e-4, 0.1),
    seed=st.integers(0, 1000),
)
def test_keras_adam(shapes, dtype, classes, beta_1, epsilon, learning_rate, more, seed):
    settings = {"beta_1": beta_1, "epsilon": epsilon, **more}
    _check_keras_pair(
        [
            _keras_pair(shapes, dtype, lambda cls=cls: cls(learning_rate, **settings))
            for cls in classes
        ],
        dtype,
        seed,
        # The same operations in the same order: not a bit may differ.
        float32_tolerance=0.0,
    )


@pytest.mark.parametrize(
    ("classes", "more"),
    [
        pytest.param((keras.optimizers.Adam, OwnAdam), {"epsilon": 0.1}, id="adam"),
        pytest.param((keras.optimizers.Adam, OwnAdam), {"clipnorm": 0.5}, id="adam-clipped"),
        pytest.param((keras.optimizers.AdamW, OwnAdamW), {"weight_decay": 0.1}, id="adamw"),
        pytest.param((keras.optimizers.Adagrad, OwnAdagrad), {"epsilon": 0.1}, id="adagrad"),
        pytest.param(
            (keras.optimizers.Adagrad, OwnAdagrad),
            {"use_ema": True, "ema_overwrite_frequency": 2},
            id="adagrad-averaged",
        ),
    ],
)
def test_large_variables_of_keras(classes, more):
    rate = keras.optimizers.schedules.ExponentialDecay(0.05, 1, 0.5)
    shapes = [(LARGE_BYTES // 4 // 512, 512), (3,), (LARGE_BYTES // 4 + 5,)]
    pairs = [_keras_pair(shapes, "float32", lambda cls=cls: cls(rate, **more)) for cls in classes]
    # XLA joins a product and a sum into one rounding.
    _check_keras_pair(pairs, "float32", seed=0, float32_tolerance=1e-6)


def _check_keras_pair(pairs, dtype, seed, float32_tolerance=1e-5):
    random = np.random.default_rng(seed)
    for _ in range(NUM_STEPS):
        gradients = {
            name: random.normal(size=array.shape).astype(array.dtype)
            for name, array in pairs[0][0].parameters().items()
        }
        for _model, updater in pairs:
            updater.apply(gradients, learning_rate_scale=0.5)
    # Terms may be rounded in another order, and half floats have few digits to round to.
    tolerance = {"float32": float32_tolerance, "float16": 1e-2, "bfloat16": 1e-1}[dtype]
    ours, own = ({**model.parameters(), **updater.state().tensors} for model, updater in pairs)
    for (name, left), right in zip(ours.items(), own.values(), strict=True):
        np.testing.assert_allclose(
            left.astype(np.float64), right.astype(np.float64), atol=tolerance, rtol=tolerance,
            err_msg=name,
        )  # fmt: skip


@pytest.mark.parametrize(
    "optimizer", [keras.optimizers.SGD, keras.optimizers.Adam, keras.optimizers.Adagrad]
)
def test_a_kernel_leaves_arrays_alone_that_were_read_before(optimizer):
    model, updater = _keras_pair([(64, 64), (512, 512)], "float32", lambda: optimizer(0.1))
    gradients = {name: np.ones_like(array) for name, array in model.parameters().items()}
    # What was never updated may lie in memory that is shared for another reason.
    updater.apply(gradients)
    before = {**model.parameters(), **updater.state().tensors}
    copies = {name: array.copy() for name, array in before.items()}
    updater.apply(gradients)
    for name, array in before.items():
        np.testing.assert_array_equal(array, copies[name])
    for name, array in model.parameters().items():
        assert (array != copies[name]).all()


@pytest.mark.parametrize(
    ("optimizer", "is_fused"),
    [
        pytest.param(keras.optimizers.SGD, True, id="its-own-class"),
        pytest.param(OwnStep, False, id="a-subclass"),
        pytest.param(keras.optimizers.Adam, True, id="adam"),
        pytest.param(keras.optimizers.AdamW, True, id="adamw"),
        pytest.param(OwnAdam, False, id="a-subclass-of-adam"),
        pytest.param(keras.optimizers.Adagrad, True, id="adagrad"),
        pytest.param(
            lambda rate: keras.optimizers.Adam(rate, amsgrad=True), False, id="adam-with-amsgrad"
        ),
    ],
)
def test_which_keras_optimizers_get_one(optimizer, is_fused):
    _, updater = _keras_pair([(2,)], "float32", lambda: optimizer(0.1))
    assert ("update_step" in vars(updater._optimizer)) is is_fused


def _torch_pair(shapes, optimizer):
    framework = load_framework("torch")

    class Parameters(nn.Module):
        def __init__(self):
            super().__init__()
            self.own = nn.ParameterList([nn.Parameter(torch.randn(shape)) for shape in shapes])

        def forward(self, features):
            return features

    model_def = ModelDef("net", "torch", Parameters, None, optimizer, lambda dataset, mode: dataset)
    model = framework.build_model(model_def, {}, Batch(torch.ones(1, 2), None, 1), seed=0)
    return model, framework.build_updater(model_def, model)


@settings(max_examples=40, deadline=None)
@given(
    shapes=SHAPES,
    cls=st.sampled_from([torch.optim.Adam, torch.optim.AdamW]),
    amsgrad=st.booleans(),
    weight_decay=st.sampled_from([0.0, 0.1]),
    learning_rate=st.floats(1e-4, 0.1),
    seed=st.integers(0, 1000),
)
def test_torch_adam(shapes, cls, amsgrad, weight_decay, learning_rate, seed):
    settings = {"lr": learning_rate, "amsgrad": amsgrad, "weight_decay": weight_decay}
    ours, own = (
        _torch_pair(shapes, lambda parameters, more=more: cls(parameters, **settings, **more))
        for more in ({}, {"foreach": False})
    )
    assert [pair[1]._optimizer.param_groups[0]["fused"] for pair in (ours, own)] == [True, None]
    random = np.random.default_rng(seed)
    for _ in range(NUM_STEPS):
        gradients = {
            name: random.normal(size=array.shape).astype(np.float32)
            for name, array in ours[0].parameters().items()
        }
        for _model, updater in (ours, own):
            updater.apply({n: a.copy() for n, a in gradients.items()}, learning_rate_scale=0.5)
    for (name, left), right in zip(
        ours[0].parameters().items(), own[0].parameters().values(), strict=True
    ):
        np.testing.assert_allclose(left, right, atol=1e-5, rtol=1e-5, err_msg=name)
