"""Many tensors as one run of bytes, and back, without a copy where none is needed."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, TypeAlias

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Bytes: TypeAlias = NDArray[np.uint8]

ALIGNMENT: Final = 64
"""Every tensor begins at a multiple of this, so that views are aligned for any kernel."""

CHUNK_BYTES: Final = 2 << 20
"""Measured: by sockets, chunks of 2 MiB carry 1.4 times the bytes per second of those of 1 MiB, for
half as many hand-overs between threads, and those of 4 MiB no more; by gRPC both carry three times
those of one large message."""

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
