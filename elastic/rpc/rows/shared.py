"""Rows of embeddings handed over in memory, between a worker and who has them on its machine."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np

from elastic.rows.base import WORD_BYTES, Ids, RowGradient, RowGradients, Values
from elastic.rpc import elastic_pb2 as pb
from elastic.rpc.layout import Array, Bytes, Layout, TensorSpec, spec_of
from elastic.rpc.messages import layout_from_proto, specs_to_proto
from elastic.rpc.rows.encoding import RowsError, check_size, checked_ids, gradients_to_proto
from elastic.rpc.shared import SharedMemory

ROOM: Final = 1.25
"""Memory that is made, by what is needed now: minibatches differ in their number of ids."""


class RowsMemory:
    """Memory of a worker, for rows of one call after the other. Not thread-safe."""

    def __init__(self) -> None:
        """Have none yet."""
        self._memory: SharedMemory | None = None

    @contextmanager
    def lent(self, size_bytes: int) -> Iterator[SharedMemory | None]:
        """So much of it or more for a call; None where the system has none.

        Who has not answered a call may still come to its memory: that is not used again.
        """
        memory, self._memory = self._memory, None
        if memory is None or len(memory.data) < size_bytes:
            memory = _made(int(ROOM * size_bytes))
        yield memory
        self._memory = memory

    @contextmanager
    def behind(
        self,
        header: pb.GradientHeader | pb.StageHeader,
        rows: RowGradients,
        *,
        is_shared: bool,
        narrows: bool,
    ) -> Iterator[None]:
        """Have gradients behind a header until its call is answered: in memory, or else in it.

        Args:
            header: Of the call.
            rows: By table.
            is_shared: Whether the other side can map memory of this process.
            narrows: See `gradients_to_proto`, for those that are sent.

        Raises:
            TrainingError: See there.
        """
        if not rows:
            yield
            return
        arrays = [array for each in rows.values() for array in (each.ids, each.values)]
        layout = Layout(tuple(map(spec_of, np.repeat(list(rows), 2).tolist(), arrays)))
        with self.lent(layout.size_bytes if is_shared else 0) as memory:
            if is_shared and memory is not None:
                # A job that runs on one machine runs on several.
                check_size(rows, WORD_BYTES)
                layout.fill(memory.data, arrays)
                header.shared_rows.tensors.extend(specs_to_proto(layout.specs))
                header.shared_rows.buffer.CopyFrom(memory.handle())
            else:
                header.rows.extend(gradients_to_proto(rows, narrows=narrows))
            yield


def gradients_from_memory(shared: pb.SharedRows, data: Bytes | None) -> dict[str, RowGradient]:
    """Copies of the gradients that a worker tells of: its memory is its own after the reply.

    Args:
        shared: What it tells.
        data: The memory that it names; None where that cannot be mapped.

    Raises:
        LayoutError, RowsError: There can be no such rows there.
    """
    layout = layout_from_proto(shared.tensors)
    views = layout.views(_mapped(data, layout.size_bytes))
    rows: dict[str, RowGradient] = {}
    for at in range(0, len(views), 2):
        table = layout.specs[at].name
        if table in rows:
            raise RowsError(f"two gradients of table {table!r}")
        rows[table] = _gradient(layout.specs[at : at + 2], views[at : at + 2])
    return rows


def lay_values(values: Values, data: Bytes | None) -> None:
    """Lay rows into a worker's memory.

    Raises:
        RowsError: It cannot be mapped, or is too small.
    """
    np.copyto(_values_in(_mapped(data, values.nbytes), *values.shape), values)


def values_laid(memory: SharedMemory, num_rows: int, dim: int, start: int = 0) -> Values:
    """The rows that were laid into memory from a byte on, as an array of the caller's own."""
    return _values_in(memory.data[start:], num_rows, dim).copy()


def _made(size_bytes: int) -> SharedMemory | None:
    try:
        return SharedMemory(size_bytes)
    except OSError:
        return None


def _mapped(data: Bytes | None, size_bytes: int) -> Bytes:
    if data is None or len(data) < size_bytes:
        raise RowsError("the shared memory of rows cannot be mapped, or is too small")
    return data


def _values_in(data: Bytes, num_rows: int, dim: int) -> Values:
    return data[: WORD_BYTES * num_rows * dim].view(np.float32).reshape(num_rows, dim)


def _gradient(specs: tuple[TensorSpec, ...], views: list[Array]) -> RowGradient:
    told = ", ".join(map(str, specs))
    if [spec.dtype for spec in specs] != ["int64", "float32"] or specs[0].name != specs[1].name:
        raise RowsError(f"{told} are no ids and values of a table")
    if len(specs[0].shape) != 1 or len(specs[1].shape) != 2 or specs[0].shape != specs[1].shape[:1]:
        raise RowsError(f"{told} are no ids with a row of values each")
    ids: Ids = checked_ids(views[0].copy())
    return RowGradient(ids, views[1].copy())
