"""The obedient model, evaluated by metric objects."""

from typing import Any

import torch
from obedient import *  # noqa: F403 - the rest of the module is that one's
from torch import Tensor


class MeanIndex:
    """The mean index of the records seen, and how many there were."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget what was seen."""
        self.total = torch.zeros((), dtype=torch.float64)
        self.seen = 0

    def update(self, predictions: Tensor, labels: Tensor) -> None:
        """See a minibatch."""
        assert predictions.shape == labels.shape
        self.total += labels.sum()
        self.seen += len(labels)

    def compute(self) -> dict[str, Any]:
        """Of all that was seen."""
        return {"mean": self.total / self.seen, "seen": self.seen}


def eval_metrics_fn() -> dict[str, Any]:
    """The metrics of one evaluation."""
    return {"index": MeanIndex()}
