"""A convolutional network for small images, with augmentation and batch normalisation, in torch.

Records: `image` (8, 8) float32 in [0, 1] and `label` int64 in [0, 10).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler as schedules

SIZE = 8
NUM_CLASSES = 10
SHIFT = 1
"""Images are moved by up to so many pixels while the model trains."""
LEARNING_RATE = 5e-3
DECAY_UPDATES = 200
"""The rate falls for so many updates: about as many as eight epochs of 1438 images have."""


class CustomModel(nn.Module):
    """Two stages of convolutions; `channels` is the width of the first, half of the second's."""

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.stages = nn.Sequential(
            *_stage(1, channels), nn.MaxPool2d(2), *_stage(channels, 2 * channels)
        )
        self.logits = nn.Linear(2 * channels, NUM_CLASSES)

    def forward(self, image: Tensor) -> Tensor:
        """Map images (n, 1, 8, 8) to logits (n, 10)."""
        return self.logits(self.stages(image).mean(dim=(2, 3)))


def _stage(inputs: int, channels: int) -> list[nn.Module]:
    """Two convolutions, each normalised."""
    layers: list[nn.Module] = []
    for width in (inputs, channels):
        # Without a bias: the normalisation after it has one. The epsilon is that of Keras.
        layers += [
            nn.Conv2d(width, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels, eps=1e-3),
            nn.ReLU(),
        ]
    return layers


def loss(labels: Tensor, predictions: Tensor) -> Tensor:
    """Mean cross-entropy; `labels` is (n,) int64, `predictions` (n, 10) logits."""
    return nn.functional.cross_entropy(predictions, labels)


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Adam with the high rate that batch normalisation allows; it falls, see `lr_scheduler`."""
    return torch.optim.Adam(parameters, lr=LEARNING_RATE)


def lr_scheduler(optimizer: torch.optim.Optimizer) -> schedules.LRScheduler:
    """Down to a hundredth: at the high rate alone the accuracy jumps from update to update."""
    falling = schedules.CosineAnnealingLR(optimizer, DECAY_UPDATES, eta_min=LEARNING_RATE / 100)
    flat = schedules.ConstantLR(optimizer, factor=0.01, total_iters=10**9)
    return schedules.SequentialLR(optimizer, [falling, flat], milestones=[DECAY_UPDATES])


def dataset_fn(dataset: Iterable[Mapping[str, Any]], mode: str) -> Iterator[tuple[Tensor, Tensor]]:
    """Give each image its channel dimension, split off the label, and move what is trained on.

    Random numbers are seeded for every minibatch, so one computed again is the same one.
    """
    for record in dataset:
        image = torch.as_tensor(record["image"]).unsqueeze(0)
        yield (
            shifted(image) if mode == "training" else image,
            torch.as_tensor(record["label"]),
        )


def shifted(image: Tensor) -> Tensor:
    """Move an image (1, height, width) by up to `SHIFT` pixels; what comes in is black."""
    height, width = image.shape[1:]
    padded = nn.functional.pad(image, (SHIFT, SHIFT, SHIFT, SHIFT))
    top, left = torch.randint(0, 2 * SHIFT + 1, (2,)).tolist()
    return padded[:, top : top + height, left : left + width]


def accuracy(labels: Tensor, predictions: Tensor) -> Tensor:
    """The fraction of images named correctly."""
    return (predictions.argmax(dim=1) == labels).float().mean()


def eval_metrics_fn() -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """The metrics of one evaluation."""
    return {"accuracy": accuracy}
