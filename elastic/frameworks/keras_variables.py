"""Keras variables read and written all at once, each by one compiled function."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from elastic.frameworks.base import Array, Tensors
from elastic.frameworks.keras_arrays import Stager, to_array
from elastic.frameworks.keras_joining import Joining
from elastic.frameworks.tensors import check_fit


class VariableGroup:
    """Variables by name; arrays that it gives out never change."""

    def __init__(self, variables: Mapping[str, Any]) -> None:
        """Take variables that have their shapes."""
        self._variables = dict(variables)
        self._described = described(variables)
        self._joining = Joining(self._described)
        self._stager = Stager()
        self._read = tf.function(self._read_values)
        self._write = tf.function(self._assign)

    def read(self) -> Tensors:
        """Name to values."""
        if not self._variables:
            return {}
        return dict(zip(self._variables, map(to_array, self._read()), strict=True))

    def check(self, what: str, arrays: Mapping[str, Array]) -> None:
        """Check what is to be written.

        Args:
            what: What the variables are, for people, such as `parameters`.
            arrays: As `read` gives them.

        Raises:
            CheckpointError: They are not arrays of these variables.
        """
        check_fit(what, self._described, arrays)

    def write(self, arrays: Mapping[str, Array]) -> None:
        """Copy arrays in that are known to fit."""
        if self._variables:
            self._write(self._joining.to_tensors(arrays, self._stager.to_tensor))

    def _read_values(self) -> list[Any]:
        return [variable.value.read_value() for variable in self._variables.values()]

    def _assign(self, tensors: Sequence[Any]) -> None:
        for name, value in self._joining.split(tensors).items():
            # A variable takes the memory of what it is assigned, and this is the caller's.
            own = tf.raw_ops.DeepCopy(x=value)
            self._variables[name].value.assign(own, read_value=False)


def described(variables: Mapping[str, Any]) -> Tensors:
    """Arrays of the variables' shapes and dtypes, without their values."""
    return {
        name: np.broadcast_to(
            np.zeros((), tf.as_dtype(variable.dtype).as_numpy_dtype), tuple(variable.shape)
        )
        for name, variable in variables.items()
    }
