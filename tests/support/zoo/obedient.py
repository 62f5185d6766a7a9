"""A counting model whose records say what happens to them.

Record i is `index` = i with a `deed`:

- 0 counts, as in the zoo's counting model
- 1 fails in training, 2 fails in evaluation
- 3 makes no example
- 4 has a loss that is not a number, 5 a finite loss with a gradient that is not

and with `delay_ms`, which `dataset_fn` takes for it.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

COUNTS, FAILS_IN_TRAINING, FAILS_IN_EVALUATION, IS_FILTERED, IS_NAN, HAS_NAN_GRADIENT = range(6)


class CustomModel(nn.Module):
    """One parameter per record."""

    def __init__(self, num_records: int) -> None:
        super().__init__()
        self.counts = nn.Parameter(torch.zeros(num_records))

    def forward(self, features: Tensor) -> Tensor:
        """Map (n, 2) pairs of index and deed to counts (n,)."""
        index, deed = features.unbind(1)
        poison = torch.where(deed == IS_NAN, torch.nan, 1.0)
        counts = self.counts[index]
        if (deed == HAS_NAN_GRADIENT).any():
            # The root of 0 is 0, and its slope infinite.
            counts = counts + torch.sqrt(counts * 0)
        return counts * poison


class CountingSGD(torch.optim.Optimizer):
    """Add to each parameter how often its record is in the update, as the zoo's model does."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        super().__init__(parameters, {"lr": 1.0})

    @torch.no_grad()
    def step(self, _closure: Any = None) -> Any:
        """Apply the gradients."""
        for group in self.param_groups:
            for parameter in group["params"]:
                size = parameter.grad.abs()
                smallest = size.masked_fill(size == 0, torch.inf).min()
                parameter += torch.round(-parameter.grad / smallest)


def loss(labels: Tensor, predictions: Tensor) -> Tensor:
    """Give each record of the minibatch the gradient -1/n."""
    return -predictions.mean()


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """The optimizer that counts."""
    return CountingSGD(parameters)


def dataset_fn(dataset: Iterable[Mapping[str, Any]], mode: str) -> Iterator[tuple[Tensor, Tensor]]:
    """Do what each record says."""
    fails = FAILS_IN_TRAINING if mode == "training" else FAILS_IN_EVALUATION
    for record in dataset:
        index, deed = int(record["index"]), int(record["deed"])
        time.sleep(float(record["delay_ms"]) / 1000)
        if deed == fails:
            raise ValueError(f"record {index} cannot be read")
        if deed != IS_FILTERED:
            yield torch.tensor([index, deed]), torch.tensor(index)


def sum_of_indices(labels: Tensor, predictions: Tensor) -> Tensor:
    """Tell which records were evaluated: the mean of their indices."""
    return labels.double().mean()


def eval_metrics_fn() -> dict[str, Any]:
    """The metrics of one evaluation."""
    return {"mean_index": sum_of_indices}
