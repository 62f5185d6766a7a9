"""A model whose table takes more memory than its master and its workers may have."""

import os
import re
import resource
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from elastic.embedding import Embedding

DIM = 128
IDS_A_RECORD = 16


class CustomModel(nn.Module):
    """The sum of a record's rows.

    Args:
        room_bytes: More than the process has when the model is made; parameter servers make none.
    """

    def __init__(self, room_bytes: int) -> None:
        super().__init__()
        self.items = Embedding(DIM, combiner="sum", name="items")
        self.last = nn.Linear(DIM, 1)
        found = re.search(r"VmData:\s+(\d+) kB", Path("/proc/self/status").read_text())
        assert found is not None, f"the system tells of process {os.getpid()} what it has"
        most = int(found[1]) * 1024 + room_bytes
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))

    def forward(self, ids: Tensor) -> Tensor:
        """Map ids (n, IDS_A_RECORD) to numbers (n,)."""
        return self.last(self.items(ids)).squeeze(1)


def loss(labels: Tensor, predictions: Tensor) -> Tensor:
    """Squared error."""
    return nn.functional.mse_loss(predictions, labels)


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """One with a slot as large as the row."""
    return torch.optim.Adagrad(parameters, lr=0.01)


def batch_fn(columns: dict[str, Any], mode: str) -> tuple[Any, Any]:
    """Ids are the features."""
    return columns["ids"], columns["label"]
