"""torch's tensors as NumPy arrays and back, and a state_dict as named arrays and JSON values.

Without a copy where memory allows, and without pickle: what JSON cannot hold is written as a dict
of one tagged key.
"""

from collections import Counter
from collections.abc import Callable, Mapping
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
