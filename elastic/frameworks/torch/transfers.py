"""Values between a GPU and the memory of the host, as fast as the bus carries them.

A GPU reads and writes by itself only memory that is locked in its place; with other memory the
driver copies piece by piece through a little of its own, and fresh memory costs a page fault every
4 KiB besides. So what comes from a GPU goes to locked memory that is used again, and memory that
values come from again and again (what processes of one machine share, the sum of a group) is
locked where it lies.
"""

import contextlib
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch

from elastic.frameworks.base import Array, Tensors
from elastic.frameworks.torch.arrays import fill, to_array, to_tensor

MIN_LOCKED_BYTES: Final = 1 << 20
"""Below this, locking gains less than it costs, and pages may be shared with other arrays."""


@dataclass(frozen=True, slots=True)
class _Copy:
    """Memory of the host, as either side sees it, and whether that is kept for copies alone."""

    tensor: torch.Tensor
    array: Array
    is_own: bool

    def fits(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor can be copied there."""
        return self.tensor.shape == tensor.shape and self.tensor.dtype == tensor.dtype


class HostCopies:
    """The values of some tensors as arrays: views where they lie on the CPU, else copies."""

    def __init__(self) -> None:
        self._copies: dict[str, _Copy] = {}

    def lie_in(self, arrays: Mapping[str, Array]) -> None:
        """Have copies of these names lie there from now on, which is kept for them."""
        self._copies = {
            name: _Copy(to_tensor(array), array, False) for name, array in arrays.items()
        }

    def of(self, tensors: Mapping[str, torch.Tensor]) -> Tensors:
        """The values by name; copies are valid until the next call."""
        arrays: Tensors = {}
        pairs = []
        others = []
        for name, each in tensors.items():
            if each.is_cpu or each.layout is not torch.strided:
                arrays[name] = to_array(each)
                continue
            tensor = each.detach()
            copy = self._copies.get(name)
            if copy is None or not copy.fits(tensor):
                memory = _locked_like(tensor)
                copy = self._copies[name] = _Copy(memory, to_array(memory), True)
            if not copy.is_own:
                others.append(copy.array)
            arrays[name] = copy.array
            pairs.append((tensor, copy.tensor))
        lock_again(others)
        _copy(pairs)
        return arrays


def _locked_like(tensor: torch.Tensor) -> torch.Tensor:
    try:
        return torch.empty_like(tensor, device="cpu", pin_memory=True)
    except RuntimeError:
        # No more memory may be locked here. Other memory is as good, and slower.
        return torch.empty_like(tensor, device="cpu")


def _copy(pairs: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Copy the first of each pair to the second, all at once; one of the two is a GPU's."""
    devices = set()
    with torch.no_grad():
        for source, target in pairs:
            target.copy_(source, non_blocking=True)
            devices |= {source.device, target.device}
    wait_for(devices)


def copy_all(pairs: Iterable[tuple[torch.Tensor, Array]]) -> None:
    """Copy tensors into arrays of their shapes and dtypes."""
    elsewhere = []
    for tensor, array in pairs:
        if tensor.is_cpu:
            np.copyto(array, to_array(tensor))
        else:
            elsewhere.append((tensor, array))
    lock_again(array for _, array in elsewhere)
    _copy((tensor, to_tensor(array)) for tensor, array in elsewhere)


def fill_all(pairs: Iterable[tuple[torch.Tensor, Array]]) -> None:
    """Copy arrays into tensors of their shapes and dtypes; the arrays are free afterwards."""
    elsewhere = []
    for tensor, array in pairs:
        if tensor.is_cpu:
            fill(tensor, array)
        else:
            elsewhere.append((tensor, array))
    lock_again(array for _, array in elsewhere)
    _copy((to_tensor(array), tensor) for tensor, array in elsewhere)


def placed(arrays: Iterable[tuple[Array, torch.device]]) -> list[torch.Tensor]:
    """Arrays as tensors on devices: on their own memory for the CPU, else as copies.

    The arrays must not change before `wait_for` has returned.
    """
    wanted = list(arrays)
    lock_again(array for array, device in wanted if device.type != "cpu")
    return [to_tensor(array).to(device, non_blocking=True) for array, device in wanted]


def wait_for(devices: Iterable[torch.device]) -> None:
    """Wait until what these were asked for is done; the CPU needs no waiting for."""
    for device in devices:
        if device.type == "cuda":
            torch.cuda.synchronize(device)


class _Memory:
    """Memory that arrays for a GPU have come from: what lies there, and whether it is locked."""

    def __init__(self, whole: Array) -> None:
        self._address = whole.ctypes.data
        self._size_bytes = whole.nbytes
        self._is_tried = False
        self._is_locked = False

    def lock(self) -> None:
        """Have GPUs read it by themselves, unless that was tried before."""
        if self._is_tried:
            return
        self._is_tried = True
        runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        failed = int(runtime.cudaHostRegister(self._address, self._size_bytes, 0))
        self._is_locked = not failed
        if failed:
            # Whatever is asked of the GPU next would raise what this has left behind.
            with contextlib.suppress(RuntimeError):
                torch.ones(1, device="cuda").add_(1)

    def release(self) -> None:
        """Let go of it, before it is freed."""
        if self._is_locked:
            torch.cuda.cudart().cudaHostUnregister(self._address)  # type: ignore[no-untyped-call]


_memories: Final[dict[int, _Memory]] = {}
"""By the identity of the array that holds on to it, as long as that lives."""


def lock_again(arrays: Iterable[Array]) -> None:
    """Lock the memory of arrays that has been given here before.

    Locking costs more than one copy, so that what comes once is left alone.
    """
    for whole in {id(each): each for each in map(_whole, arrays)}.values():
        if whole.nbytes < MIN_LOCKED_BYTES:
            continue
        memory = _memories.get(id(whole))
        if memory is None:
            memory = _memories[id(whole)] = _Memory(whole)
            weakref.finalize(whole, _forget, id(whole)).atexit = False
        else:
            memory.lock()


def _forget(identity: int) -> None:
    _memories.pop(identity).release()


def _whole(array: Array) -> Array:
    """The array that holds on to the memory in which this one is a view."""
    while isinstance(array.base, type(array)):
        array = array.base
    return array
