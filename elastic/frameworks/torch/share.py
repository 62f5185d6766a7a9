"""Some of a model's parameters as torch's, for an optimizer that is given the list of all."""

from collections.abc import Mapping

import numpy as np
import torch

from elastic.frameworks.base import Array, Tensors
from elastic.frameworks.tensors import check_fit
from elastic.frameworks.torch.arrays import fill, to_array, to_tensor


class TorchShare:
    """Parameters with their values, and in place of each other one a shape without memory.

    The user's function may tell parameters by their place in the list or by their number of
    dimensions, so it gets as many as the model has. Those without values never have a gradient,
    and torch's optimizers pass over them.

    Attributes:
        trained: Those with values, by name.
        elsewhere: The others.
        listed: All, in the order of the model.
    """

    def __init__(
        self,
        whole: Mapping[str, Array],
        parameters: Mapping[str, Array],
        state: Mapping[str, Array],
    ) -> None:
        """See `Framework.build_share`."""
        self.trained = {
            name: torch.nn.Parameter(to_tensor(array.copy())) for name, array in parameters.items()
        }
        self.elsewhere = {
            name: torch.nn.Parameter(_without_memory(array))
            for name, array in whole.items()
            if name not in parameters
        }
        every = self.trained | self.elsewhere
        self.listed = [every[name] for name in whole]
        self._state = {name: array.copy() for name, array in state.items()}

    def parameters(self) -> Tensors:
        """Views of the parameters with values."""
        return {name: to_array(parameter) for name, parameter in self.trained.items()}

    def state(self) -> Tensors:
        """What is not trained."""
        return dict(self._state)

    def load(
        self, parameters: Mapping[str, Array] | None, state: Mapping[str, Array] | None
    ) -> None:
        """Copy values in, by name; None leaves what is there."""
        if parameters is not None:
            check_fit("parameters", self.parameters(), parameters)
        if state is not None:
            check_fit("state", self._state, state)
            for name, array in state.items():
                np.copyto(self._state[name], array)
        if parameters is not None:
            for name, array in parameters.items():
                fill(self.trained[name], array)


def _without_memory(array: Array) -> torch.Tensor:
    return to_tensor(np.zeros((), array.dtype)).expand(array.shape)
