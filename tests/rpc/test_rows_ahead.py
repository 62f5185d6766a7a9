"""Rows that are laid for a minibatch to come: they come out as they went in, or are refused."""

import numpy as np
import pytest

from elastic.rows.base import Table
from elastic.rpc import elastic_pb2 as pb
from elastic.rpc.layout import SharedMemory, map_shared
from elastic.rpc.rows import (
    RowsError,
    WantedIds,
    ahead_to_proto,
    lay_rows,
    rows_laid,
    size_of,
    wanted_of_proto,
)

WANTED = (
    WantedIds(Table("items", 3, "zeros"), np.array([-5, 2**40])),
    WantedIds(Table("users", 1, "zeros"), np.array([1, 2, 3])),
)
ROWS = [np.arange(6, dtype=np.float32).reshape(2, 3), np.full((3, 1), 9, np.float32)]


def test_rows_of_several_tables_lie_one_behind_the_other():
    memory = SharedMemory(size_of(WANTED))
    message = pb.RowsAhead.FromString(ahead_to_proto(WANTED, memory).SerializeToString())
    asked = wanted_of_proto(message)
    assert [name for name, _ in asked] == ["items", "users"]
    for (_, ids), each in zip(asked, WANTED, strict=True):
        np.testing.assert_array_equal(ids, each.ids)
    lay_rows(ROWS, map_shared(message.buffer))
    found = rows_laid(WANTED, memory)
    lay_rows([np.zeros_like(values) for values in ROWS], memory.data)
    for values, expected in zip(found, ROWS, strict=True):
        np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize(
    "data", [None, np.empty(size_of(WANTED) - 1, np.uint8)], ids=["none", "short"]
)
def test_memory_that_is_not_there_or_too_small_is_refused(data):
    with pytest.raises(RowsError, match="cannot be mapped"):
        lay_rows(ROWS, data)


def test_ids_that_do_not_ascend_are_refused():
    ids = np.array([2, 1]).tobytes()
    message = pb.RowsAhead(tables=[pb.RowsAhead.Ids(table="items", ids=ids)])
    with pytest.raises(RowsError, match="do not ascend"):
        wanted_of_proto(message)
