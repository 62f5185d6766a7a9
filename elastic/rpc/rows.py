"""Rows of embeddings on the wire, and handed over in memory.

As bytes, ids and values are checked before anybody uses them.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import numpy as np

from elastic.errors import TrainingError
from elastic.rows.arithmetic import RowRule
from elastic.rows.base import (
    WORD_BYTES,
    Change,
    Gone,
    Ids,
    Life,
    RowDtype,
    RowGradient,
    RowGradients,
    Rows,
    Table,
    Values,
)
from elastic.rpc import elastic_pb2 as pb
from elastic.rpc.layout import (
    CHUNK_BYTES,
    DTYPES,
    Array,
    Bytes,
    Layout,
    SharedMemory,
    TensorSpec,
    spec_of,
)
from elastic.rpc.wire import Pieces, encode_data, layout_from_proto, specs_to_proto

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


# Rows of embeddings handed over in memory, between a worker and who has them on its machine.


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


# Rows that come with a version, for the minibatch that a worker will compute on it.
#
# Whoever makes the version is told their ids meanwhile, and lays them into memory of the worker. So
# a call between the two is saved, where both are on one machine.


@dataclass(frozen=True, slots=True)
class WantedIds:
    """What a minibatch will ask for of a table.

    Attributes:
        ids: Strictly ascending.
    """

    table: Table
    ids: Ids

    @property
    def size_bytes(self) -> int:
        """Memory that the rows take."""
        return WORD_BYTES * len(self.ids) * self.table.dim


@dataclass(frozen=True, slots=True)
class RowsAhead:
    """Rows that have come with a version.

    Attributes:
        version: Theirs, exactly.
        rows: Of each of `wanted` its values, of shape (ids, dim).
    """

    version: int
    wanted: Sequence[WantedIds]
    rows: Sequence[Values]


def size_of(wanted: Sequence[WantedIds]) -> int:
    """Bytes of memory that all of these rows take."""
    return sum(each.size_bytes for each in wanted)


def ahead_to_proto(wanted: Sequence[WantedIds], memory: SharedMemory) -> pb.RowsAhead:
    """Ask for rows, in memory of `size_of` bytes or more."""
    tables = [
        pb.RowsAhead.Ids(table=each.table.name, ids=ids_to_bytes(each.ids)) for each in wanted
    ]
    return pb.RowsAhead(tables=tables, buffer=memory.handle())


def rows_laid(wanted: Sequence[WantedIds], memory: SharedMemory) -> list[Values]:
    """The rows that were laid there, as arrays of the caller's own."""
    found, start = [], 0
    for each in wanted:
        found.append(values_laid(memory, len(each.ids), each.table.dim, start))
        start += each.size_bytes
    return found


def wanted_of_proto(message: pb.RowsAhead) -> list[tuple[str, Ids]]:
    """What a worker asks for: names of tables, and ids.

    Raises:
        RowsError: They are no ids.
    """
    return [(each.table, ids_from_bytes(each.ids)) for each in message.tables]


def lay_rows(rows: Sequence[Values], data: Bytes | None) -> None:
    """Lay rows into a worker's memory, one table behind the other.

    Raises:
        RowsError: It cannot be mapped, or is too small.
    """
    if data is None:
        raise RowsError("the memory for rows ahead cannot be mapped")
    start = 0
    for values in rows:
        lay_values(values, data[start:])
        start += values.nbytes


# Messages about the rows that parameter servers have, and the values that they stand for.


MAX_BYTES: Final = 16 << 20
"""Of the rows of one message; gRPC takes up to 64 MiB."""


@dataclass(frozen=True, slots=True)
class WantedRows:
    """Some rows of a table, as a server is asked for them.

    Attributes:
        table: By its name.
        ids: Strictly ascending, all of rows that this server has.
        width: Numbers of each row that comes.
        version: One that is held; None for the newest.
        as_stored: With the optimizer's slots, and 0 where a row is not there. Else values alone,
            those that a row begins with where nobody has changed it.
    """

    table: str
    ids: Ids
    width: int
    version: int | None = None
    as_stored: bool = False

    def parts(self) -> Iterator["WantedRows"]:
        """The same in as many messages as it takes; one of no ids asks whether it could be read."""
        num_rows = _rows_a_message(self.width)
        for start in range(0, max(len(self.ids), 1), num_rows):
            yield replace(self, ids=self.ids[start : start + num_rows])

    def to_proto(self, era: str) -> pb.ReadRowsRequest:
        """Encode it."""
        return pb.ReadRowsRequest(
            era=era,
            table=self.table,
            ids=ids_to_bytes(self.ids),
            version=self.version,
            as_stored=self.as_stored,
        )

    def answered(self, reply: pb.ReadRowsReply | memoryview) -> Rows:
        """What has come, as views.

        Args:
            reply: As the wire gives it, where it has values alone.

        Raises:
            RowsError: It is not what was asked for.
        """
        num_rows = len(self.ids)
        data = reply if isinstance(reply, memoryview) else reply.values
        values = values_from_bytes(data, num_rows, self.width)
        if isinstance(reply, memoryview) or not self.as_stored:
            return Rows(values, np.ones(num_rows, np.bool_))
        if len(reply.is_there) != num_rows:
            raise RowsError(f"{len(reply.is_there)} bytes say which of {num_rows} rows are there")
        return Rows(values, np.frombuffer(reply.is_there, np.bool_))


