"""The species of an iris from four lengths: a sequential torch model on CSV records.

Records: rows with the columns `FEATURES`, in centimetres, and `species`, one of `SPECIES`.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

FEATURES = ("sepal_length", "sepal_width", "petal_length", "petal_width")
SPECIES = ("setosa", "versicolor", "virginica")


def custom_model(hidden: int = 32) -> nn.Module:
    """Build the network; `hidden` is the width of its one hidden layer."""
    return nn.Sequential(
        nn.Linear(len(FEATURES), hidden), nn.ReLU(), nn.Linear(hidden, len(SPECIES))
    )


def loss(labels: Tensor, predictions: Tensor) -> Tensor:
    """Mean cross-entropy; `labels` is (n,) int64, `predictions` (n, 3) logits."""
    return nn.functional.cross_entropy(predictions, labels)


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Adam with a high rate, as there are only 120 records."""
    return torch.optim.Adam(parameters, lr=0.02)


def batch_fn(columns: Mapping[str, NDArray[Any]], mode: str) -> Any:
    """Stack the lengths of each row; a species becomes its place in `SPECIES`."""
    lengths = np.stack([columns[name] for name in FEATURES], axis=1, dtype=np.float32)
    if mode == "prediction":
        return lengths
    return lengths, np.array([SPECIES.index(name) for name in columns["species"]])


def accuracy(labels: Tensor, predictions: Tensor) -> Tensor:
    """The fraction of flowers named correctly."""
    return (predictions.argmax(dim=1) == labels).float().mean()


def eval_metrics_fn() -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """The metrics of one evaluation."""
    return {"accuracy": accuracy}
