"""Many arrays handed to a compiled function as few tensors.

TensorFlow takes 20 us to make a tensor of an array and some more to pass it on, whatever it holds:
for a model of many small variables that is more than their bytes cost.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import tensorflow as tf

from elastic.frameworks.base import Array

_SMALL_BYTES: Final = 1 << 16
"""Arrays below this travel joined: another copy is cheaper than another call."""

ToTensor: TypeAlias = Callable[[str, Array], Any]


class Joining:
    """Small arrays of one dtype in one tensor, each of the others in its own."""

    def __init__(self, described: Mapping[str, Array]) -> None:
        """Choose what travels together.

        Args:
            described: Arrays of the shapes and dtypes that will come, of any values.
        """
        self._described = dict(described)
        by_dtype: dict[np.dtype[Any], list[str]] = {}
        for name, array in described.items():
            if array.nbytes < _SMALL_BYTES:
                by_dtype.setdefault(array.dtype, []).append(name)
        self._runs = [names for names in by_dtype.values() if len(names) > 1]
        joined = {name for names in self._runs for name in names}
        self._single = [name for name in described if name not in joined]

    def to_tensors(self, arrays: Mapping[str, Array], to_tensor: ToTensor) -> list[Any]:
        """What `split` takes.

        Args:
            to_tensor: Makes the tensor of an array that travels alone; the joined ones are copied.
        """
        singles = [to_tensor(name, arrays[name]) for name in self._single]
        runs = [
            tf.convert_to_tensor(np.concatenate([arrays[name].reshape(-1) for name in names]))
            for names in self._runs
        ]
        return singles + runs

    def split(self, tensors: Sequence[Any]) -> dict[str, Any]:
        """The tensor of each array, in the order of `described`; cheap in a compiled function."""
        pieces = dict(zip(self._single, tensors, strict=False))
        for names, run in zip(self._runs, tensors[len(self._single) :], strict=True):
            sizes = [self._described[name].size for name in names]
            for name, piece in zip(names, tf.split(run, sizes), strict=True):
                pieces[name] = tf.reshape(piece, self._described[name].shape)
        return {name: pieces[name] for name in self._described}
