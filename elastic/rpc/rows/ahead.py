"""Rows that come with a version, for the minibatch that a worker will compute on it.

Whoever makes the version is told their ids meanwhile, and lays them into memory of the worker. So a
call between the two is saved, where both are on one machine.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from elastic.rows.base import WORD_BYTES, Ids, Table, Values
from elastic.rpc import elastic_pb2 as pb
from elastic.rpc.layout import Bytes
from elastic.rpc.rows.encoding import RowsError, ids_from_bytes, ids_to_bytes
from elastic.rpc.rows.shared import lay_values, values_laid
from elastic.rpc.shared import SharedMemory


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
