"""Benign or malignant from 30 measurements: a torch model on CSV records.

Records: rows with 30 numbers in any columns but `diagnosis`, which is `M` or `B`.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

NUM_FEATURES = 30


class CustomModel(nn.Module):
    """A linear path beside one with a hidden layer, added up."""

    def __init__(self, hidden: int = 32, dropout: float = 0.2) -> None:
        super().__init__()
        # Standardises features of very different size; the statistics are learned on the way,
        # which spares a pass over all the data before training. The epsilon is that of Keras.
        self.standardise = nn.BatchNorm1d(NUM_FEATURES, affine=False, eps=1e-3)
        self.deep = nn.Sequential(
            nn.Linear(NUM_FEATURES, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, 1)
        )
        self.wide = nn.Linear(NUM_FEATURES, 1)

    def forward(self, measurements: Tensor) -> Tensor:
        """Map measurements (n, 30) to logits (n, 1)."""
        x = self.standardise(measurements)
        return self.deep(x) + self.wide(x)


def loss(labels: Tensor, predictions: Tensor) -> Tensor:
    """Mean cross-entropy; `labels` is (n, 1), 1 for malignant, `predictions` (n, 1) logits."""
    return nn.functional.binary_cross_entropy_with_logits(predictions, labels)


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Adam with a high rate, as there are only 455 records."""
    return torch.optim.Adam(parameters, lr=0.01)


def batch_fn(columns: Mapping[str, NDArray[Any]], mode: str) -> Any:
    """Stack the measurements of each row, and say whether it is malignant."""
    names = [name for name in columns if name != "diagnosis"]
    measurements = np.stack([columns[name] for name in names], axis=1, dtype=np.float32)
    if mode == "prediction":
        return measurements
    return measurements, (columns["diagnosis"] == "M").astype(np.float32)[:, None]


def accuracy(labels: Tensor, predictions: Tensor) -> Tensor:
    """The fraction judged correctly."""
    return ((predictions > 0) == (labels > 0)).float().mean()


def eval_metrics_fn() -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """The metrics of one evaluation."""
    return {"accuracy": accuracy}
