"""torch's tensors: as NumPy arrays and back, to and from a GPU; and a state_dict as JSON values.

Without a copy where memory allows, and without pickle: what JSON cannot hold is written as a dict
of one tagged key.
"""

import contextlib
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final

import ml_dtypes
import numpy as np
import torch

from elastic.errors import CheckpointError, ModelDefError
from elastic.frameworks.base import Array, Tensors, writable_alias

_TENSOR: Final = "$tensor"
_TUPLE: Final = "$tuple"
_ITEMS: Final = "$items"
_COUNTER: Final = "$counter"


def to_array(tensor: torch.Tensor) -> Array:
    """A view of the tensor's memory; a copy where it lies on a GPU or is not dense."""
    # Asked for each tensor of each step: what is not needed is left out.
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    if not tensor.is_cpu:
        tensor = tensor.cpu()
    if tensor.dtype is torch.bfloat16:
        # NumPy has no bfloat16 of its own, so the bits travel as integers.
        bits: Array = tensor.view(torch.int16).numpy()
        return bits.view(ml_dtypes.bfloat16)
    array: Array = tensor.numpy()
    return array


def stand_in(tensor: torch.Tensor) -> Array:
    """An array of the tensor's shape and dtype, without its values."""
    return _without_values(tensor.dtype, tensor.shape)


@lru_cache(maxsize=4096)
def _without_values(dtype: torch.dtype, shape: torch.Size) -> Array:
    # Asked for each tensor of each load: made anew they took 2 % of a step of a small model.
    return np.broadcast_to(to_array(torch.zeros((), dtype=dtype)), shape)


def to_tensor(array: Array) -> torch.Tensor:
    """A tensor on the array's memory, which must not change while the tensor is in use."""
    is_bfloat16 = array.dtype == ml_dtypes.bfloat16
    if is_bfloat16:
        array = array.view(np.int16)
    if not array.flags.writeable:
        # torch warns about read-only arrays, though nobody here writes to them.
        array = writable_alias(array)
    tensor = torch.from_numpy(array)
    return tensor.view(torch.bfloat16) if is_bfloat16 else tensor


_AS_NUMBERS: Final = "biufc"


def as_tensor(value: Any) -> Any:
    """A tensor for an array of numbers or a sequence of them; text as it is, for who looks it up.

    Raises:
        TypeError: There is no tensor of such numbers.
    """
    if isinstance(value, torch.Tensor):
        return value
    array = np.asarray(value)
    if array.dtype.kind not in _AS_NUMBERS and array.dtype != ml_dtypes.bfloat16:
        return array
    # Of this machine's byte order and with steps that torch takes, such as none back.
    return to_tensor(np.asarray(array, array.dtype.newbyteorder("="), order="C"))


def size_of(value: torch.Tensor | Array) -> int | None:
    """The first dimension of a tensor or an array; None where it has no dimension."""
    return int(value.shape[0]) if value.ndim else None


def fill(tensor: torch.Tensor, array: Array) -> None:
    """Copy an array of the tensor's shape and dtype into the tensor's memory."""
    if tensor.is_cpu and tensor.layout is torch.strided:
        # torch wakes all its threads for a copy of 128 KiB: 6 ms for a model of 3.5 MB, of which
        # the copy itself takes one.
        np.copyto(to_array(tensor), array)
        return
    with torch.no_grad():
        tensor.copy_(to_tensor(array))


def map_tensors(
    structure: Any, function: Callable[[Any], Any], *, with_arrays: bool = False
) -> Any:
    """A nested structure with what a function makes of each of its tensors.

    Args:
        structure: A tensor, or dicts, lists and tuples of them.
        function: Of a tensor.
        with_arrays: Whether it is of NumPy's arrays too.
    """
    mapped = partial(map_tensors, function=function, with_arrays=with_arrays)
    match structure:
        case torch.Tensor():
            return function(structure)
        case np.ndarray() if with_arrays:
            return function(structure)
        case dict():
            return {name: mapped(value) for name, value in structure.items()}
        case tuple() if hasattr(structure, "_fields"):
            return type(structure)(*map(mapped, structure))
        case list() | tuple():
            return type(structure)(map(mapped, structure))
    return structure


def to_device(structure: Any, device: torch.device) -> Any:
    """Move the tensors of a nested structure."""
    return map_tensors(structure, lambda tensor: tensor.to(device))


def pack(tree: Any, path: str, tensors: Tensors) -> Any:
    """Move the tensors of `tree` to `tensors`, named by `path`, and return the rest as JSON.

    Raises:
        ModelDefError: A value is neither a tensor nor JSON.
    """
    match tree:
        case None | bool() | str():
            return tree
        case int() | np.integer():
            return int(tree)
        case float() | np.floating():
            return float(tree)
        case torch.Tensor():
            tensors[path] = to_array(tree)
            return {_TENSOR: path}
        case list():
            return [pack(value, f"{path}/{i}", tensors) for i, value in enumerate(tree)]
        case tuple():
            return {_TUPLE: [pack(value, f"{path}/{i}", tensors) for i, value in enumerate(tree)]}
        case Counter():
            return {_COUNTER: [[key, count] for key, count in tree.items()]}
        case Mapping() if all(isinstance(key, str) for key in tree):
            return {key: pack(value, f"{path}/{key}", tensors) for key, value in tree.items()}
        case Mapping():
            items = tree.items()
            return {_ITEMS: [[key, pack(value, f"{path}/{key}", tensors)] for key, value in items]}
    raise ModelDefError(
        f"the optimizer's or schedule's state holds a {type(tree).__name__} at {path}, which a "
        "checkpoint cannot hold: use tensors, numbers, strings, lists and dicts"
    )


def unpack(value: Any, tensors: Mapping[str, Array]) -> Any:
    """Undo `pack`; the tensors are copies.

    Raises:
        CheckpointError: A tensor is missing.
    """
    match value:
        case list():
            return [unpack(each, tensors) for each in value]
        case {"$tensor": str(name)}:
            if name not in tensors:
                raise CheckpointError(f"the optimizer's state lacks the tensor {name}")
            return to_tensor(tensors[name].copy())
        case {"$tuple": list(values)}:
            return tuple(unpack(each, tensors) for each in values)
        case {"$counter": list(items)}:
            return Counter(dict(items))
        case {"$items": list(items)}:
            return {key: unpack(each, tensors) for key, each in items}
        case dict():
            return {key: unpack(each, tensors) for key, each in value.items()}
    return value


# Values between a GPU and the memory of the host, as fast as the bus carries them.
#
# A GPU reads and writes by itself only memory that is locked in its place; with other memory the
# driver copies piece by piece through a little of its own, and fresh memory costs a page fault
# every 4 KiB besides. So what comes from a GPU goes to locked memory that is used again, and memory
# that values come from again and again (what processes of one machine share, the sum of a group) is
# locked where it lies.


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
