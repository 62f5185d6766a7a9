"""A look at a worker's first minibatches: whether they are what somebody wants to train on."""

import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from elastic.frameworks.base import Array, Batch
from elastic.policy.oddities import FirstMinibatches, Looked, Oddity
from elastic.policy.records import Task
from elastic.worker.batches import LoadedBatch


class FirstLook:
    """Looks until the first minibatches are known to be fine, mostly at two; then never again."""

    def __init__(self) -> None:
        self._first = FirstMinibatches()

    def at(self, task: Task, loaded: LoadedBatch) -> Oddity | None:
        """Look at a minibatch; what is odd about all so far, once."""
        if self._first.is_done:
            return None
        batch = loaded.result()
        digest = _digest(batch) if self._first.wants_digest else None
        place = task.records.shard_index, loaded.start
        label = _only_label(batch)
        return self._first.add(Looked(task.epoch, place, batch.num_examples, label, digest))


def _only_label(batch: Batch) -> bytes | None:
    """The label of all examples; None where they differ, or are no plain tensor."""
    arrays = list(_arrays([batch.labels]))
    if len(arrays) != 1 or arrays[0] is None or len(arrays[0]) == 0:
        return None
    rows = arrays[0].reshape(len(arrays[0]), -1)
    return rows[0].tobytes() if bool((rows == rows[0]).all()) else None


def _digest(batch: Batch) -> int | None:
    """A checksum of all tensors; None where there is something else."""
    digest = 0
    for array in _arrays([batch.features, batch.labels]):
        if array is None:
            return None
        digest = zlib.crc32(array.tobytes(), digest)
    return digest


def _arrays(structures: Iterable[Any]) -> Iterator[Array | None]:
    """The tensors of nested dicts, lists and tuples as arrays; None for what is none."""
    for structure in structures:
        match structure:
            case Mapping():
                yield from _arrays(structure.values())
            case list() | tuple():
                yield from _arrays(structure)
            case None:
                pass
            case _:
                yield _array(structure)


def _array(tensor: Any) -> Array | None:
    """An array of a tensor of numbers that is in this machine's memory."""
    try:
        array = np.asarray(tensor)
    except (TypeError, ValueError, RuntimeError):
        # Ragged, sparse, on another device, or of a type that NumPy has not.
        return None
    return array if array.ndim and array.dtype.kind in "biufV" else None
