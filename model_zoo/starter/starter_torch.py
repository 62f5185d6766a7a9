"""A first model in torch: which class a row of a CSV file belongs to.

Put the names of your own columns and classes below, and it trains on your own files.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

import torch
from torch import Tensor, nn

FEATURES = ("x", "y")
"""Columns that hold numbers."""
LABEL = "spiral"
"""The column to predict."""
CLASSES = ("red", "green", "blue")
"""What can stand in it."""


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


# Turns the raw records of one minibatch into pairs (features, label). A record of a CSV file is a
# dict of strings. Do not batch, repeat or shuffle over all the data: the job does. `mode` is
# "training", "evaluation" or "prediction": augment only what is trained on.
def dataset_fn(dataset: Iterable[Mapping[str, str]], mode: str) -> Iterator[tuple[Tensor, Tensor]]:
    """Turn the text of a row into numbers; a class becomes its place in `CLASSES`."""
    for record in dataset:
        features = torch.tensor([float(record[name]) for name in FEATURES])
        yield features, torch.tensor(CLASSES.index(record[LABEL]))


# May be left out. What is measured on --evaluation_data_dir, beside the loss: functions
# f(labels, predictions) that give a mean, or one number per example.
def eval_metrics_fn() -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """The fraction of rows that get their right class."""
    return {"accuracy": accuracy}


def accuracy(labels: Tensor, predictions: Tensor) -> Tensor:
    """The fraction of rows that get their right class."""
    return (predictions.argmax(dim=1) == labels).float().mean()
