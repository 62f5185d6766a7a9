"""Many tensors as one run of bytes, and back, without a copy where none is needed.

Also where that run lies in memory which processes share, and is used again.
"""

import math
import mmap
import os
import secrets
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, TypeAlias

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from elastic.rpc import elastic_pb2 as pb

Array: TypeAlias = NDArray[Any]
Bytes: TypeAlias = NDArray[np.uint8]

ALIGNMENT: Final = 64
"""Every tensor begins at a multiple of this, so that views are aligned for any kernel."""

CHUNK_BYTES: Final = 2 << 20
"""Measured: by sockets, chunks of 2 MiB carry 1.4 times the bytes per second that those of 1 MiB
do, for half as many hand-overs between threads, and those of 4 MiB no more; by gRPC both carry
three times those of one large message."""

NARROWED_AT_ONCE: Final = CHUNK_BYTES // 2
"""Numbers that are rounded on their way into a chunk, while the chunk before is being sent."""

MAX_TENSORS: Final = 100_000
MAX_DIMENSIONS: Final = 32

DTYPES: Final[Mapping[str, np.dtype[Any]]] = {
    **{
        name: np.dtype(name)
        for name in (
            "float64", "float32", "float16", "int64", "int32", "int16", "int8",
            "uint64", "uint32", "uint16", "uint8", "bool",
        )
    },
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}  # fmt: skip


