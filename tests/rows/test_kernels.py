"""Kernels of rows against torch's and Keras' own optimizers, which update whole tables."""

import keras
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic.errors import ModelDefError
from elastic.frameworks.keras.updater import row_rule_of as rule_of_keras
from elastic.frameworks.torch.updater import row_rule_of as rule_of_torch
from elastic.rows.arithmetic import KERNELS, RowRule, kernel_of

NUM_ROWS, DIM = 5, 3
RATES = (0.1, 0.1, 0.05, 0.2, 0.01, 0.02)
"""Of each update: Keras' momentum has the rates of its time in it, torch's has not."""

TORCH = {
    "sgd": (torch.optim.SGD, {}),
    "sgd decayed": (torch.optim.SGD, {"weight_decay": 0.1}),
    "momentum": (torch.optim.SGD, {"momentum": 0.9}),
    "dampened": (torch.optim.SGD, {"momentum": 0.9, "dampening": 0.5, "weight_decay": 0.1}),
    "nesterov": (torch.optim.SGD, {"momentum": 0.8, "nesterov": True}),
    "adagrad": (torch.optim.Adagrad, {}),
    "adagrad decayed": (torch.optim.Adagrad, {"weight_decay": 0.1}),
    "adagrad begun": (torch.optim.Adagrad, {"initial_accumulator_value": 0.1, "eps": 0.01}),
    "adam": (torch.optim.Adam, {"weight_decay": 0.1}),
    "adam far": (torch.optim.Adam, {"betas": (0.5, 0.9), "eps": 0.1}),
    "adamw": (torch.optim.AdamW, {"weight_decay": 0.1, "eps": 0.01}),
    "rmsprop": (torch.optim.RMSprop, {"weight_decay": 0.1, "eps": 0.01}),
    "rmsprop moving": (torch.optim.RMSprop, {"momentum": 0.9, "alpha": 0.8}),
    "rmsprop centered": (torch.optim.RMSprop, {"momentum": 0.9, "centered": True, "eps": 0.1}),
}
KERAS = {
    "sgd": (keras.optimizers.SGD, {}),
    "sgd decayed": (keras.optimizers.SGD, {"weight_decay": 0.1}),
    "momentum": (keras.optimizers.SGD, {"momentum": 0.9, "weight_decay": 0.1}),
    "nesterov": (keras.optimizers.SGD, {"momentum": 0.8, "nesterov": True}),
    "adagrad": (keras.optimizers.Adagrad, {"epsilon": 0.01}),
    "adam": (keras.optimizers.Adam, {}),
    "adam far": (keras.optimizers.Adam, {"beta_1": 0.5, "beta_2": 0.9, "epsilon": 0.1}),
    "adamw": (keras.optimizers.AdamW, {"weight_decay": 0.1}),
    "rmsprop": (keras.optimizers.RMSprop, {"epsilon": 0.01}),
    "rmsprop moving": (keras.optimizers.RMSprop, {"momentum": 0.9, "rho": 0.8}),
    "rmsprop centered": (
        keras.optimizers.RMSprop,
        {"momentum": 0.9, "centered": True, "epsilon": 0.1},
    ),
}
LAZILY = ("sgd", "adagrad", "adagrad begun")
"""What a gradient of zeros leaves alone."""

gradients = st.integers(0, 2**32 - 1).map(
    lambda seed: np.random.default_rng(seed).normal(size=(len(RATES), NUM_ROWS, DIM))
)
few = settings(max_examples=15, deadline=None)


def first_table():
    return np.random.default_rng(7).normal(size=(NUM_ROWS, DIM)).astype(np.float32)


def by_kernel(rule, every, *, given=None):
    """The table after all updates; `given` says which rows have a gradient in which."""
    kernel = kernel_of(rule)
    stored = np.concatenate([first_table(), kernel.begin(NUM_ROWS, DIM)], axis=1)
    for step, (gradient, rate) in enumerate(zip(every, RATES, strict=True), 1):
        which = slice(None) if given is None else np.flatnonzero(given[step - 1])
        touched = stored[which]
        kernel.update(touched, gradient[which].astype(np.float32), rate, step)
        stored[which] = touched
    return stored[:, :DIM]


def by_torch(optimizer, parameter, every):
    for gradient, rate in zip(every, RATES, strict=True):
        optimizer.param_groups[0]["lr"] = rate
        gradient = torch.from_numpy(gradient.astype(np.float32))
        is_sparse = isinstance(optimizer, torch.optim.SparseAdam)
        parameter.grad = gradient.to_sparse(1) if is_sparse else gradient
        optimizer.step()
    return parameter.detach().numpy()


def by_keras(optimizer, every):
    variable = keras.Variable(first_table(), name="table")
    optimizer.build([variable])
    for gradient, rate in zip(every, RATES, strict=True):
        optimizer.learning_rate = rate
        optimizer.apply([keras.ops.convert_to_tensor(gradient.astype(np.float32))])
    return variable.numpy()


def made_torch(name):
    kind, options = TORCH[name]
    parameter = torch.nn.Parameter(torch.from_numpy(first_table()))
    return kind([parameter], lr=0.1, **options), parameter


def without(every, given):
    """Gradients with zeros where there are none."""
    return every * given[:, :, np.newaxis]


def some(seed):
    return np.random.default_rng(seed).random((len(RATES), NUM_ROWS)) < 0.5


@pytest.mark.parametrize("name", TORCH)
@few
@given(every=gradients)
def test_torch_updates_whole_tables_alike(name, every):
    optimizer, parameter = made_torch(name)
    ours = by_kernel(rule_of_torch(optimizer), every)
    np.testing.assert_allclose(ours, by_torch(optimizer, parameter, every), rtol=2e-5, atol=2e-6)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", KERAS)
