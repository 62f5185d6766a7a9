"""Rows in memory: what was handed over is what comes out, and what cannot be there is refused."""

import numpy as np
import pytest

from elastic.rows.base import RowGradient
from elastic.rpc import elastic_pb2 as pb
from elastic.rpc import rows as shared_rows
from elastic.rpc.layout import Layout, SharedMemory, TensorSpec, map_shared
from elastic.rpc.rows import (
    RowsError,
    RowsMemory,
    gradients_from_memory,
    lay_values,
    values_laid,
)
from elastic.rpc.wire import specs_to_proto

ROWS = {
    "items": RowGradient(np.array([-3, 7, 9]), np.arange(6, dtype=np.float32).reshape(3, 2)),
    "users": RowGradient(np.empty(0, np.int64), np.empty((0, 5), np.float32)),
    "words": RowGradient(np.array([2**62]), np.ones((1, 1), np.float32)),
}


def behind(memory, header, rows=ROWS, *, is_shared=True, narrows=False):
    return memory.behind(header, rows, is_shared=is_shared, narrows=narrows)


@pytest.mark.parametrize("kind", [pb.GradientHeader, pb.StageHeader])
def test_gradients_come_out_as_they_were_and_stay_so_when_the_memory_is_used_again(kind):
    memory, header = RowsMemory(), kind()
    with behind(memory, header):
        assert not header.rows
        shared = header.shared_rows
        found = gradients_from_memory(shared, map_shared(shared.buffer))
    with behind(memory, later := kind(), {"items": RowGradient(np.arange(2), np.ones((2, 9)))}):
        assert later.shared_rows.buffer == header.shared_rows.buffer
    assert list(found) == list(ROWS)
    for table, rows in ROWS.items():
        np.testing.assert_array_equal(found[table].ids, rows.ids)
        np.testing.assert_array_equal(found[table].values, rows.values)


def test_who_is_elsewhere_is_sent_them_and_a_model_without_tables_sends_nothing(monkeypatch):
    header = pb.StageHeader()
    with behind(RowsMemory(), header, is_shared=False, narrows=True):
        assert [each.dtype for each in header.rows] == ["bfloat16"] * 3
    with behind(RowsMemory(), header := pb.StageHeader(), {}):
        assert header == pb.StageHeader()

    def no_memory(_size_bytes):
        raise OSError("none left")

    monkeypatch.setattr(shared_rows, "SharedMemory", no_memory)
    with behind(RowsMemory(), header):
        assert len(header.rows) == 3
        assert not header.HasField("shared_rows")


def test_memory_of_a_call_that_failed_is_left_to_who_may_still_come_to_it():
    memory = RowsMemory()
    with memory.lent(100) as first:
        pass
    with pytest.raises(ConnectionError), memory.lent(100) as second:
        raise ConnectionError
    with memory.lent(100) as third:
        pass
    assert first is second
    assert third is not second
    with memory.lent(10 * len(third.data)) as larger:
        assert len(larger.data) >= 10 * len(third.data)


def test_values_are_laid_where_they_are_read_and_belong_to_who_reads_them():
    memory, values = SharedMemory(100), np.arange(6, dtype=np.float32).reshape(2, 3)
    lay_values(values, map_shared(memory.handle()))
    found = values_laid(memory, 2, 3)
    np.testing.assert_array_equal(found, values)
    lay_values(-values, map_shared(memory.handle()))
    np.testing.assert_array_equal(found, values)
    for data in (None, SharedMemory(23).data):
        with pytest.raises(RowsError, match="cannot be mapped, or is too small"):
            lay_values(values, data)


def tensor(name, dtype, *shape):
    return TensorSpec(name, dtype, shape)


IDS, VALUES = tensor("t", "int64", 2), tensor("t", "float32", 2, 3)
WRONG = {
    "values-alone": ([VALUES], "are no ids and values of a table"),
    "turned-round": ([VALUES, IDS], "are no ids and values of a table"),
    "two-tables": ([IDS, tensor("u", "float32", 2, 3)], "are no ids and values of a table"),
    "other-dtype": ([IDS, tensor("t", "float64", 2, 3)], "are no ids and values of a table"),
    "too-few": ([IDS, tensor("t", "float32", 1, 3)], "are no ids with a row of values each"),
    "flat": ([IDS, tensor("t", "float32", 2)], "are no ids with a row of values each"),
    "square-ids": ([tensor("t", "int64", 2, 2), VALUES], "are no ids with a row of values each"),
    "twice": ([IDS, VALUES, IDS, VALUES], "two gradients of table 't'"),
    "too-large": ([IDS, tensor("t", "float32", 2, 300)], "cannot be mapped, or is too small"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_makes_no_rows_is_refused(case):
    specs, message = WRONG[case]
    data = SharedMemory(1000).data
    layout = Layout(tuple(specs))
    for view in layout.views(data) if layout.size_bytes <= len(data) else ():
        view.reshape(-1)[:] = np.arange(view.size)
    with pytest.raises(RowsError, match=message):
        gradients_from_memory(pb.SharedRows(tensors=specs_to_proto(specs)), data)


def test_ids_that_do_not_ascend_are_refused():
    shared = pb.SharedRows(tensors=specs_to_proto([IDS, VALUES]))
    with pytest.raises(RowsError, match="do not ascend"):
        gradients_from_memory(shared, SharedMemory(1000).data)
