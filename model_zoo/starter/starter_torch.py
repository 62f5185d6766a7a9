"""A first model in torch: which class a row of a CSV file belongs to.

Put the names of your own columns and classes below, and it trains on your own files.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

FEATURES = ("x", "y")
"""Columns that hold numbers."""
LABEL = "spiral"
"""The column to predict."""
CLASSES = ("red", "green", "blue")
"""What can stand in it; numbers where it holds numbers."""


# The model: a class or function that makes a torch.nn.Module. `--model_def` names it, and
# `--model_params hidden=64` fills its parameters.
class CustomModel(nn.Module):
    """Two hidden layers; `hidden` is their width."""

    def __init__(self, hidden: int = 32) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(len(FEATURES), hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, len(CLASSES)),
        )

    def forward(self, features: Tensor) -> Tensor:
        """Map features (n, number of columns) to logits (n, number of classes)."""
        return self.layers(features)


# The loss of one minibatch: a scalar, usually a mean. The labels come first.
def loss(labels: Tensor, predictions: Tensor) -> Tensor:
    """Mean cross-entropy; `labels` is (n,) int64, `predictions` (n, number of classes)."""
    return nn.functional.cross_entropy(predictions, labels)


# Makes every update, in the master. `lr_scheduler(optimizer)` may stand beside it.
def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Adam; try other rates first of all."""
    return torch.optim.Adam(parameters, lr=0.01)


# Turns the columns of one minibatch, a dict of NumPy arrays, into features and labels: numbers are
# numbers, all else is text. Do not repeat or shuffle over all the data, which is the affair of the
# job. `mode` is "training", "evaluation" or "prediction": augment only what is trained on.
def batch_fn(columns: Mapping[str, NDArray[Any]], mode: str) -> Any:
    """Stack the numbers of each row; a class becomes its place in `CLASSES`."""
    features = np.stack([columns[name] for name in FEATURES], axis=1, dtype=np.float32)
    if mode == "prediction":
        return features
    return features, np.array([CLASSES.index(name) for name in columns[LABEL]])


# May be left out. What is measured on --evaluation_data_dir, beside the loss: functions
# f(labels, predictions) that give a mean, or one number per example.
def eval_metrics_fn() -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """The fraction of rows that get their right class."""
    return {"accuracy": accuracy}


def accuracy(labels: Tensor, predictions: Tensor) -> Tensor:
    """The fraction of rows that get their right class."""
    return (predictions.argmax(dim=1) == labels).float().mean()
