"""Buffers of whole versions: what is read is not written, what nobody reads is used again."""

from elastic.master.parameters.versions import ModelBuffers


def test_a_buffer_that_is_read_is_handed_to_nobody_else():
    buffers = ModelBuffers(64)
    first, second = buffers.take("one"), buffers.take("another")
    first.data[:] = 1
    second.data[:] = 2
    assert first is not second
    assert set(first.data) == {1}


def test_a_buffer_is_free_when_the_last_of_its_readers_is_done():
    buffers = ModelBuffers(64)
    first = buffers.take("one")
    first.readers.add("two")
    buffers.release("one")
    assert buffers.take("three") is not first
    buffers.release("two")
    assert buffers.take("four") is first
