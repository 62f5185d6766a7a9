"""The model of `tabular_torch` by records, as a job has it without a `batch_fn`."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import tabular_torch
import torch
from torch import Tensor

custom_model = tabular_torch.custom_model
loss = tabular_torch.loss
optimizer = tabular_torch.optimizer


def dataset_fn(dataset: Iterable[Mapping[str, Any]], _mode: str) -> Iterator[tuple[Tensor, Tensor]]:
    for record in dataset:
        features = torch.tensor([float(record[name]) for name in tabular_torch.NAMES])
        yield features, torch.tensor(float(record["label"]))
