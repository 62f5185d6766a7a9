"""Which advertisements are clicked on: DeepFM in torch, its rows in the master.

Records: columns as `prepare_data` writes them (`label`, `I1` … `I13`, `C1` … `C26`), or as Criteo
or Avazu publish theirs, see `LAYOUTS`. A category holds integers or texts.

Source: Guo et al., "DeepFM: A Factorization-Machine based Neural Network for CTR Prediction", IJCAI
2017.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from elastic.embedding import Embedding, RowDtype, to_ids


class Layout(NamedTuple):
    """The columns of a file: 1 in `label` where one clicked, numbers, categories."""

    label: str
    numbers: tuple[str, ...]
    categories: tuple[str, ...]


LAYOUTS = (
    Layout(
        "label",
        tuple(f"I{index}" for index in range(1, 14)),
        tuple(f"C{index}" for index in range(1, 27)),
    ),
    # Criteo's files have no header.
    Layout(
        "c0",
        tuple(f"c{index}" for index in range(1, 14)),
        tuple(f"c{index}" for index in range(14, 40)),
    ),
    # Avazu's have no numbers.
    Layout(
        "click",
        (),
        (
            *("hour", "C1", "banner_pos", "site_id", "site_domain", "site_category"),
            *("app_id", "app_domain", "app_category"),
            *("device_id", "device_ip", "device_model", "device_type", "device_conn_type"),
            *(f"C{index}" for index in range(14, 22)),
        ),
    ),
)
NUM_BINS = 1000
"""Of the curve whose area is measured."""


class CustomModel(nn.Module):
    """A factorization machine beside a network with two hidden layers, over the same rows."""

    def __init__(self, dim: int = 8, hidden: int = 64, row_dtype: RowDtype = "float32") -> None:
        super().__init__()
        # The weight of a category's value, and then its vector: one table, so one read a step.
        self.rows = Embedding(1 + dim, initializer="normal(0.01)", row_dtype=row_dtype)
        self.deep = nn.Sequential(
            nn.LazyLinear(hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
            nn.Linear(hidden, 1),
        )  # fmt: skip

    def forward(self, features: Mapping[str, Tensor]) -> Tensor:
        """Map `ids` (n, categories) int64 and `numbers` (n, numbers) to logits (n,)."""
        rows = self.rows(features["ids"])
        weights, vectors = rows[..., 0], rows[..., 1:]
        # The sum of the products of all pairs.
        pairs = (vectors.sum(1) ** 2 - (vectors**2).sum(1)).sum(1) / 2
        deep = self.deep(torch.cat([vectors.flatten(1), features["numbers"]], dim=1))
        return weights.sum(1) + pairs + deep[:, 0]


def loss(labels: Tensor, predictions: Tensor) -> Tensor:
    """Mean cross-entropy; `labels` is (n,), 1 for a click, `predictions` (n,) logits."""
    return nn.functional.binary_cross_entropy_with_logits(predictions, labels)


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Adam, of dense parameters and of those rows that a minibatch has."""
    return torch.optim.Adam(parameters, lr=0.002)


def batch_fn(columns: Mapping[str, NDArray[Any]], mode: str) -> Any:
    """Numbers by their logarithm, 0 where they are missing; ids of the categories' values."""
    layout = layout_of(columns)
    features = {"numbers": numbers(columns, layout), "ids": ids(columns, layout)}
    if mode == "prediction":
        return features
    return features, columns[layout.label].astype(np.float32)


def layout_of(columns: Mapping[str, NDArray[Any]]) -> Layout:
    """Whose columns these are; those of a prediction may lack the label."""
    return next(each for each in LAYOUTS if {*each.numbers, *each.categories} <= columns.keys())


def numbers(columns: Mapping[str, NDArray[Any]], layout: Layout) -> NDArray[np.float32]:
    """Of shape (n, numbers)."""
    found = np.empty((len(columns[layout.categories[0]]), len(layout.numbers)), np.float32)
    for place, name in enumerate(layout.numbers):
        found[:, place] = columns[name]
    # Criteo has some that are -1 or -2.
    return np.log1p(np.nan_to_num(found, copy=False).clip(0))


def ids(columns: Mapping[str, NDArray[Any]], layout: Layout) -> NDArray[np.int64]:
    """Of shape (n, categories): values of two categories are never the same row."""
    found = [to_ids(columns[name]) for name in layout.categories]
    return np.stack(found, axis=1) * len(found) + np.arange(len(found))


class AreaUnderCurve:
    """Of the ROC curve: how many clicks and others there are in each bin of probability."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.clicks = torch.zeros(NUM_BINS, dtype=torch.float64)
        self.others = torch.zeros(NUM_BINS, dtype=torch.float64)

    def update(self, predictions: Tensor, labels: Tensor) -> None:
        """Count the predictions of a minibatch."""
        bins = (predictions.sigmoid() * NUM_BINS).long().clamp(max=NUM_BINS - 1).cpu()
        labels = labels.to(self.clicks)
        self.clicks += bins.bincount(labels, minlength=NUM_BINS)
        self.others += bins.bincount(1 - labels, minlength=NUM_BINS)

    def compute(self) -> Tensor:
        """The chance that a click has a higher prediction than another record; half of equals."""
        lower = self.others.cumsum(0) - self.others / 2
        return (self.clicks * lower).sum() / (self.clicks.sum() * self.others.sum())


def eval_metrics_fn() -> dict[str, Any]:
    """The area under the ROC curve."""
    return {"auc": AreaUnderCurve()}