class LayoutError(ValueError):
    """A description of tensors that cannot be true, or does not match what is expected."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Name, dtype and shape of one tensor."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        return DTYPES[self.dtype]

    @property
    def size_bytes(self) -> int:
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize

    def narrowed(self) -> "TensorSpec":
        """The same tensor as bfloat16, where it is float32."""
        return replace(self, dtype="bfloat16") if self.dtype == "float32" else self

    def __str__(self) -> str:
        return f"{self.name!r} {self.dtype}{list(self.shape)}"


def spec_of(name: str, array: Array) -> TensorSpec:
    """Describe an array.

    Raises:
        LayoutError: Its dtype has no name on the wire.
    """
    if array.dtype.name not in DTYPES:
        raise LayoutError(f"tensor {name!r} has dtype {array.dtype}, which cannot be sent")
    return TensorSpec(name, array.dtype.name, array.shape)


def checked_spec(name: str, dtype: str, shape: Sequence[int]) -> TensorSpec:
    """Describe a tensor by what a peer says.

    Raises:
        LayoutError: An unknown dtype, or a shape that no array has.
    """
    if dtype not in DTYPES:
        raise LayoutError(f"tensor {name!r} has the unknown dtype {dtype!r}")
    if len(shape) > MAX_DIMENSIONS or any(size < 0 for size in shape):
        raise LayoutError(f"tensor {name!r} has the impossible shape {list(shape)[:8]}")
    return TensorSpec(name, dtype, tuple(shape))


@dataclass(frozen=True)
class Layout:
    """Tensors in order, each at its offset in one buffer of `size_bytes`."""

    specs: tuple[TensorSpec, ...]

    @classmethod
    def of(cls, *groups: Mapping[str, Array]) -> "Layout":
        """The layout of some groups of arrays, one after the other."""
        return cls(tuple(spec_of(name, array) for group in groups for name, array in group.items()))

    def narrowed(self, number: int | None = None) -> "Layout":
        """The same with the first so many tensors as bfloat16 where they are float32; all of them
        for None.
        """
        first = tuple(spec.narrowed() for spec in self.specs[:number])
        return Layout(first + self.specs[len(first) :])

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        position = 0
        result = []
        for spec in self.specs:
            result.append(position)
            position += -(-spec.size_bytes // ALIGNMENT) * ALIGNMENT
        return tuple(result)

    @cached_property
    def size_bytes(self) -> int:
        """Bytes of the whole run, padding between tensors and behind the last included."""
        return sum(-(-spec.size_bytes // ALIGNMENT) * ALIGNMENT for spec in self.specs)

    def holds(self, arrays: Mapping[str, Array]) -> bool:
        """Whether these are tensors of this layout, in its order."""
        return len(arrays) == len(self.specs) and all(
            name == spec.name and array.shape == spec.shape and array.dtype == DTYPES[spec.dtype]
            for (name, array), spec in zip(arrays.items(), self.specs, strict=True)
        )

    def views(self, buffer: Bytes) -> list[Array]:
        """The tensors as views into `buffer`, in order."""
        return [
            buffer[offset : offset + spec.size_bytes].view(DTYPES[spec.dtype]).reshape(spec.shape)
            for spec, offset in zip(self.specs, self.offsets, strict=True)
        ]

    def named(self, arrays: Sequence[Array]) -> dict[str, Array]:
        """Arrays of this layout, by name."""
        return {spec.name: array for spec, array in zip(self.specs, arrays, strict=True)}

    def fill(self, buffer: Bytes, arrays: Iterable[Array]) -> None:
        """Copy arrays of this layout into `buffer`."""
        for view, array in zip(self.views(buffer), arrays, strict=True):
            np.copyto(view, array)

    def require(self, expected: "Layout", what: str) -> None:
        """Check that a peer's layout is the model's.

        Raises:
            LayoutError: They differ; the message names the first difference.
        """
        if self.specs == expected.specs:
            return
        for mine, theirs in zip(expected.specs, self.specs, strict=False):
            if mine != theirs:
                raise LayoutError(f"{what} {theirs} where the model has {mine}")
        raise LayoutError(f"{len(self.specs)} {what}s where the model has {len(expected.specs)}")


def iter_chunks(layout: Layout, arrays: Sequence[Array]) -> Iterator[list[memoryview]]:
    """Cut the run of bytes into chunks of about 2 MiB, each a list of pieces to be joined.

    The arrays are read while the iterator is advanced, so they must not change meanwhile.

    Args:
        layout: Of what is sent.
        arrays: Of its shapes and dtypes; float32 is rounded where it says bfloat16.
    """
    pieces: list[memoryview] = []
    room = CHUNK_BYTES
    for piece in _pieces(layout, arrays):
        at = 0
        while at < len(piece):
            part = piece[at : at + room]
            pieces.append(part)
            at += len(part)
            room -= len(part)
            if room == 0:
                yield pieces
                pieces, room = [], CHUNK_BYTES
    if pieces:
        yield pieces


def _pieces(layout: Layout, arrays: Sequence[Array]) -> Iterator[memoryview]:
    padding = memoryview(bytes(ALIGNMENT))
    for spec, array in zip(layout.specs, arrays, strict=True):
        if spec.size_bytes == 0:
            continue
        yield from _rounded(spec, wire_order(array).reshape(-1))
        if spec.size_bytes % ALIGNMENT:
            yield padding[: ALIGNMENT - spec.size_bytes % ALIGNMENT]


def _rounded(spec: TensorSpec, flat: Array) -> Iterator[memoryview]:
    """The bytes of a tensor, to the nearest even number where it is sent as a narrower one."""
    if flat.dtype == spec.numpy_dtype:
        yield flat.view(np.uint8).data
        return
    for start in range(0, len(flat), NARROWED_AT_ONCE):
        some = flat[start : start + NARROWED_AT_ONCE]
        yield some.astype(spec.numpy_dtype).view(np.uint8).data


def wire_order(array: Array) -> Array:
    """The array as its bytes are sent: row after row, each number as this machine has it.

    The name of a dtype, which is all that the peer sees, says nothing of the order of its bytes.
    """
    return np.ascontiguousarray(array, array.dtype.newbyteorder("="))


def aligned_empty(size_bytes: int) -> Bytes:
    """Uninitialised memory that begins at a multiple of `ALIGNMENT`, which NumPy's own need not."""
    memory = np.empty(size_bytes + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size_bytes]


