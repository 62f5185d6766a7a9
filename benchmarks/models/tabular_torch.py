"""A small model of a table in torch, by columns.

Columns: ten numbers `x0` … `x9`, and `label`, 0 or 1.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

NAMES = tuple(f"x{index}" for index in range(10))


def custom_model(hidden: int = 128) -> nn.Module:
    return nn.Sequential(
        nn.Linear(len(NAMES), hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, 1),
    )


def loss(labels: Tensor, predictions: Tensor) -> Tensor:
    return nn.functional.binary_cross_entropy_with_logits(predictions[:, 0], labels)


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.01)


def batch_fn(columns: Mapping[str, Any], _mode: str) -> tuple[Any, Any]:
    features = np.stack([columns[name] for name in NAMES], axis=1, dtype=np.float32)
    return features, columns["label"].astype(np.float32)
