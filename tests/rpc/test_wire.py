"""Chunk messages taken apart by hand are the protobuf messages of the protocol."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from elastic.rpc import elastic_pb2 as pb
from elastic.rpc.wire import (
    METHODS,
    SERVER_METHODS,
    Malformed,
    decode_chunk,
    encode_data,
    head_of_data,
)


@given(st.lists(st.binary(max_size=300), min_size=1))
def test_data_is_what_protobuf_would_write_and_read(pieces):
    raw = b"".join(encode_data([memoryview(piece) for piece in pieces]))
    assert pb.GradientChunk.FromString(raw).data == b"".join(pieces)
    assert bytes(decode_chunk(pb.GradientChunk, raw)) == b"".join(pieces)
    assert pb.ModelChunk(data=b"".join(pieces)).SerializeToString() == raw


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_malformed(raw):
    decoded = decode_chunk(pb.GradientChunk, raw)
    assert isinstance(decoded, (memoryview, pb.GradientChunk, Malformed))


@given(st.integers(0, 1 << 22))
def test_what_data_stand_behind_is_known_by_the_length_of_the_message(size):
    raw = b"".join(encode_data([bytes(size)]))
    assert head_of_data(len(raw)) == raw[: len(raw) - size]


def test_a_length_that_no_message_of_data_has_has_no_head():
    lengths = {len(b"".join(encode_data([bytes(size)]))) for size in range(400)}
    assert [length for length in range(400) if not head_of_data(length)] == [
        length for length in range(400) if length not in lengths
    ]


def test_cut_data_is_malformed():
    raw = b"".join(encode_data([b"x" * 100]))
    assert decode_chunk(pb.GradientChunk, raw[:-1]) == Malformed(
        "a data chunk whose length is wrong"
    )


@pytest.mark.parametrize(("name", "methods"), [("Master", METHODS), ("Server", SERVER_METHODS)])
def test_every_method_of_the_protocol_is_served(name, methods):
    service = pb.DESCRIPTOR.services_by_name[name]
    assert set(methods) == {method.name for method in service.methods}
    for method in service.methods:
        assert methods[method.name].path == f"/{service.full_name}/{method.name}"
        assert methods[method.name].streams_requests == method.client_streaming
        assert methods[method.name].streams_replies == method.server_streaming
