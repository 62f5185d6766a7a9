"""torch tensors as NumPy arrays and back, without copying where memory allows."""

from typing import Any

import ml_dtypes
import numpy as np
import torch

from elastic.frameworks.base import Array
from elastic.frameworks.tensors import writable_alias


def to_array(tensor: torch.Tensor) -> Array:
    """A view of the tensor's memory; a copy where it lies on a GPU or is not dense."""
    tensor = tensor.detach()
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    tensor = tensor.cpu()
    if tensor.dtype is torch.bfloat16:
        # NumPy has no bfloat16 of its own, so the bits travel as integers.
        bits: Array = tensor.view(torch.int16).numpy()
        return bits.view(ml_dtypes.bfloat16)
    array: Array = tensor.numpy()
    return array


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


def fill(tensor: torch.Tensor, array: Array) -> None:
    """Copy an array of the tensor's shape and dtype into the tensor's memory."""
    if tensor.device.type == "cpu" and tensor.layout is torch.strided:
        # torch wakes all its threads for a copy of 128 KiB: 6 ms for a model of 3.5 MB, of which
        # the copy itself takes one.
        np.copyto(to_array(tensor), array)
        return
    with torch.no_grad():
        tensor.copy_(to_tensor(array))


def to_device(structure: Any, device: torch.device) -> Any:
    """Move the tensors of a nested structure."""
    match structure:
        case torch.Tensor():
            return structure.to(device)
        case dict():
            return {name: to_device(value, device) for name, value in structure.items()}
        case tuple() if hasattr(structure, "_fields"):
            return type(structure)(*(to_device(value, device) for value in structure))
        case list() | tuple():
            return type(structure)(to_device(value, device) for value in structure)
    return structure
