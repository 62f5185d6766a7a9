"""A small convolutional network over pictures, whose step takes longer than decoding its input."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from elastic.data import open_reader
from elastic.data.base import DataReader, ReadTask
from elastic.policy.tasks.records import Shard


class CustomModel(nn.Module):
    """Two convolutions and a linear layer; `width` sets how long a step takes."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, width, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
            nn.Linear(16 * width, 4),
        )

    def forward(self, pictures: Tensor) -> Tensor:
        """Map bytes (n, height, width, 3) to logits (n, 4)."""
        return self.layers(pictures.permute(0, 3, 1, 2).float() / 255)


def loss(labels: Tensor, predictions: Tensor) -> Tensor:
    """Mean cross-entropy."""
    return nn.functional.cross_entropy(predictions, labels)


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Plain SGD."""
    return torch.optim.SGD(parameters, lr=0.01)


def dataset_fn(dataset: Iterable[Mapping[str, Any]], mode: str) -> Iterator[tuple[Any, Any]]:  # noqa: ARG001 (part of the contract)
    """Pictures and labels as they are."""
    for record in dataset:
        yield record["image"], record["label"]


class AlternatingReader:
    """The built-in reader in one epoch, and the same records out of memory in the next."""

    def __init__(self, reader: DataReader) -> None:
        self._reader = reader
        self._records: dict[str, list[Any]] = {}
        self._seen: set[tuple[str, int, int]] = set()
        self._from_memory = False

    def create_shards(self) -> Sequence[Shard]:
        """Those of the files."""
        return self._reader.create_shards()

    def read_records(self, task: ReadTask) -> Iterable[Any]:
        """Read them, or take them from the list; a range that comes again begins an epoch."""
        key = (task.shard.name, task.start, task.end)
        if key in self._seen:
            self._seen.clear()
            self._from_memory = not self._from_memory
        self._seen.add(key)
        if not self._from_memory:
            return self._reader.read_records(task)
        name = task.shard.name
        if name not in self._records:
            for shard in self._reader.create_shards():
                read = self._reader.read_records(ReadTask(shard, shard.start, shard.end))
                self._records.setdefault(shard.name, []).extend(read)
        return self._records[name][task.start : task.end]


def read_in_turns(data_origin: str, records_per_task: int, **params: Any) -> AlternatingReader:
    """For `custom_data_reader`: what an epoch takes with its input, and what without."""
    return AlternatingReader(open_reader(data_origin, records_per_task, params, None, beside=True))
