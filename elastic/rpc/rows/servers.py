"""Messages about the rows that parameter servers have, and the values that they stand for."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, cast

import numpy as np

from elastic.rows.arithmetic.kernels import RowRule
from elastic.rows.base import Ids, Life, RowDtype, Table, Values
from elastic.rows.life import Gone
from elastic.rows.store import Change, Rows
from elastic.rpc import elastic_pb2 as pb
from elastic.rpc.rows.encoding import RowsError, ids_from_bytes, ids_to_bytes

MAX_BYTES: Final = 16 << 20
"""Of the rows of one message; gRPC takes up to 64 MiB."""

_VALUE: Final = np.dtype("<f4")


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
