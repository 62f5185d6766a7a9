"""The arrays of a gradient, from the worker's memory or from the chunks of a stream."""

from collections.abc import AsyncIterator, Callable, Collection
from typing import Final

from elastic.master.averaging import Contribution
from elastic.master.parameters import ParameterStore
from elastic.rpc import elastic_pb2 as pb
from elastic.rpc.layout import Assembler, Bytes, LayoutError, aligned_empty
from elastic.rpc.messages import layout_from_proto
from elastic.rpc.shared import Mappings

MAX_FREE: Final = 4
"""Buffers kept for the next streams; more come at once only from more workers elsewhere."""


class GradientReceiver:
    """Receives into memory that is used again: fresh pages cost more than the bytes in them."""

    def __init__(self, store: ParameterStore, open_sessions: Callable[[], Collection[str]]) -> None:
        """Keep the parts.

        Args:
            store: Says how the model's tensors lie.
            open_sessions: Keys of the sessions whose memory stays mapped.
        """
        self._store = store
        self._open_sessions = open_sessions
        self._mappings: dict[str, Mappings] = {}
        self._free: list[Bytes] = []

    async def receive(
        self, header: pb.GradientHeader, chunks: AsyncIterator[memoryview]
    ) -> Contribution:
        """The gradient and state behind a header; `give_back` ends their use.

        Raises:
            LayoutError: They are not the model's tensors.
        """
        store = self._store
        is_shared = header.HasField("shared")
        if not is_shared or header.gradients or header.state:
            layout_from_proto(header.gradients).require(store.parameter_layout, "gradient")
            layout_from_proto(header.state).require(store.state_layout, "state")
        if is_shared:
            return self._contribution(header, self._map(header), None)
        buffer = self._free.pop() if self._free else aligned_empty(store.layout.size_bytes)
        assembler = Assembler(store.layout, buffer)
        try:
            async for chunk in chunks:
                assembler.add(chunk)
            assembler.finish()
        except BaseException:
            self._keep(buffer)
            raise
        return self._contribution(header, buffer, buffer)

    def give_back(self, contribution: Contribution) -> None:
        """Its gradient is applied, summed up or refused, so its memory is free."""
        if contribution.buffer is not None:
            self._keep(contribution.buffer)
            contribution.buffer = None

    def _contribution(
        self, header: pb.GradientHeader, data: Bytes, buffer: Bytes | None
    ) -> Contribution:
        arrays = self._store.layout.views(data)
        split = len(self._store.parameter_layout.specs)
        num_records = header.end - header.start
        return Contribution(arrays[:split], arrays[split:], num_records, buffer=buffer)

    def _keep(self, buffer: Bytes) -> None:
        if len(self._free) < MAX_FREE:
            self._free.append(buffer)

    def _map(self, header: pb.GradientHeader) -> Bytes:
        """The worker's memory, mapped once a session.

        Raises:
            LayoutError: It is not there, or too small.
        """
        for key in self._mappings.keys() - set(self._open_sessions()):
            del self._mappings[key]
        mappings = self._mappings.setdefault(header.session, Mappings(limit=1))
        data = mappings.get(header.shared)
        if data is None or len(data) < self._store.layout.size_bytes:
            raise LayoutError("the shared memory of the report cannot be mapped, or is too small")
        return data