class Assembler:
    """Collects the chunks of one layout into one buffer."""

    def __init__(self, layout: Layout, buffer: Bytes | None = None) -> None:
        self._layout = layout
        self._buffer = aligned_empty(layout.size_bytes) if buffer is None else buffer
        self._begin = self._buffer.ctypes.data
        self._position = 0

    @property
    def room(self) -> memoryview:
        """Where chunks may lie already when they are added, one behind the other."""
        return self._buffer[: self._layout.size_bytes].data

    def add(self, data: memoryview | bytes) -> None:
        """Take the next chunk.

        Raises:
            LayoutError: More bytes than the header announced.
        """
        end = self._position + len(data)
        if end > self._layout.size_bytes:
            raise LayoutError(
                f"more bytes than the {self._layout.size_bytes} that the header announced"
            )
        chunk = np.frombuffer(data, np.uint8)
        if chunk.ctypes.data != self._begin + self._position:
            self._buffer[self._position : end] = chunk
        self._position = end

    def finish(self) -> list[Array]:
        """The tensors, as views into the buffer.

        Raises:
            LayoutError: Fewer bytes than the header announced.
        """
        if self._position != self._layout.size_bytes:
            raise LayoutError(
                f"{self._position} bytes where the header announced {self._layout.size_bytes}"
            )
        return self._layout.views(self._buffer)


# Tensors handed over in memory between processes of one machine.
#
# A buffer is anonymous memory (memfd): others map it by way of /proc while its owner lives, and it
# is gone with the last process that maps it, however that ends. Where a peer is elsewhere, or the
# system has no such thing, tensors travel in chunks instead.


NONCE_BYTES: Final = 16
DATA_OFFSET: Final = 64
"""The nonce stands before the data, which begins aligned."""

SharedHandle: TypeAlias = pb.SharedBuffer
"""Names the memory of a process to another one on its machine."""


class SharedMemory:
    """Memory of this process that others on the machine can map."""

    def __init__(self, size_bytes: int) -> None:
        """Allocate.

        Raises:
            OSError: The system has no such memory, or none left.
        """
        self._fd = -1
        if not hasattr(os, "memfd_create"):
            raise OSError("this system has no memfd")
        self._nonce = secrets.token_bytes(NONCE_BYTES)
        self._size_bytes = size_bytes + DATA_OFFSET
        self._fd = os.memfd_create("elastic-tensors", os.MFD_CLOEXEC)
        try:
            os.ftruncate(self._fd, self._size_bytes)
            self._map = mmap.mmap(self._fd, self._size_bytes)
        except OSError:
            self.close()
            raise
        self._map[:NONCE_BYTES] = self._nonce
        self.data: Bytes = np.frombuffer(self._map, np.uint8)[DATA_OFFSET:]

    def handle(self) -> SharedHandle:
        """What a peer needs to map this memory."""
        return pb.SharedBuffer(
            pid=os.getpid(), fd=self._fd, size_bytes=self._size_bytes, nonce=self._nonce
        )

    def close(self) -> None:
        """Let go of the descriptor; the memory stays as long as somebody maps it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    # Whoever holds the memory last may be a session that is forgotten or a job that has ended.
    def __del__(self) -> None:
        self.close()


class Proof:
    """That a process is on the machine: an empty buffer of it, which no other machine can map.

    Attributes:
        calls_port: The port at which the process takes calls by sockets from others; 0 for none.
    """

    def __init__(self, calls_at: str = "") -> None:
        """Make one.

        Args:
            calls_at: The name at which the process takes calls from its machine.
        """
        self._calls_at = calls_at
        self.calls_port = 0
        try:
            self._memory: SharedMemory | None = SharedMemory(0)
        except OSError:
            self._memory = None

    def give(self, reply: pb.RegisterReply | pb.LoadReply) -> None:
        """Put it into a reply; nothing where the system has no such memory."""
        if self._memory is not None:
            reply.proof.CopyFrom(self._memory.handle())
            reply.proof.calls_at = self._calls_at
            reply.proof.calls_port = self.calls_port


def map_shared(handle: SharedHandle) -> Bytes | None:
    """Map a peer's memory, its data only; None if it is not to be had here.

    The nonce tells the peer's memory from that of a process which has the same number in this
    container, but is another one.
    """
    path = f"/proc/{int(handle.pid)}/fd/{int(handle.fd)}"
    if handle.size_bytes < DATA_OFFSET or len(handle.nonce) != NONCE_BYTES:
        return None
    try:
        fd = os.open(path, os.O_RDWR)
    except OSError:
        return None
    try:
        if os.fstat(fd).st_size != handle.size_bytes:
            return None
        mapped: Any = mmap.mmap(fd, handle.size_bytes)
    except OSError:
        return None
    finally:
        os.close(fd)
    if mapped[:NONCE_BYTES] != handle.nonce:
        return None
    return np.frombuffer(mapped, np.uint8)[DATA_OFFSET:]


class Mappings:
    """Peers' memory that is mapped already, the newest few."""

    def __init__(self, limit: int = 8) -> None:
        self._limit = limit
        self._by_nonce: dict[bytes, Bytes] = {}
        self._views: dict[bytes, tuple[Layout, list[Array]]] = {}

    def get(self, handle: SharedHandle) -> Bytes | None:
        """The mapped data of a handle, or None if it is not to be had here."""
        data = self._by_nonce.get(handle.nonce)
        if data is None:
            data = map_shared(handle)
            if data is None:
                return None
            while len(self._by_nonce) >= self._limit:
                oldest = next(iter(self._by_nonce))
                del self._by_nonce[oldest]
                self._views.pop(oldest, None)
            self._by_nonce[handle.nonce] = data
        return data

    def views(self, handle: SharedHandle, layout: Layout) -> list[Array] | None:
        """Tensors in a handle's memory: the same arrays as long as that stays mapped.

        None if it is not to be had here, or too small.
        """
        data = self.get(handle)
        if data is None or len(data) < layout.size_bytes:
            return None
        # Made anew they cost 25 us for six tensors, on both sides of each report.
        made_for, arrays = self._views.get(handle.nonce, (None, []))
        if made_for is not layout:
            arrays = layout.views(data)
            self._views[handle.nonce] = layout, arrays
        return arrays


