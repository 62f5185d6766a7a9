"""tf.train.Example, parsed as TensorFlow parses it."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic.data.example import parse_example
from elastic.errors import DataError

values = st.one_of(
    st.lists(st.binary(max_size=8)).map(
        lambda items: tf.train.Feature(bytes_list=tf.train.BytesList(value=items))
    ),
    st.lists(st.floats(width=32, allow_nan=False)).map(
        lambda items: tf.train.Feature(float_list=tf.train.FloatList(value=items))
    ),
    st.lists(st.integers(-(2**63), 2**63 - 1)).map(
        lambda items: tf.train.Feature(int64_list=tf.train.Int64List(value=items))
    ),
    st.just(tf.train.Feature()),
)


@settings(deadline=None, max_examples=200)
@given(st.dictionaries(st.text(max_size=4), values, max_size=4))
def test_any_example(features):
    example = tf.train.Example(features=tf.train.Features(feature=features))
    parsed = parse_example(example.SerializeToString())
    assert set(parsed) == set(features)
    for name, feature in features.items():
        kind = feature.WhichOneof("kind")
        expected = list(getattr(feature, kind).value) if kind else []
        assert list(parsed[name]) == expected
        if kind == "float_list":
            assert parsed[name].dtype == np.float32
        if kind == "int64_list":
            assert parsed[name].dtype == np.int64


def test_numbers_that_are_not_packed():
    # proto2 writers put each number into a field of its own.
    floats = b"\x0d" + np.float32(1.5).tobytes() + b"\x0d" + np.float32(-2).tobytes()
    integers = b"\x08\x07\x08\xac\x02"
    for number, content, expected in ((2, floats, [1.5, -2.0]), (3, integers, [7, 300])):
        feature = bytes([number << 3 | 2, len(content)]) + content
        entry = b"\x0a\x01x\x12" + bytes([len(feature)]) + feature
        features = b"\x0a" + bytes([len(entry)]) + entry
        record = b"\x0a" + bytes([len(features)]) + features
        assert tf.train.Example.FromString(record).features.feature["x"].WhichOneof("kind")
        assert parse_example(record)["x"].tolist() == expected


@pytest.mark.parametrize(
    "record", [b"\x0a", b"\x0a\x05ab", b"\xff" * 12, b"\x0b\x01", b"plain text"]
)
def test_other_bytes(record):
    with pytest.raises(DataError, match=f"a record of {len(record)} bytes is no tf.train.Example"):
        parse_example(record)
