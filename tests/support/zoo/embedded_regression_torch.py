"""A small regression by the rows of three ids a record: with a table elsewhere, or in the model."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from elastic.embedding import Embedding
from elastic.rows.arithmetic import first_rows
from elastic.rows.base import Table

NUM_IDS = 30
TABLE = Table("items", 4, "normal(0.5)")


def ordinary_table() -> nn.Embedding:
    """A layer that holds the rows with which those of the table begin."""
    rows = first_rows(TABLE, np.arange(NUM_IDS, dtype=np.int64))
    return nn.Embedding.from_pretrained(torch.from_numpy(rows), freeze=False)


class CustomModel(nn.Module):
    """A dense layer over the sum of three rows."""

    def __init__(self, is_ordinary: bool = False) -> None:
        super().__init__()
        table = Embedding(TABLE.dim, initializer=TABLE.initializer, name=TABLE.name)
        self.items = ordinary_table() if is_ordinary else table
        self.dense = nn.Linear(TABLE.dim, 1)

    def forward(self, ids: Tensor) -> Tensor:
        """Map ids (n, 3) to numbers (n,)."""
        return self.dense(self.items(ids).sum(dim=1)).squeeze(1)


def loss(labels: Tensor, predictions: Tensor) -> Tensor:
    """Squared error."""
    return nn.functional.mse_loss(predictions, labels)


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Plain gradient descent."""
    return torch.optim.SGD(parameters, lr=0.1)


def lr_scheduler(optimizer: torch.optim.Optimizer) -> Any:
    """Another rate for each update."""
    return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.97)


def dataset_fn(dataset: Iterable[Mapping[str, Any]], mode: str) -> Iterator[tuple[Tensor, Tensor]]:
    """Ids are the features."""
    for record in dataset:
        yield torch.as_tensor(record["ids"]), torch.as_tensor(record["label"])
