"""Commands that NumPy has made are those that the package would have made."""

import numpy as np
import pytest
import redis

from elastic.rows.redis.link import (
    CHUNK_ROWS,
    Packed,
    PackedConnection,
    fields,
    ids_of_fields,
    read_rows,
    write_rows,
)

EXTREMES = np.asarray([np.iinfo(np.int64).min, -1, 0, 77, np.iinfo(np.int64).max])


class Pipe:
    """Notes what is executed."""

    def __init__(self):
        self.commands = []

    def execute_command(self, *command):
        self.commands.append(command)


@pytest.fixture
def pipe():
    return Pipe()


def test_fields_are_named_by_digits():
    assert fields(np.asarray([77, -1])) == [b"000000000000004d", b"ffffffffffffffff"]
    assert ids_of_fields(fields(EXTREMES)).tolist() == EXTREMES.tolist()


@pytest.mark.parametrize("name", [b"five", b"77", b"000000000000004x", b"\xff" * 16])
def test_what_is_no_id_is_refused(name):
    with pytest.raises(ValueError, match=r".+"):
        ids_of_fields([*fields(EXTREMES), name])


@pytest.mark.parametrize("width", [0, 1, 27])
def test_commands_are_packed_as_the_package_packs_them(pipe, width):
    values = np.random.default_rng(0).random((len(EXTREMES), width), np.float32)
    read_rows(pipe, "rows:ü", EXTREMES)
    write_rows(pipe, "rows:ü", EXTREMES, values)
    pairs = [part for row in zip(fields(EXTREMES), values, strict=True) for part in row]
    plain = [("HMGET", "rows:ü", *fields(EXTREMES)), ("HSET", "rows:ü", *map(bytes, pairs))]
    connection = PackedConnection()
    packed = [b"".join(redis.Connection.pack_command(connection, *each)) for each in plain]
    assert [command[-1].data for command in pipe.commands] == packed
    assert connection.pack_commands([("MULTI",), *pipe.commands]) == [
        b"".join([b"*1\r\n$5\r\nMULTI\r\n", *packed])
    ]


def test_many_rows_are_several_commands(pipe):
    ids = np.arange(2 * CHUNK_ROWS + 1)
    assert read_rows(pipe, "rows", ids) == 3
    write_rows(pipe, "rows", ids, np.zeros((len(ids), 2), np.float32))
    assert [command[0] for command in pipe.commands] == ["HMGET"] * 3 + ["HSET"] * 3


def test_a_message_about_a_command_tells_no_rows():
    assert str(Packed(bytes(1 << 20), "rows …")) == "rows …"


def test_the_rows_of_a_large_update_are_not_copied_to_be_sent(pipe):
    ids = np.arange(CHUNK_ROWS + 1)
    write_rows(pipe, "rows", ids, np.zeros((len(ids), 64), np.float32))
    large, small = (command[-1].data for command in pipe.commands)
    pieces = PackedConnection().pack_commands([("MULTI",), *pipe.commands, ("EXEC",)])
    assert pieces[1] is large
    assert b"".join(pieces) == b"*1\r\n$5\r\nMULTI\r\n" + large + small + b"*1\r\n$4\r\nEXEC\r\n"
    assert len(pieces) == 3
