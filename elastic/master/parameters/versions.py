"""Whole versions of the model in buffers that are reused once nobody reads them."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from elastic.rpc.layout import Array, Layout, aligned_empty
from elastic.rpc.shared import SharedHandle, SharedMemory


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
