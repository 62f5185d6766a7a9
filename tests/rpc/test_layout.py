"""Tensors as bytes and back."""

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given

from elastic.rpc.layout import (
    ALIGNMENT,
    CHUNK_BYTES,
    Assembler,
    Layout,
    LayoutError,
    checked_spec,
    iter_chunks,
)
from elastic.rpc.wire import tensors_from_proto, tensors_to_proto

DTYPES = ["float32", "float64", "float16", "int64", "uint8", "bool"]


@given(
    st.lists(
        st.sampled_from(DTYPES).flatmap(
            lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_side=5, min_side=0))
        ),
        max_size=6,
    )
)
def test_chunks_carry_every_byte(arrays):
    tensors = {f"t{i}": array for i, array in enumerate(arrays)}
    layout = Layout.of(tensors)
    assembler = Assembler(layout)
    for pieces in iter_chunks(layout, arrays):
        assembler.add(b"".join(pieces))
    for sent, received in zip(arrays, assembler.finish(), strict=True):
        assert sent.dtype == received.dtype
        assert sent.shape == received.shape
        assert sent.tobytes() == received.tobytes()


def test_bfloat16_and_large_tensors_are_cut_at_chunk_size():
    big = np.arange(1_400_000, dtype=np.float32)
    half = np.arange(3).astype(ml_dtypes.bfloat16)
    layout = Layout.of({"half": half, "big": big})
    chunks = [b"".join(pieces) for pieces in iter_chunks(layout, [half, big])]
    assert [len(chunk) for chunk in chunks[:2]] == [CHUNK_BYTES, CHUNK_BYTES]
    assembler = Assembler(layout)
    for chunk in chunks:
        assembler.add(chunk)
    got_half, got_big = assembler.finish()
    assert got_half.dtype == half.dtype
    np.testing.assert_array_equal(got_big, big)
    # TensorFlow copies, or even aborts on, what is not aligned.
    assert got_big.ctypes.data % ALIGNMENT == got_half.ctypes.data % ALIGNMENT == 0


def test_gradients_are_rounded_to_the_nearest_even_number_on_their_way():
    odd = [np.nan, np.inf, -np.inf, -0.0, 1 + 2**-8, 1 + 3 * 2**-8]
    many = np.random.default_rng(5).normal(size=1_400_001).astype(np.float32)
    arrays = [np.array(odd, np.float32), many, np.array([7]), np.array([1.1], np.float32)]
    wide = Layout.of({f"t{i}": array for i, array in enumerate(arrays)})
    narrow = wide.narrowed(3)
    assert [s.dtype for s in narrow.specs] == ["bfloat16", "bfloat16", "int64", "float32"]
    assembler = Assembler(narrow)
    for pieces in iter_chunks(narrow, arrays):
        assembler.add(b"".join(pieces))
    got_odd, got_many, got_count, got_state = assembler.finish()
    expected = [np.nan, np.inf, -np.inf, -0.0, 1, 1 + 2**-6]
    np.testing.assert_array_equal(got_odd.astype(np.float64), expected)
    assert np.signbit(got_odd[3])
    assert np.abs(np.float32(got_many) / many - 1).max() <= 2**-8
    assert (got_count, got_state) == (arrays[2], arrays[3])


def test_the_order_of_bytes_is_that_of_the_machine():
    big = np.arange(6, dtype=">f4").reshape(2, 3)
    layout = Layout.of({"x": big})
    assembler = Assembler(layout)
    for pieces in iter_chunks(layout, [big]):
        assembler.add(b"".join(pieces))
    for received in (*assembler.finish(), *tensors_from_proto(tensors_to_proto([big]))):
        np.testing.assert_array_equal(received, big)


def test_views_are_aligned_within_the_buffer():
    layout = Layout.of({"a": np.zeros(3, np.uint8), "b": np.zeros(5, np.float64)})
    assert layout.offsets == (0, ALIGNMENT)
    assert layout.size_bytes == 2 * ALIGNMENT


def test_more_bytes_than_announced():
    assembler = Assembler(Layout.of({"a": np.zeros(128, np.uint8)}))
    assembler.add(bytes(128))
    with pytest.raises(LayoutError, match="more bytes than the 128"):
        assembler.add(b"x")


def test_fewer_bytes_than_announced():
    assembler = Assembler(Layout.of({"a": np.zeros(128, np.uint8)}))
    assembler.add(bytes(64))
    with pytest.raises(LayoutError, match="64 bytes where the header announced 128"):
        assembler.finish()


@pytest.mark.parametrize(
    ("dtype", "shape", "message"),
    [
        pytest.param("object", (1,), "unknown dtype 'object'", id="no-objects-on-the-wire"),
        pytest.param("float32", (-1,), "impossible shape", id="negative"),
        pytest.param("float32", (1,) * 40, "impossible shape", id="too-many-dimensions"),
    ],
)
def test_impossible_descriptions_are_refused(dtype, shape, message):
    with pytest.raises(LayoutError, match=message):
        checked_spec("x", dtype, shape)


def test_first_difference_to_the_model_is_named():
    model = Layout.of({"w": np.zeros((4, 4), np.float32)})
    wrong = Layout.of({"w": np.zeros((3, 4), np.float32)})
    message = r"gradient 'w' float32\[3, 4\] where the model has 'w' float32\[4, 4\]"
    with pytest.raises(LayoutError, match=message):
        wrong.require(model, "gradient")
    with pytest.raises(LayoutError, match="0 gradients where the model has 1"):
        Layout(()).require(model, "gradient")
