"""The course of diabetes from ten measurements: a small torch model with one hidden layer.

Records: `x` float32 (10,), `y` float32 (1,), the target with mean 0 and deviation 1.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn


def custom_model(hidden: int = 16) -> nn.Module:
    return nn.Sequential(nn.Linear(10, hidden), nn.ReLU(), nn.Linear(hidden, 1))


def loss(labels: Tensor, predictions: Tensor) -> Tensor:
    return nn.functional.mse_loss(predictions, labels)


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.01)


def dataset_fn(dataset: Iterable[Mapping[str, Any]], _mode: str) -> Iterator[tuple[Tensor, Tensor]]:
    for record in dataset:
        yield torch.as_tensor(record["x"]), torch.as_tensor(record["y"])


def eval_metrics_fn() -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    return {"mse": loss}
