"""Memory handed over between processes."""

import gc
import multiprocessing
from contextlib import suppress
from pathlib import Path

import numpy as np

from elastic.rpc import elastic_pb2 as pb
from elastic.rpc.shared import Mappings, SharedMemory, map_shared


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
