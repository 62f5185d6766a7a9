"""The obedient model, whose records are images: the first pixel says which one."""

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from obedient import *  # noqa: F403
from torch import Tensor


def dataset_fn(dataset: Iterable[Mapping[str, Any]], mode: str) -> Iterator[tuple[Tensor, Tensor]]:
    """The index in the red and the green of the first pixel; takes 5 ms."""
    for record in dataset:
        red, green = (int(value) for value in record["image"][0, 0, :2])
        time.sleep(0.005)
        yield torch.tensor([256 * red + green, 0]), torch.tensor(0)
