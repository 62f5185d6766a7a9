"""Some of a model's variables as Keras', for an optimizer over them."""

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import keras
import numpy as np

from elastic.frameworks.base import Array, Tensors
from elastic.frameworks.keras.variables import VariableGroup
from elastic.frameworks.tensors import check_fit


class KerasShare:
    """Variables with their values, named as those of the model.

    Attributes:
        trained: By name.
    """

    def __init__(self, parameters: Mapping[str, Array], state: Mapping[str, Array]) -> None:
        """See `Framework.build_share`."""
        self.trained = {name: _variable(name, array) for name, array in parameters.items()}
        self._group = VariableGroup(self.trained)
        self._state = {name: array.copy() for name, array in state.items()}

    def parameters(self) -> Tensors:
        """Arrays that never change."""
        return self._group.read()

    def state(self) -> Tensors:
        """What is not trained."""
        return {name: array.copy() for name, array in self._state.items()}

    def load(
        self, parameters: Mapping[str, Array] | None, state: Mapping[str, Array] | None
    ) -> None:
        """Copy values in, by name; None leaves what is there."""
        if parameters is not None:
            self._group.check("parameters", parameters)
        if state is not None:
            check_fit("state", self._state, state)
            for name, array in state.items():
                np.copyto(self._state[name], array)
        if parameters is not None:
            self._group.write(parameters)


def _variable(name: str, array: Array) -> Any:
    """A variable whose path is the name, by which an optimizer may leave it out of its decay."""
    *scopes, leaf = name.split("/")
    with ExitStack() as stack:
        for scope in scopes:
            stack.enter_context(keras.name_scope(scope))
        return keras.Variable(array, dtype=array.dtype.name, trainable=True, name=leaf)
