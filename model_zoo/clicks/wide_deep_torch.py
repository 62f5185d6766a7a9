"""Which advertisements are clicked on: Wide & Deep in torch, its rows in the master.

A linear model over categories and pairs of them, which remembers, beside a network over vectors of
the categories, which generalises. Records, batches and metrics are those of `deepfm_torch`.

Source: Cheng et al., "Wide & Deep Learning for Recommender Systems", DLRS 2016.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from clicks.deepfm_torch import batch_fn as separate
from clicks.deepfm_torch import eval_metrics_fn, loss
from elastic.embedding import Embedding

__all__ = ["CustomModel", "batch_fn", "eval_metrics_fn", "loss", "optimizer"]

CROSSED = ((0, 1), (0, 2), (1, 2), (2, 3), (3, 4))
"""Pairs of categories, by their places, whose values are looked at together."""
_ODD = -7_046_029_254_386_353_131


class CustomModel(nn.Module):
    """Weights of values and of pairs, beside a network with two hidden layers."""

    def __init__(self, dim: int = 8, hidden: int = 64) -> None:
        super().__init__()
        self.wide = Embedding(1, combiner="sum", initializer="zeros")
        self.vectors = Embedding(dim, initializer="uniform(0.05)")
        self.deep = nn.Sequential(
            nn.LazyLinear(hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
            nn.Linear(hidden, 1),
        )  # fmt: skip

    def forward(self, features: Mapping[str, Tensor]) -> Tensor:
        """Map `ids`, `crossed` (n, pairs) and `numbers` to logits (n,)."""
        ids = features["ids"]
        wide = self.wide(torch.cat([ids, features["crossed"]], dim=1))
        deep = self.deep(torch.cat([self.vectors(ids).flatten(1), features["numbers"]], dim=1))
        return (wide + deep)[:, 0]


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Adagrad: the seldomer a row is trained, the larger are its steps."""
    return torch.optim.Adagrad(parameters, lr=0.05)


def batch_fn(columns: Mapping[str, NDArray[Any]], mode: str) -> Any:
    """The features of DeepFM, and ids of the pairs."""
    batch = separate(columns, mode)
    features = batch if mode == "prediction" else batch[0]
    features["crossed"] = crossed(features["ids"])
    return batch


def crossed(ids: NDArray[Any]) -> NDArray[Any]:
    """One id for each pair, of shape (n, pairs)."""
    first, second = ([pair[side] for pair in CROSSED] for side in (0, 1))
    return ids[:, first] * _ODD + ids[:, second]
