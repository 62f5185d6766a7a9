"""Arrays travel joined to TensorFlow and come back bit for bit."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from elastic.errors import CheckpointError
from elastic.frameworks import load_framework

load_framework("keras")

import keras  # noqa: E402 - load_framework chooses its backend first
import tensorflow as tf  # noqa: E402

from elastic.frameworks.keras.tensors import (  # noqa: E402
    ALIGNMENT_BYTES,
    Joining,
    VariableGroup,
    aligned_empty,
    described,
)

DTYPES = ("float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8", "bool")
LARGE = (300, 100)


def _numpy_dtype(name):
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


@st.composite
def _arrays(draw):
    shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
    kinds = draw(st.lists(st.tuples(st.sampled_from(DTYPES), shapes | st.just(LARGE)), max_size=8))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    return {
        f"v{index}": (random.standard_normal(shape) * 100).astype(_numpy_dtype(dtype))
        for index, (dtype, shape) in enumerate(kinds)
    }


def _convert(_, array):
    return tf.convert_to_tensor(array)


def _variables(arrays):
    return {
        name: keras.Variable(np.zeros_like(array), dtype=array.dtype.name, name=name)
        for name, array in arrays.items()
    }


def _assert_same(got, expected):
    assert list(got) == list(expected)
    for name, array in expected.items():
        assert got[name].dtype == array.dtype
        assert got[name].shape == array.shape
        assert got[name].tobytes() == array.tobytes()


@settings(max_examples=100, deadline=None)
@given(_arrays())
def test_joining_changes_no_bit(arrays):
    joining = Joining(arrays)
    split = joining.split(joining.to_tensors(arrays, _convert))
    _assert_same({name: tensor.numpy() for name, tensor in split.items()}, arrays)


def test_small_arrays_of_one_dtype_travel_in_one_tensor():
    small = {f"bias{i}": np.full(7, i, np.float32) for i in range(20)}
    arrays = {**small, "kernel": np.ones(LARGE, np.float32), "count": np.zeros((), np.int64)}
    assert len(Joining(arrays).to_tensors(arrays, _convert)) == 3


def test_arrays_may_lie_anyhow_in_memory():
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    arrays = {"transposed": base.T, "strided": base[::2, ::3], "alone": base}
    joining = Joining({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    split = joining.split(joining.to_tensors(arrays, _convert))
    for name, array in arrays.items():
        np.testing.assert_array_equal(split[name].numpy(), array)


@settings(max_examples=15, deadline=None)
@given(_arrays())
def test_what_is_written_is_read(arrays):
    group = VariableGroup(_variables(arrays))
    group.check("parameters", arrays)
    group.write(arrays)
    _assert_same(group.read(), arrays)


def test_arrays_given_out_never_change():
    arrays = {"kernel": np.ones(LARGE, np.float32), "a": np.ones(3, "f4"), "b": np.ones(2, "f4")}
    variables = _variables(arrays)
    group = VariableGroup(variables)
    group.write(arrays)
    before = group.read()
    group.write({name: array + 1 for name, array in arrays.items()})
    for variable in variables.values():
        variable.value.assign_add(tf.ones_like(variable.value))
    _assert_same(before, arrays)
    assert all((array == 3).all() for array in group.read().values())


@pytest.mark.parametrize("shift_bytes", [0, 4])
def test_arrays_taken_in_may_change_afterwards(shift_bytes):
    # Aligned memory is shared with TensorFlow for the call, any other is staged.
    memory = aligned_empty((2 * ALIGNMENT_BYTES + 120_000,), np.dtype(np.uint8))[shift_bytes:]
    kernel = memory[:120_000].view(np.float32).reshape(LARGE)
    kernel[...] = 1
    arrays = {"kernel": kernel, "a": np.ones(3, "f4"), "b": np.ones(2, "f4")}
    group = VariableGroup(_variables(arrays))
    group.write(arrays)
    for array in arrays.values():
        array[...] = 9
    assert all((array == 1).all() for array in group.read().values())


def test_what_does_not_fit_is_refused():
    arrays = {"kernel": np.ones((2, 3), np.float32), "bias": np.ones(3, np.float32)}
    group = VariableGroup(_variables(arrays))
    with pytest.raises(
        CheckpointError, match=r"kernel is float32\[2, 3\] here and float32\[3, 2\]"
    ):
        group.check("parameters", {**arrays, "kernel": arrays["kernel"].T})


def test_no_variables_are_a_group_too():
    group = VariableGroup({})
    group.write({})
    assert group.read() == {}


def test_described_has_shapes_and_dtypes():
    arrays = {"kernel": np.ones((2, 3), np.float32), "half": np.ones(3, ml_dtypes.bfloat16)}
    got = described(_variables(arrays))
    assert [(a.shape, a.dtype) for a in got.values()] == [
        (a.shape, a.dtype) for a in arrays.values()
    ]
