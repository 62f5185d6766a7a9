"""The held counting model over records of every format, which hold their own index as label.

A few hundred records are cut into as many chunks and windows here as large data has.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import rows_columns
import rows_torch
import torch
from held_counting_torch import *  # noqa: F403 - the rest of the module is that one's
from held_counting_torch import CustomModel as CustomModel

from elastic.data import picking
from elastic.data.formats import arrays

Pairs = Iterator[tuple[torch.Tensor, torch.Tensor]]
ReadRows = Callable[[Iterable[Any], str], Iterator[tuple[Any, int]]]

CHUNK_BYTES = 128
WINDOW_BYTES = 1024

picking.chunk_bytes.__defaults__ = (CHUNK_BYTES,)
picking.mixed_of.__defaults__ = (WINDOW_BYTES,)
picking.CHUNK_BYTES = arrays._CHUNK_BYTES = CHUNK_BYTES
picking.FORWARD_WINDOW_BYTES = arrays._WINDOW_BYTES = WINDOW_BYTES


def _counting(
    rows: Callable[[Iterable[Any], str], Iterator[tuple[Any, int]]],
) -> Callable[..., Pairs]:
    def dataset_fn(dataset: Iterable[Any], mode: str) -> Pairs:
        for _, index in rows(dataset, mode):
            yield torch.tensor(index), torch.tensor(index)

    return dataset_fn


from_arrays = _counting(rows_torch.from_arrays)
from_row = _counting(rows_torch.from_row)
from_columns = _counting(rows_torch.from_columns)
from_texts = _counting(rows_torch.from_texts)
from_line = _counting(rows_torch.from_line)
from_example = _counting(rows_torch.from_example)


def _counting_columns(
    rows: Callable[[Any, str], tuple[Any, Any]],
) -> Callable[[Any, str], tuple[Any, Any]]:
    def batch_fn(columns: Any, mode: str) -> tuple[Any, Any]:
        _, index = rows(columns, mode)
        return index, index

    return batch_fn


batch_of_arrays = _counting_columns(rows_columns.batch_of_arrays)
batch_of_row = _counting_columns(rows_columns.batch_of_row)
batch_of_columns = _counting_columns(rows_columns.batch_of_columns)
batch_of_texts = _counting_columns(rows_columns.batch_of_texts)
batch_of_line = _counting_columns(rows_columns.batch_of_line)
batch_of_example = _counting_columns(rows_columns.batch_of_example)


def batch_of_image(columns: Any, mode: str) -> tuple[Any, Any]:
    """The same as `from_image` of columns."""
    pixels = columns["image"][:, 0, 0, :2].astype(np.int64)
    index = 256 * pixels[:, 0] + pixels[:, 1]
    return index, index


def from_image(dataset: Iterable[Any], mode: str) -> Pairs:
    """The index is the red and the green of the first pixel."""
    for record in dataset:
        red, green = (int(value) for value in record["image"][0, 0, :2])
        index = torch.tensor(256 * red + green)
        yield index, index
