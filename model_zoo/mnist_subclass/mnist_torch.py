"""The torch twin of `mnist_subclass`, with batch normalisation and dropout.

Records: `image` (28, 28) uint8 in [0, 255] and `label` int64 in [0, 10).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn


class CustomModel(nn.Module):
    """Two strided convolutions, batch normalisation, dropout and a linear layer."""

    def __init__(self, channels: int = 16, dropout: float = 0.25) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, channels, 3, stride=2)
        self.conv2 = nn.Conv2d(channels, 2 * channels, 3, stride=2)
        # The epsilon of Keras, so that both twins compute the same function.
        self.batch_norm = nn.BatchNorm2d(2 * channels, eps=1e-3)
        self.dropout = nn.Dropout(dropout)
        self.logits = nn.Linear(2 * channels * 6 * 6, 10)

    def forward(self, image: Tensor) -> Tensor:
        """Map images (n, 1, 28, 28) to logits (n, 10)."""
        x = self.conv2(self.conv1(image).relu()).relu()
        return self.logits(self.dropout(self.batch_norm(x).flatten(1)))


def loss(labels: Tensor, predictions: Tensor) -> Tensor:
    """Mean cross-entropy; `labels` is (n,) int64, `predictions` (n, 10) logits."""
    return nn.functional.cross_entropy(predictions, labels)


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """SGD with momentum."""
    return torch.optim.SGD(parameters, lr=0.02, momentum=0.9)


def dataset_fn(dataset: Iterable[Mapping[str, Any]], mode: str) -> Iterator[tuple[Tensor, Tensor]]:
    """Scale each image to [0, 1], give it its channel dimension, split off the label."""
    for record in dataset:
        image = torch.as_tensor(record["image"]).unsqueeze(0).float() / 255.0
        yield image, torch.as_tensor(record["label"])


def accuracy(labels: Tensor, predictions: Tensor) -> Tensor:
    """The fraction of digits named correctly."""
    return (predictions.argmax(dim=1) == labels).float().mean()


def eval_metrics_fn() -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """The metrics of one evaluation."""
    return {"accuracy": accuracy}
