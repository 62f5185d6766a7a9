"""Rows of embeddings on the wire: ids and values as bytes, checked before anybody uses them."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np

from elastic.errors import TrainingError
from elastic.rows.base import Ids, RowGradient, RowGradients, Values
from elastic.rpc import elastic_pb2 as pb
from elastic.rpc.layout import CHUNK_BYTES, DTYPES
from elastic.rpc.wire import Pieces, encode_data

MAX_GRADIENT_BYTES: Final = 60 << 20
"""Of all rows behind one gradient, which travel in one message; gRPC takes up to 64 MiB."""

IDS_A_CALL: Final = 1 << 20
"""Ids that one call asks for: 8 MiB."""

ONE_MESSAGE_BYTES: Final = 4 << 20
"""What an answer may have to be one message, which is received for less than a stream of them."""

_ID: Final = np.dtype("<i8")
_VALUE: Final = np.dtype("<f4")
_NARROW: Final = DTYPES["bfloat16"]
_SENT_AS: Final = {"float32": _VALUE, "bfloat16": _NARROW}


class RowsError(ValueError):
    """Ids or values that no worker of this job can have sent."""


def ids_to_bytes(ids: Ids) -> bytes:
    """Ids as they travel."""
    return ids.astype(_ID, copy=False).tobytes()


def ids_from_bytes(data: bytes) -> Ids:
    """Ids that have come, as a view.

    Raises:
        RowsError: They are not whole, or do not ascend strictly.
    """
    if len(data) % _ID.itemsize:
        raise RowsError(f"{len(data)} bytes are no ids of {_ID.itemsize} bytes each")
    return checked_ids(np.frombuffer(data, _ID))


def checked_ids(ids: Ids) -> Ids:
    """The same ids.

    Raises:
        RowsError: They do not ascend strictly.
    """
    if not (ids[1:] > ids[:-1]).all():
        raise RowsError("ids that do not ascend strictly")
    return ids


def check_size(rows: RowGradients, number_bytes: int) -> None:
    """See that gradients are no more than one message holds, wherever they lie.

    Args:
        rows: By table.
        number_bytes: Of a number of their values.

    Raises:
        TrainingError: They are more.
    """
    size_bytes = sum(each.ids.nbytes + each.values.size * number_bytes for each in rows.values())
    if size_bytes > MAX_GRADIENT_BYTES:
        num_rows = sum(len(each.ids) for each in rows.values())
        raise TrainingError(
            f"the gradient of one minibatch has {num_rows} rows of embeddings, which are "
            f"{size_bytes >> 20} MiB, and {MAX_GRADIENT_BYTES >> 20} MiB travel at once: lower "
            "--minibatch_size"
        )


def gradients_to_proto(rows: RowGradients, *, narrows: bool = False) -> list[pb.RowGradient]:
    """Encode the gradients of rows.

    Args:
        rows: By table.
        narrows: Round them to bfloat16.

    Raises:
        TrainingError: They are more than one message holds.
    """
    name_of_dtype = "bfloat16" if narrows else "float32"
    dtype = _SENT_AS[name_of_dtype]
    check_size(rows, dtype.itemsize)
    return [
        pb.RowGradient(
            table=name,
            ids=ids_to_bytes(each.ids),
            values=each.values.astype(dtype, copy=False).tobytes(),
            dtype=name_of_dtype,
        )
        for name, each in rows.items()
    ]


def gradients_from_proto(messages: Iterable[pb.RowGradient]) -> dict[str, RowGradient]:
    """Decode the gradients of rows, as float32; those that came so as views.

    Raises:
        RowsError: A table comes twice, ids do not ascend, or values are not whole rows of a known
            dtype.
    """
    rows: dict[str, RowGradient] = {}
    for message in messages:
        if message.table in rows:
            raise RowsError(f"two gradients of table {message.table!r}")
        ids = ids_from_bytes(message.ids)
        dtype = _SENT_AS.get(message.dtype or "float32")
        if dtype is None:
            raise RowsError(f"gradients of rows as {message.dtype!r}")
        rows[message.table] = RowGradient(ids, _rows_of(message.values, len(ids), dtype))
    return rows


def _rows_of(data: bytes, num_rows: int, dtype: np.dtype[Any]) -> Values:
    num_values, rest = divmod(len(data), dtype.itemsize)
    if rest or num_values % max(num_rows, 1) or (num_values and not num_rows):
        raise RowsError(f"{len(data)} bytes are no {num_rows} rows")
    values = np.frombuffer(data, dtype).astype(_VALUE, copy=False)
    return values.reshape(num_rows, -1 if num_rows else 0)


def is_one_message(dim: int, num_rows: int) -> bool:
    """Whether an answer with so many rows is a single message."""
    return num_rows * dim * _VALUE.itemsize <= ONE_MESSAGE_BYTES


def reply_chunks(values: Values) -> Iterator[Pieces]:
    """Rows as `GetRows` answers them.

    Args:
        values: Of shape (ids, dim).
    """
    data = np.ascontiguousarray(values, _VALUE).reshape(-1).view(np.uint8).data
    num_rows, dim = values.shape
    if is_one_message(dim, num_rows):
        yield encode_data([data])
        return
    for begin in range(0, len(data), CHUNK_BYTES):
        yield encode_data([data[begin : begin + CHUNK_BYTES]])


def values_of_reply(dim: int, num_rows: int, chunks: Iterable[Any]) -> Values:
    """Rows out of an answer to `GetRows`, as an array of the caller's own.

    Raises:
        RowsError: They are not as many as were asked for.
    """
    parts = list(chunks)
    if not all(isinstance(part, memoryview) for part in parts):
        raise RowsError("something else than values")
    data = bytearray().join(parts)
    if len(data) != num_rows * dim * _VALUE.itemsize:
        raise RowsError(f"{len(data)} bytes for {num_rows} rows of {dim} numbers")
    return np.frombuffer(data, _VALUE).reshape(num_rows, dim)
