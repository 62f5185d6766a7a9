"""Collate examples into torch minibatches."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from torch.utils.data import default_collate


def minibatches(
    examples: Iterable[tuple[Any, Any]], minibatch_size: int
) -> Iterator[tuple[Any, Any, int]]:
    """Yield (features, labels, number of examples); the last minibatch may be smaller."""
    iterator = iter(examples)
    while batch := list(itertools.islice(iterator, minibatch_size)):
        features, labels = default_collate(batch)
        yield features, labels, len(batch)