# Whole versions of the model in buffers that are reused once nobody reads them.


@dataclass(slots=True)
class ModelBuffer:
    """One buffer, and who still reads what it holds.

    Attributes:
        arrays: The tensors of the layout in it.
        memory: Where it lies; None where that cannot be shared.
    """

    arrays: Sequence[Array]
    memory: SharedMemory | None
    readers: set[Hashable] = field(default_factory=set)

    def handle(self) -> SharedHandle | None:
        """For a peer on this machine; None where memory cannot be shared."""
        return None if self.memory is None else self.memory.handle()


@dataclass(frozen=True, slots=True)
class PackedModel:
    """One version of the model, in one buffer that does not change while it has readers."""

    version: int
    layout: Layout
    num_parameters: int
    arrays: Sequence[Array]
    buffer: ModelBuffer


class ModelBuffers:
    """A pool that hands out a buffer nobody reads, making one more only when all are read.

    Fresh memory costs a page fault every 4 KiB, several times the copy itself.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._buffers: list[ModelBuffer] = []

    def take(self, reader: Hashable) -> ModelBuffer:
        """A free buffer, which `reader` now holds."""
        buffer = next((b for b in self._buffers if not b.readers), None)
        if buffer is None:
            buffer = self._make()
            self._buffers.append(buffer)
        buffer.readers.add(reader)
        return buffer

    def release(self, reader: Hashable) -> None:
        """A reader is done with whatever it held."""
        for buffer in self._buffers:
            buffer.readers.discard(reader)

    def _make(self) -> ModelBuffer:
        try:
            memory = SharedMemory(self._layout.size_bytes)
        except OSError:
            # No memfd, or no memory left for it: versions then travel in chunks only.
            return ModelBuffer(self._layout.views(aligned_empty(self._layout.size_bytes)), None)
        return ModelBuffer(self._layout.views(memory.data), memory)