@few
@given(every=gradients)
def test_keras_updates_whole_tables_alike(name, every):
    kind, options = KERAS[name]
    optimizer = kind(0.1, **options)
    ours = by_kernel(rule_of_keras(optimizer), every)
    # Keras rounds 1 - 0.999 to float32, of which 5 digits are left.
    np.testing.assert_allclose(ours, by_keras(optimizer, every), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", LAZILY)
@few
@given(every=gradients, seed=st.integers(0, 1000))
def test_rows_without_a_gradient_stay_as_with_one_of_zeros(name, every, seed):
    optimizer, parameter = made_torch(name)
    given = some(seed)
    ours = by_kernel(rule_of_torch(optimizer), every, given=given)
    theirs = by_torch(optimizer, parameter, without(every, given))
    np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-6)


@few
@given(every=gradients, seed=st.integers(0, 1000))
def test_adam_touches_what_sparse_adam_touches(every, seed):
    given = some(seed)
    parameter = torch.nn.Parameter(torch.from_numpy(first_table()))
    optimizer = torch.optim.SparseAdam([parameter], eps=0.01)
    rule = rule_of_torch(optimizer)
    for gradient, rate, rows in zip(every, RATES, given, strict=True):
        optimizer.param_groups[0]["lr"] = rate
        indices = torch.from_numpy(np.flatnonzero(rows))[None]
        values = torch.from_numpy(gradient[rows].astype(np.float32))
        parameter.grad = torch.sparse_coo_tensor(
            indices, values, (NUM_ROWS, DIM), check_invariants=True
        )
        optimizer.step()
    ours = by_kernel(rule, every, given=given)
    np.testing.assert_allclose(ours, parameter.detach().numpy(), rtol=2e-5, atol=2e-6)


def test_slots_lie_behind_the_values():
    widths = {kind: len(kernel_of(RowRule(kind)).slots) for kind in KERNELS}
    assert widths == {
        "sgd": 0, "momentum": 1, "velocity": 1, "adagrad": 1, "adam": 2, "rmsprop": 1,
    }  # fmt: skip
    full = kernel_of(RowRule("rmsprop", {"momentum": 0.9, "centered": 1.0}))
    assert full.slots == ("square", "momentum", "average")
    assert full.begin(4, 2).shape == (4, 6)
    assert (kernel_of(RowRule("adagrad", {"initial": 0.5})).begin(1, 2) == 0.5).all()


def test_a_gradient_is_not_changed():
    for kind in KERNELS:
        kernel = kernel_of(RowRule(kind, {"weight_decay": 0.1, "decay": 0.1}))
        gradient = np.ones((2, 3), np.float32)
        values = np.concatenate([np.ones((2, 3), np.float32), kernel.begin(2, 3)], axis=1)
        kernel.update(values, gradient, 0.1, 1)
        assert (gradient == 1).all()
        assert values.dtype == np.float32


class OwnTorch(torch.optim.SGD):
    pass


class OwnKeras(keras.optimizers.SGD):
    pass


@pytest.mark.parametrize(
    ("kind", "options", "told"),
    [
        (OwnTorch, {}, "returned a OwnTorch.*SGD, Adagrad.*use one of these"),
        (torch.optim.Adadelta, {}, "returned a Adadelta"),
        (torch.optim.Adam, {"amsgrad": True}, "amsgrad=True.*largest square.*leave it out"),
        (torch.optim.SGD, {"maximize": True}, "maximize"),
        (torch.optim.Adagrad, {"lr_decay": 0.1}, "lr_decay=0.1.*lr_scheduler"),
    ],
)
def test_other_optimizers_of_torch_are_refused(kind, options, told):
    optimizer = kind([torch.nn.Parameter(torch.zeros(1))], lr=0.1, **options)
    with pytest.raises(ModelDefError, match=told):
        rule_of_torch(optimizer)


@pytest.mark.parametrize(
    ("kind", "options", "told"),
    [
        (OwnKeras, {}, "returned a OwnKeras.*SGD, Adagrad.*use one of these"),
        (keras.optimizers.Ftrl, {}, "returned a Ftrl"),
        (keras.optimizers.Adam, {"amsgrad": True}, "amsgrad=True.*largest square"),
        (keras.optimizers.SGD, {"clipnorm": 1.0}, "clipnorm=1.0"),
        (keras.optimizers.SGD, {"clipvalue": 1.0}, "clipvalue=1.0"),
        (keras.optimizers.SGD, {"global_clipnorm": 1.0}, "global_clipnorm=1.0"),
        (keras.optimizers.SGD, {"use_ema": True}, "use_ema"),
        (keras.optimizers.SGD, {"gradient_accumulation_steps": 2}, "--grads_to_wait"),
    ],
)
def test_other_optimizers_of_keras_are_refused(kind, options, told):
    with pytest.raises(ModelDefError, match=told):
        rule_of_keras(kind(0.1, **options))


def test_rows_do_not_see_the_scale_of_a_loss():
    inner = keras.optimizers.Adam(0.1)
    scaling = keras.optimizers.LossScaleOptimizer(inner)
    assert rule_of_keras(scaling) == rule_of_keras(inner)


@pytest.mark.parametrize(
    ("rule", "told"),
    [(RowRule("lion"), "not by 'lion'"), (RowRule("sgd", {"mass": 1.0}), "without the numbers")],
)
def test_rules_of_another_version_are_refused(rule, told):
    with pytest.raises(ModelDefError, match=told):
        kernel_of(rule)
