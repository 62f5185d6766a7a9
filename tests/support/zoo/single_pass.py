"""A small network that is evaluated and predicted with, and whose records say what they do.

A record has `index`, `x` (3 numbers), `label` and a `deed`: 0 nothing, 1 fails, 2 makes no
example, 3 makes two.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from waiting import wait_until_open

IS_FINE, FAILS, IS_DROPPED, IS_DOUBLED = range(4)


class CustomModel(nn.Module):
    """Gives two logits, or what `gives` says; waits at `gate` from record `free_records` on.

    It has memory for `limit` records of a minibatch.
    """

    def __init__(
        self,
        gives: str = "",
        gate: str = "",
        free_records: int = 0,
        delay_ms: float = 0,
        limit: int = 1000,
    ) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
        self._gives = gives
        self._gate, self._free_records, self._delay_s = gate, free_records, delay_ms / 1000
        self._limit = limit

    def forward(self, features: Mapping[str, Tensor]) -> Any:
        """Map a dict of `x` (n, 3) and `index` (n,) to logits (n, 2)."""
        time.sleep(self._delay_s)
        if len(features["index"]) > self._limit and not torch.is_grad_enabled():
            raise MemoryError(f"no room for {len(features['index'])} records")
        if self._gate and int(features["index"].max()) >= self._free_records:
            wait_until_open(self._gate)
        logits = self.layers(features["x"])
        match self._gives:
            case "dict":
                square = logits[:, :, None] * logits[:, None, :]
                return {"score": logits[:, 0], "square": square, "index2": features["index"]}
            case "bfloat16":
                return logits.to(torch.bfloat16)
            case "float16":
                return logits[:, :1].to(torch.float16)
            case "nothing":
                return "nothing"
        return logits


def loss(labels: Tensor, predictions: Tensor) -> Tensor:
    """Mean cross-entropy."""
    return nn.functional.cross_entropy(predictions, labels)


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Plain SGD, for jobs that train."""
    return torch.optim.SGD(parameters, lr=0.1)


def dataset_fn(dataset: Iterable[Mapping[str, Any]], mode: str) -> Iterator[Any]:
    """Do what each record says; to predict, give features alone."""
    for record in dataset:
        if record["deed"] == FAILS and mode != "training":
            raise ValueError(f"record {record['index']} cannot be read")
        features = {"x": torch.as_tensor(record["x"]), "index": torch.tensor(int(record["index"]))}
        times = {IS_DROPPED: 0, IS_DOUBLED: 2}.get(int(record["deed"]), 1)
        for _ in range(times):
            yield (
                features if mode == "prediction" else (features, torch.tensor(int(record["label"])))
            )


def accuracy(labels: Tensor, predictions: Tensor) -> Tensor:
    """One number for each example."""
    return (predictions.argmax(1) == labels).float()


def eval_metrics_fn() -> dict[str, Any]:
    """The metrics of one evaluation."""
    return {"accuracy": accuracy}
