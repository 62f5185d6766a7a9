"""The obedient model, with an optimizer whose state no checkpoint can hold from some update on."""

from collections.abc import Iterable
from typing import Any

import obedient
import torch
from obedient import *  # noqa: F403 - the rest of the module is that one's
from torch import nn

FIRST_UPDATE = 3


class Secretive(obedient.CountingSGD):
    """Keeps an object of its own among its settings."""

    def step(self, closure: Any = None) -> Any:
        """Apply the gradients."""
        super().step(closure)
        group = self.param_groups[0]
        group["updates"] = group.get("updates", 0) + 1
        if group["updates"] == FIRST_UPDATE:
            group["note"] = object()


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """The optimizer with a secret."""
    return Secretive(parameters)


def secretive_from_the_start(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """One that could never be kept."""
    made = Secretive(parameters)
    made.param_groups[0]["note"] = object()
    return made
