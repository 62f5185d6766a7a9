"""Memory handed over between processes."""

import gc
import multiprocessing
import weakref
from contextlib import suppress
from pathlib import Path

import numpy as np

from elastic.rpc import elastic_pb2 as pb
from elastic.rpc.layout import Layout, Mappings, SharedMemory, map_shared


def _write(raw, queue):
    data = map_shared(pb.SharedBuffer.FromString(raw))
    data[:3] = [1, 2, 3]
    queue.put(len(data))


def test_another_process_sees_and_changes_the_same_bytes():
    memory = SharedMemory(100)
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    child = context.Process(target=_write, args=(memory.handle().SerializeToString(), queue))
    child.start()
    assert queue.get(timeout=300) == 100
    child.join()
    assert memory.data[:4].tolist() == [1, 2, 3, 0]


def test_wrong_nonce_is_not_mapped():
    memory = SharedMemory(100)
    handle = memory.handle()
    handle.nonce = b"x" * 16
    assert map_shared(handle) is None


def test_absent_process_wrong_size_and_short_nonce_are_not_mapped():
    handle = SharedMemory(100).handle()
    for change in ({"pid": 2**22 + 1}, {"size_bytes": 10}, {"size_bytes": 2**40}, {"nonce": b""}):
        other = pb.SharedBuffer()
        other.CopyFrom(handle)
        for key, value in change.items():
            setattr(other, key, value)
        assert map_shared(other) is None, change


def test_mapping_outlives_the_descriptor():
    memory = SharedMemory(8)
    mapped = Mappings().get(memory.handle())
    memory.close()
    memory.data[0] = 7
    assert mapped[0] == 7
    assert map_shared(memory.handle()) is None


def test_mappings_keep_the_newest():
    memories = [SharedMemory(8) for _ in range(3)]
    mappings = Mappings(limit=2)
    for index, memory in enumerate(memories):
        memory.data[0] = index
        assert mappings.get(memory.handle())[0] == index
    assert np.shares_memory(mappings.get(memories[2].handle()), mappings.get(memories[2].handle()))


def test_tensors_in_mapped_memory_are_the_same_arrays_each_time():
    layout = Layout.of({"kernel": np.zeros((2, 3), np.float32)})
    other = Layout.of({"kernel": np.zeros((3, 2), np.float32)})
    memory, mappings = SharedMemory(layout.size_bytes), Mappings(limit=1)
    [array] = mappings.views(memory.handle(), layout)
    array[:] = 5
    assert memory.data.view(np.float32)[:6].tolist() == [5.0] * 6
    assert mappings.views(memory.handle(), layout)[0] is array
    # What lies there is another matter to who asks for other tensors.
    assert mappings.views(memory.handle(), other)[0].shape == (3, 2)
    assert mappings.views(memory.handle(), layout)[0].shape == (2, 3)
    too_large = Layout.of({"kernel": np.zeros(1000, np.float32)})
    assert mappings.views(memory.handle(), too_large) is None
    # Of memory that is mapped no more nothing is kept.
    [array] = mappings.views(memory.handle(), layout)
    newer = SharedMemory(layout.size_bytes)
    assert mappings.views(newer.handle(), layout)[0] is not array
    held = weakref.ref(array)
    del array
    assert held() is None


def _is_memory(descriptor):
    # Other threads open and close what they look at.
    with suppress(FileNotFoundError):
        return str(descriptor.readlink()).startswith("/memfd:elastic-tensors")
    return False


def test_memory_that_nobody_holds_gives_its_descriptor_back():
    def num_descriptors():
        gc.collect()
        return sum(map(_is_memory, Path("/proc/self/fd").iterdir()))

    before = num_descriptors()
    kept = [SharedMemory(64) for _ in range(5)]
    assert num_descriptors() >= before + 5
    kept.clear()
    assert num_descriptors() == before
