"""Tensors handed over in memory between processes of one machine.

A buffer is anonymous memory (memfd): others map it by way of /proc while its owner lives, and it
is gone with the last process that maps it, however that ends. Where a peer is elsewhere, or the
system has no such thing, tensors travel in chunks instead.
"""

import mmap
import os
import secrets
from typing import Any, Final, TypeAlias

import numpy as np

from elastic.rpc import elastic_pb2 as pb
from elastic.rpc.layout import Array, Bytes, Layout

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
