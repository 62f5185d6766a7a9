"""Twenty equal float32 matrices of a given total size, in torch; only their bytes matter."""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

NUM_TENSORS = 20
WIDTH = 1000


class CustomModel(nn.Module):
    """`payload_mb` megabytes of parameters."""

    def __init__(self, payload_mb: int) -> None:
        super().__init__()
        rows = payload_mb * 10**6 // (4 * NUM_TENSORS * WIDTH)
        self.matrices = nn.ParameterList(torch.zeros(rows, WIDTH) for _ in range(NUM_TENSORS))

    def forward(self, scale: Tensor) -> Tensor:
        """Map (n,) to (n,)."""
        total = scale.new_zeros(())
        for matrix in self.matrices:
            total = total + matrix[0, 0]
        return scale * total


def loss(labels: Tensor, predictions: Tensor) -> Tensor:
    """Mean squared error."""
    return nn.functional.mse_loss(predictions, labels)


def sgd(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Plain SGD: the least that an optimizer can do."""
    return torch.optim.SGD(parameters, lr=1e-6)


def adam(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Adam, with two slots a parameter."""
    return torch.optim.Adam(parameters, lr=1e-6)


def dataset_fn(dataset: Iterable[Any], mode: str) -> Iterator[tuple[Tensor, Tensor]]:  # noqa: ARG001 (part of the contract)
    """Make an example of a number."""
    for record in dataset:
        yield torch.tensor(float(record)), torch.tensor(float(record))
