"""What a callback holds is the same after a master's restart, or as it was made anew."""

import json
from collections import Counter, defaultdict
from types import SimpleNamespace

import keras
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
import torch

from elastic.master.callbacks import plain_attributes, set_attributes
from elastic.policy.evaluation import Goal


def _again(value, present=None):
    """What an attribute is after a cut, where `present` is what a new callback has in its place."""
    packed = json.loads(json.dumps(plain_attributes(SimpleNamespace(it=value))))
    thing = SimpleNamespace(it=present)
    set_attributes(thing, packed)
    return thing.it


@pytest.mark.parametrize(
    "value",
    [
        pytest.param({0: 0.5, 1: 0.25}, id="epochs-for-keys"),
        pytest.param({(0, "a"): None, True: []}, id="tuples-for-keys"),
        pytest.param([(0, 1.0), (1, 0.5)], id="tuples-in-a-list"),
        pytest.param({"a": {2: (3, [4])}}, id="nested"),
        pytest.param({"$tuple": [1], "$items": [[1, 2]]}, id="keys-that-look-like-ours"),
        pytest.param(float("inf"), id="inf"),
        pytest.param("text", id="text"),
    ],
)
def test_plain_values_come_back_as_they_were(value):
    again = _again(value)
    assert again == value
    assert repr(again) == repr(value), "of the same types"


@pytest.mark.parametrize(
    ("value", "number"),
    [
        pytest.param(tf.constant(0.5), 0.5, id="tf-constant"),
        pytest.param(tf.Variable(3), 3, id="tf-variable"),
        pytest.param(tf.constant(0.5, tf.bfloat16), 0.5, id="tf-bfloat16"),
        pytest.param(keras.Variable(0.5), 0.5, id="keras-variable"),
        pytest.param(torch.tensor(0.5, requires_grad=True), 0.5, id="torch-tensor"),
        pytest.param(np.float32(0.5), 0.5, id="numpy"),
        pytest.param(ml_dtypes.bfloat16(0.5), 0.5, id="bfloat16"),
        pytest.param([np.float32(0.5)], [0.5], id="in-a-list"),
    ],
)
def test_a_scalar_is_a_number(value, number):
    again = _again(value)
    assert again == number
    assert type(again) is type(number)


def _cyclic():
    own = []
    own.append(own)
    return own


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(tf.constant([1.0]), id="vector"),
        pytest.param(tf.constant("text"), id="tf-text"),
        pytest.param(keras.Input(()), id="symbolic"),
        pytest.param(np.datetime64("2026-01-01"), id="date"),
        pytest.param({1}, id="set"),
        pytest.param([object()], id="holds-an-object"),
        pytest.param([Counter("a")], id="holds-a-class-that-a-copy-would-lose"),
        pytest.param(_cyclic(), id="holds-itself"),
    ],
)
def test_what_is_not_plain_stays_as_it_is_made_anew(value):
    assert _again(value, present="anew") == "anew"


def test_what_is_of_a_class_keeps_it():
    counts = _again(defaultdict(list, {1: [0.5]}), present=defaultdict(list))
    counts[2].append(0.25)
    assert counts == {1: [0.5], 2: [0.25]}
    assert _again(Goal.MAX, present=Goal.MIN) is Goal.MAX
    rate = keras.Variable(0.1)
    assert _again(keras.Variable(0.5), present=rate) is rate
    assert float(rate) == 0.5


class _Slotted:
    __slots__ = ("__hidden", "count", "unset")

    def __init__(self, count, hidden):
        self.count = count
        self.__hidden = hidden

    def hidden(self):
        return self.__hidden


class _Derived(_Slotted):
    """Has a `__dict__` besides."""

    def __init__(self, count, hidden, more):
        super().__init__(count, hidden)
        self.more = more


def test_slots_are_attributes():
    slotted, derived = _Slotted(0, 0), _Derived(0, 0, 0)
    set_attributes(slotted, plain_attributes(_Slotted(1, 2)))
    assert (slotted.count, slotted.hidden()) == (1, 2)
    set_attributes(derived, plain_attributes(_Derived(1, 2, 3)))
    assert (derived.count, derived.hidden(), derived.more) == (1, 2, 3)
