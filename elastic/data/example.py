"""`tf.train.Example` without TensorFlow.

For a torch `dataset_fn` over TFRecord files::

    from elastic.data.example import parse_example

    def dataset_fn(dataset, mode):
        for record in dataset:
            example = parse_example(record)
            yield example["x"], int(example["label"][0])
"""

from typing import TypeAlias

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from elastic.data import elastic_example_pb2 as pb
from elastic.errors import DataError

Feature: TypeAlias = "NDArray[np.float32] | NDArray[np.int64] | list[bytes]"


def parse_example(record: bytes) -> dict[str, Feature]:
    """The features of a serialized `tf.train.Example`.

    Args:
        record: As read from a TFRecord file.

    Returns:
        Name → (n,) float32, (n,) int64, or a list of bytes; a feature without a kind, as written
        for a missing value, is an empty list. Arrays may be changed.

    Raises:
        DataError: The bytes are no Example.
    """
    try:
        example = pb.Example.FromString(record)
    except DecodeError as error:
        raise DataError(
            f"a record of {len(record)} bytes is no tf.train.Example ({error}): parse it as what "
            "was written"
        ) from error
    return {name: _values(feature) for name, feature in example.features.feature.items()}


def _values(feature: pb.Feature) -> Feature:
    match feature.WhichOneof("kind"):
        case "float_list":
            return _floats(feature.float_list)
        case "int64_list":
            return np.array(feature.int64_list.value, np.int64)
        case "bytes_list":
            return list(feature.bytes_list.value)
    return []


def _floats(floats: pb.FloatList) -> NDArray[np.float32]:
    """A list of floats, taken whole from the bytes that it makes.

    Older versions of protobuf give numbers to NumPy one by one: thousands of them took 20 times
    as long.
    """
    floats.DiscardUnknownFields()
    packed = floats.SerializeToString()
    begin = len(packed) - 4 * len(floats.value)
    return np.frombuffer(packed, "<f4", offset=begin).astype(np.float32)
