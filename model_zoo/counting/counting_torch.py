"""A model that counts how often each record was trained on, in torch.

A record is its own index `i`, and parameter `counts[i]` must equal the number of epochs when the
job ends. Less is a lost record, more is one that counted twice.

Why this is exact:

- The loss is the mean of `-counts[i]` over the minibatch, so the gradient of each of its n
  records is -1/n and that of all other records is exactly 0.
- A job averages the gradients of one update weighted by their records, sum(n_k g_k) / sum(n_k),
  so each of the N records behind the update ends with -1/N, and one that is in it m times with
  -m/N.
- An epoch holds every record once and an update never mixes epochs, so m is 1 for every record
  that is in the update at all. `CountingSGD` therefore divides by the smallest gradient that is
  not zero, which is 1/N, rounds, and adds the result: 1 to each record of the update.

The division also shows what a mere sign would hide: a record that is twice in one update, and an
average that was not weighted by records. Repeating *all* records of an update equally often
leaves any average as it is; the ledger's audit is there for that.

The learning rate is not used, so modulating it changes nothing. Counts are exact up to 2^24.

Records: `index` int64 in [0, num_records).
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn


class CustomModel(nn.Module):
    """One parameter per record, and a buffer that counts training steps.

    Args:
        num_records: Records of the data set.
        delay_ms: Slows each training step down, so that tests can interrupt it.
    """

    steps: Tensor

    def __init__(self, num_records: int = 1000, delay_ms: float = 0.0) -> None:
        super().__init__()
        self.counts = nn.Parameter(torch.zeros(num_records))
        self.register_buffer("steps", torch.zeros(()))
        self.delay_s = delay_ms / 1000

    def forward(self, index: Tensor) -> Tensor:
        """Map indices (n,) int64 to their counts (n,)."""
        if self.training:
            self.steps += 1
            time.sleep(self.delay_s)
        return self.counts[index]


class CountingSGD(torch.optim.Optimizer):
    """Add to each parameter how often its record is in the update; see the module's docstring."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        super().__init__(parameters, {"lr": 1.0})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """Apply the gradients; `closure` computes them anew where it is given."""
        result = None
        if closure is not None:
            with torch.enable_grad():
                result = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter += times_in_update(parameter.grad)
        return result


def times_in_update(gradient: Tensor) -> Tensor:
    """Turn an averaged gradient into how often each record is behind it."""
    magnitude = gradient.abs()
    smallest = magnitude.masked_fill(magnitude == 0, torch.inf).min()
    return torch.round(-gradient / smallest)


def loss(labels: Tensor, predictions: Tensor) -> Tensor:
    """Give each record of the minibatch the gradient -1/n."""
    return -predictions.mean()


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """The optimizer that counts."""
    return CountingSGD(parameters)


def dataset_fn(dataset: Iterable[Mapping[str, Any]], mode: str) -> Iterator[tuple[Tensor, Tensor]]:
    """The index is feature and label."""
    for record in dataset:
        index = torch.as_tensor(record["index"])
        yield index, index


def mean_count(labels: Tensor, predictions: Tensor) -> Tensor:
    """How often the records were trained on, on average."""
    return predictions.mean()


def eval_metrics_fn() -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """The metrics of one evaluation."""
    return {"mean_count": mean_count}