def values_from_bytes(data: bytes | memoryview, num_rows: int, width: int) -> Values:
    """Rows that have come, as a view of shape (num_rows, width).

    Raises:
        RowsError: They are not as many.
    """
    if len(data) != num_rows * width * _VALUE.itemsize:
        raise RowsError(f"{len(data)} bytes are no {num_rows} rows of {width} numbers")
    return np.frombuffer(data, _VALUE).reshape(num_rows, width)


def values_to_bytes(values: Values) -> bytes:
    """Rows as they travel."""
    return values.astype(_VALUE, copy=False).tobytes()


def values_to_view(values: Values) -> memoryview:
    """The same, without a copy."""
    return np.ascontiguousarray(values, _VALUE).data.cast("B")


def joined_rows(parts: Sequence[Rows]) -> Rows:
    """Rows that have come in several messages, one behind the other."""
    if len(parts) == 1:
        return parts[0]
    return Rows(
        np.concatenate([part.values for part in parts]),
        np.concatenate([part.is_there for part in parts]),
    )


def put_requests(
    era: str, table: str, rows: Change, old_version: int | None = None
) -> Iterator[pb.PutRowsRequest]:
    """Rows that a server is to have, in as many messages as it takes; one where there are none."""
    num_rows = _rows_a_message(rows.values.shape[1])
    for start in range(0, max(len(rows.ids), 1), num_rows):
        some = slice(start, start + num_rows)
        yield pb.PutRowsRequest(
            era=era,
            table=table,
            ids=ids_to_bytes(rows.ids[some]),
            values=values_to_bytes(rows.values[some]),
            old_version=old_version,
        )


def rows_put(request: pb.PutRowsRequest, width: int) -> Change:
    """The rows that a server is to have.

    Raises:
        RowsError: They are not what a table of this width has.
    """
    ids = ids_from_bytes(request.ids)
    return Change(ids, values_from_bytes(request.values, len(ids), width))


def scan_reply(rows: Change, following: int | None) -> pb.ScanRowsReply:
    """Some rows of a version, and where the next ones begin."""
    return pb.ScanRowsReply(
        ids=ids_to_bytes(rows.ids), values=values_to_bytes(rows.values), next=following
    )


def rows_scanned(reply: pb.ScanRowsReply, width: int) -> tuple[Change, int | None]:
    """See `scan_reply`.

    Raises:
        RowsError: They are not what a table of this width has.
    """
    ids = ids_from_bytes(reply.ids)
    rows = Change(ids, values_from_bytes(reply.values, len(ids), width))
    return rows, reply.next if reply.HasField("next") else None


def table_to_proto(table: Table) -> pb.Table:
    """Encode what a table is."""
    return pb.Table(
        name=table.name,
        dim=table.dim,
        initializer=table.initializer,
        row_dtype=table.row_dtype,
        life=_life_to_proto(table.life),
    )


def table_from_proto(message: pb.Table) -> Table:
    """Decode what a table is."""
    row_dtype = cast("RowDtype", message.row_dtype or "float32")
    life = _life_from_proto(message.life)
    return Table(message.name, message.dim, message.initializer, life, row_dtype)


def gone_to_proto(gone: Gone) -> pb.GoneRows:
    """Encode what has gone of a table."""
    return pb.GoneRows(expired=gone.expired, evicted=gone.evicted)


def gone_from_proto(message: pb.GoneRows) -> Gone:
    """Decode what has gone of a table."""
    return Gone(message.expired, message.evicted)


def rule_to_proto(rule: RowRule) -> pb.RowRule:
    """Encode the rule by which rows are updated."""
    return pb.RowRule(kind=rule.kind, numbers=rule.numbers)


def rule_from_proto(message: pb.RowRule) -> RowRule:
    """Decode the rule by which rows are updated."""
    return RowRule(message.kind, dict(message.numbers))


def _life_to_proto(life: Life) -> pb.Life:
    return pb.Life(
        admit_after=life.admit_after, expire_after=life.expire_after, max_rows=life.max_rows
    )


def _life_from_proto(message: pb.Life) -> Life:
    return Life(
        message.admit_after,
        message.expire_after if message.HasField("expire_after") else None,
        message.max_rows if message.HasField("max_rows") else None,
    )


def _rows_a_message(width: int) -> int:
    return max(1, MAX_BYTES // (_VALUE.itemsize * width + 8))
