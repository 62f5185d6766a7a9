"""`tf.train.Example` without TensorFlow: the small part of the protobuf wire format it needs.

For a torch `dataset_fn` over TFRecord files::

    from elastic.data.example import parse_example

    def dataset_fn(dataset, mode):
        for record in dataset:
            example = parse_example(record)
            yield example["x"], int(example["label"][0])
"""

import struct
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from elastic.errors import DataError

Feature: TypeAlias = "NDArray[np.float32] | NDArray[np.int64] | list[bytes]"

_VARINT: Final = 0
_FIXED64: Final = 1
_BYTES: Final = 2
_FIXED32: Final = 5

_BYTES_LIST: Final = 1
_FLOAT_LIST: Final = 2
_INT64_LIST: Final = 3


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
    features: dict[str, Feature] = {}
    try:
        for field, _, example in _fields(memoryview(record)):
            if field != 1:
                continue
            for entry, _, pair in _fields(example):
                if entry == 1:
                    name, feature = _entry(pair)
                    features[name] = feature
    except (IndexError, TypeError, ValueError, struct.error) as error:
        raise DataError(
            f"a record of {len(record)} bytes is no tf.train.Example ({error}): parse it as what "
            "was written"
        ) from error
    return features


def _entry(pair: Any) -> tuple[str, Feature]:
    name, value = "", memoryview(b"")
    for field, _, content in _fields(pair):
        if field == 1:
            name = bytes(content).decode()
        elif field == 2:
            value = content
    return name, _feature(value)


def _feature(value: Any) -> Feature:
    feature: Feature = []
    for kind, _, content in _fields(value):
        if kind == _BYTES_LIST:
            feature = [bytes(item) for field, _, item in _fields(content) if field == 1]
        elif kind == _FLOAT_LIST:
            feature = _floats(content)
        elif kind == _INT64_LIST:
            feature = _integers(content)
    return feature


def _floats(content: Any) -> NDArray[np.float32]:
    """A list of floats, packed into one field as all writers do, or one by one."""
    packed = b"".join(bytes(item) for field, _, item in _fields(content) if field == 1)
    return np.frombuffer(packed, "<f4").astype(np.float32)


def _integers(content: Any) -> NDArray[np.int64]:
    parts: list[NDArray[np.int64]] = []
    for field, wire_type, item in _fields(content):
        if field == 1 and wire_type == _BYTES:
            parts.append(_varints(np.frombuffer(item, np.uint8)))
        elif field == 1:
            parts.append(np.array([item], np.uint64).astype(np.int64))
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _varints(data: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Decode packed varints: seven bits a byte, lowest first, the last byte below 128."""
    ends = np.flatnonzero(data < 128)
    if len(data) and (not len(ends) or ends[-1] != len(data) - 1):
        raise ValueError("a number has no end")
    begins = np.concatenate(([0], ends[:-1] + 1)) if len(ends) else ends
    if len(ends) and int((ends - begins).max()) >= 10:
        raise ValueError("a number is longer than 10 bytes")
    places = np.arange(len(data)) - np.repeat(begins, ends - begins + 1)
    bits = (data & 127).astype(np.uint64) << (7 * places).astype(np.uint64)
    values = np.bitwise_or.reduceat(bits, begins) if len(ends) else np.empty(0, np.uint64)
    return values.view(np.int64)


def _fields(message: Any) -> Iterator[tuple[int, int, Any]]:
    """The fields of a message: number, wire type, and an integer or a view of bytes."""
    position, size = 0, len(message)
    while position < size:
        key, position = _varint(message, position)
        wire_type = key & 7
        if wire_type == _VARINT:
            value, position = _varint(message, position)
            yield key >> 3, wire_type, value
            continue
        if wire_type == _BYTES:
            length, position = _varint(message, position)
        elif wire_type in (_FIXED64, _FIXED32):
            length = 8 if wire_type == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {wire_type}")
        if position + length > size:
            raise ValueError("a field goes beyond the end")
        yield key >> 3, wire_type, message[position : position + length]
        position += length


def _varint(message: Any, position: int) -> tuple[int, int]:
    value = message[position]
    if value < 128:
        return value, position + 1
    value &= 127
    for shift in range(7, 70, 7):
        position += 1
        byte = message[position]
        value |= (byte & 127) << shift
        if byte < 128:
            return value & 0xFFFFFFFFFFFFFFFF, position + 1
    raise ValueError("a number is longer than 10 bytes")
