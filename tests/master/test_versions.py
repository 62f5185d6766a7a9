"""Buffers of whole versions: what is read is not written, what nobody reads is used again."""

import numpy as np

from elastic.rpc.layout import Layout, ModelBuffers

LAYOUT = Layout.of({"kernel": np.zeros((2, 3), np.float32), "bias": np.zeros(3, np.float32)})


def test_a_buffer_that_is_read_is_handed_to_nobody_else():
    buffers = ModelBuffers(LAYOUT)
    first, second = buffers.take("one"), buffers.take("another")
    for number, buffer in enumerate((first, second), 1):
        for array in buffer.arrays:
            array[:] = number
    assert first is not second
    assert [array.shape for array in first.arrays] == [(2, 3), (3,)]
    assert {float(each) for array in first.arrays for each in array.flat} == {1.0}


def test_a_buffer_is_free_when_the_last_of_its_readers_is_done():
    buffers = ModelBuffers(LAYOUT)
    first = buffers.take("one")
    first.readers.add("two")
    buffers.release("one")
    assert buffers.take("three") is not first
    buffers.release("two")
    assert buffers.take("four") is first
