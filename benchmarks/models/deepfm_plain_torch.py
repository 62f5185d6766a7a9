"""DeepFM as one writes it in torch for one process: `clicks.deepfm_torch` with a table in memory.

Columns: those of `model_zoo.clicks.prepare_data`. Ids are put into a table of fixed size, where
some share a row; its gradients are sparse, as torch is fastest with.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

NUM_ROWS = 1 << 19
LEARNING_RATE = 0.002
NUMBERS = tuple(f"I{index}" for index in range(1, 14))
CATEGORIES = tuple(f"C{index}" for index in range(1, 27))


class CustomModel(nn.Module):
    def __init__(self, dim: int = 8, hidden: int = 64) -> None:
        super().__init__()
        self.rows = nn.Embedding(NUM_ROWS, 1 + dim, sparse=True)
        nn.init.normal_(self.rows.weight, std=0.01)
        self.deep = nn.Sequential(
            nn.Linear(len(CATEGORIES) * dim + len(NUMBERS), hidden), nn.ReLU(),
            nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1),
        )  # fmt: skip

    def forward(self, features: tuple[Tensor, Tensor]) -> Tensor:
        ids, numbers = features
        rows = self.rows(ids)
        weights, vectors = rows[..., 0], rows[..., 1:]
        pairs = (vectors.sum(1) ** 2 - (vectors**2).sum(1)).sum(1) / 2
        deep = self.deep(torch.cat([vectors.flatten(1), numbers], dim=1))
        return weights.sum(1) + pairs + deep[:, 0]


def loss(labels: Tensor, predictions: Tensor) -> Tensor:
    return nn.functional.binary_cross_entropy_with_logits(predictions, labels)


class Optimizer:
    """Adam, in its sparse form for the table."""

    def __init__(self, table: nn.Parameter, others: Iterable[nn.Parameter]) -> None:
        self._parts = (
            torch.optim.SparseAdam([table], lr=LEARNING_RATE),
            torch.optim.Adam(others, lr=LEARNING_RATE, fused=True),
        )

    def zero_grad(self) -> None:
        for part in self._parts:
            part.zero_grad()

    def step(self) -> None:
        for part in self._parts:
            part.step()


def optimizer(parameters: Iterable[nn.Parameter]) -> Optimizer:
    table, *others = parameters
    return Optimizer(table, others)


def batch_fn(columns: Mapping[str, Any], _mode: str) -> Any:
    found = np.stack([columns[name] for name in NUMBERS], axis=1, dtype=np.float32)
    numbers = np.log1p(np.nan_to_num(found, copy=False).clip(0))
    ids = np.stack([columns[name] for name in CATEGORIES], axis=1)
    ids = (ids * len(CATEGORIES) + np.arange(len(CATEGORIES))) % NUM_ROWS
    return (ids, numbers), columns["label"].astype(np.float32)
