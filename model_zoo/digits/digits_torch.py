"""A small convolutional network for 8x8 digits in torch.

Records: `image` (8, 8) float32 in [0, 1] and `label` int64 in [0, 10).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn


class CustomModel(nn.Module):
    """Two convolutions and a linear layer; `channels` is the width of the first convolution."""

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(1, channels, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(channels, 2 * channels, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.logits = nn.Linear(2 * channels * 4 * 4, 10)

    def forward(self, image: Tensor) -> Tensor:
        """Map images (n, 1, 8, 8) to logits (n, 10)."""
        return self.logits(self.convolutions(image).flatten(1))


def loss(labels: Tensor, predictions: Tensor) -> Tensor:
    """Mean cross-entropy; `labels` is (n,) int64, `predictions` (n, 10) logits."""
    return nn.functional.cross_entropy(predictions, labels)


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Adam with a rate that suits minibatches of 16 to 64."""
    return torch.optim.Adam(parameters, lr=2e-3)


def dataset_fn(dataset: Iterable[Mapping[str, Any]], mode: str) -> Iterator[tuple[Tensor, Tensor]]:
    """Give each image its channel dimension and split off the label."""
    for record in dataset:
        yield torch.as_tensor(record["image"]).unsqueeze(0), torch.as_tensor(record["label"])


def accuracy(labels: Tensor, predictions: Tensor) -> Tensor:
    """The fraction of digits named correctly."""
    return (predictions.argmax(dim=1) == labels).float().mean()


def eval_metrics_fn() -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """The metrics of one evaluation."""
    return {"accuracy": accuracy}
