"""The zoo's digits in torch, with SGD in the place of Adam."""

from collections.abc import Iterable

import torch
from digits.digits_torch import *  # noqa: F403 - the rest of the module is that one's
from torch import nn


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """SGD with a rate that suits minibatches of 16 to 64."""
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)
