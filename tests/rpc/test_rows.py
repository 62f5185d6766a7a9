"""Rows on the wire: what was sent comes out, and what nobody can have sent is refused."""

import numpy as np
import pytest

from elastic.errors import TrainingError
from elastic.rows.base import RowGradient
from elastic.rpc import elastic_pb2 as pb
from elastic.rpc import rows as wire
from elastic.rpc.wire import METHODS


def test_gradients_come_out_as_they_were_sent():
    values = np.arange(4, dtype=np.float32).reshape(2, 2)
    sent = {
        "items": RowGradient(np.array([-3, 7], np.int64), values),
        "users": RowGradient(np.array([], np.int64), np.empty((0, 5), np.float32)),
    }
    found = wire.gradients_from_proto(wire.gradients_to_proto(sent))
    assert list(found) == ["items", "users"]
    np.testing.assert_array_equal(found["items"].ids, sent["items"].ids)
    np.testing.assert_array_equal(found["items"].values, sent["items"].values)
    assert not len(found["users"].ids)


def test_gradients_that_are_rounded_are_float32_again_and_half_the_bytes():
    values = np.float32([[1 / 3, np.inf], [np.nan, -2.0]])
    [message] = wire.gradients_to_proto({"items": RowGradient(np.arange(2), values)}, narrows=True)
    assert len(message.values) == 8
    found = wire.gradients_from_proto([message])["items"].values
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, values, rtol=2**-8)


IDS = np.array([1, 2], "<i8").tobytes()
WRONG = {
    "cut-ids": ([pb.RowGradient(table="t", ids=IDS[:9])], "9 bytes are no ids of 8 bytes each"),
    "same-id": ([pb.RowGradient(table="t", ids=IDS[:8] * 2)], "ids that do not ascend strictly"),
    "descending": ([pb.RowGradient(table="t", ids=IDS[8:] + IDS[:8])], "ids that do not ascend"),
    "uneven": ([pb.RowGradient(table="t", ids=IDS, values=bytes(12))], "12 bytes are no 2 rows"),
    "cut-value": ([pb.RowGradient(table="t", ids=IDS, values=bytes(7))], "7 bytes are no 2 rows"),
    "no-ids": ([pb.RowGradient(table="t", values=bytes(8))], "8 bytes are no 0 rows"),
    "dtype": ([pb.RowGradient(table="t", dtype="int8")], "gradients of rows as 'int8'"),
    "twice": ([pb.RowGradient(table="t")] * 2, "two gradients of table 't'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_makes_no_rows_is_refused(case):
    messages, message = WRONG[case]
    with pytest.raises(wire.RowsError, match=message):
        wire.gradients_from_proto(messages)


def test_more_than_a_message_holds_is_told_before_it_is_sent(monkeypatch):
    monkeypatch.setattr(wire, "MAX_GRADIENT_BYTES", 1 << 20)
    many = RowGradient(np.arange(1 << 16), np.zeros((1 << 16, 3), np.float32))
    with pytest.raises(TrainingError, match=r"65536 rows .* lower --minibatch_size"):
        wire.gradients_to_proto({"items": many})


@pytest.mark.parametrize(("num_rows", "num_messages"), [(0, 1), (5, 1), (1 << 19, 3)])
def test_an_answer_comes_out_whole(num_rows, num_messages):
    values = np.arange(3 * num_rows, dtype=np.float32).reshape(-1, 3)
    method = METHODS["GetRows"]
    assert wire.is_one_message(3, num_rows) == (num_messages == 1)
    messages = [
        method.decode_reply(method.encode_reply(each)) for each in wire.reply_chunks(values)
    ]
    assert len(messages) == num_messages
    found = wire.values_of_reply(3, num_rows, messages)
    np.testing.assert_array_equal(found, values)
    found += 1  # the caller's own
    with pytest.raises(wire.RowsError, match=f"bytes for {num_rows + 1} rows of 3 numbers"):
        wire.values_of_reply(3, num_rows + 1, messages)
