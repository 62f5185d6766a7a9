"""A torch state_dict as named tensors and JSON values, without pickle.

What JSON cannot hold is written as a dict of one tagged key.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import torch

from elastic.errors import CheckpointError, ModelDefError
from elastic.frameworks.base import Array, Tensors
from elastic.frameworks.torch_arrays import to_array, to_tensor

_TENSOR: Final = "$tensor"
_TUPLE: Final = "$tuple"
_ITEMS: Final = "$items"
_COUNTER: Final = "$counter"


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
