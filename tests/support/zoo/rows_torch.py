"""A linear model over four numbers and a label, with one `dataset_fn` for each kind of record."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from rows_columns import batch_of_arrays as batch_of_arrays
from rows_columns import batch_of_columns as batch_of_columns
from rows_columns import batch_of_example as batch_of_example
from rows_columns import batch_of_line as batch_of_line
from rows_columns import batch_of_row as batch_of_row
from rows_columns import batch_of_texts as batch_of_texts
from torch import nn

from elastic.data.example import parse_example

Row = tuple[torch.Tensor, int]


class CustomModel(nn.Module):
    """Two classes, zero at first."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 2)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (n, 4) to logits (n, 2)."""
        return self.linear(x)


def loss(labels: torch.Tensor, predictions: torch.Tensor) -> torch.Tensor:
    """Cross entropy."""
    return nn.functional.cross_entropy(predictions, labels)


def optimizer(parameters: Any) -> torch.optim.Optimizer:
    """Plain SGD."""
    return torch.optim.SGD(parameters, lr=0.5)


def eval_metrics_fn() -> dict[str, Callable[..., Any]]:
    """Accuracy."""
    return {
        "accuracy": lambda labels, predictions: (predictions.argmax(1) == labels).float().mean()
    }


def _each(to_row: Callable[[Any], tuple[Any, Any]]) -> Callable[..., Iterator[Row]]:
    def dataset_fn(dataset: Iterable[Any], mode: str) -> Iterator[Row]:
        for record in dataset:
            x, label = to_row(record)
            yield torch.tensor([float(value) for value in x]), int(label)

    return dataset_fn


def _of_example(record: bytes) -> tuple[Any, Any]:
    example = parse_example(record)
    return example["x"], example["label"][0]


from_arrays = _each(lambda record: (record["x"], record["label"]))
from_row = _each(lambda record: (record[:4], record[4]))
from_columns = _each(lambda record: ([record[name] for name in "abcd"], record["label"]))
from_line = _each(lambda record: (record.split()[:4], record.split()[4]))
from_example = _each(_of_example)

from_texts = from_row
