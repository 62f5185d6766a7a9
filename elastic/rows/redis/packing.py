"""Commands of thousands of rows as they go to a Redis: made by NumPy, and not one by one.

A field is an id as 16 hexadecimal digits, which people can read, and all of which have one length:
so has a row of a table, and a command is an array with a line for each of its rows.
"""

import socket
import ssl
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import redis
from numpy.typing import NDArray

from elastic.rows.base import Ids, Values

CHUNK_ROWS: Final = 2048
"""Rows of one command: enough that commands cost nothing, few enough for a reader in between."""

ALONE_BYTES: Final = 64 << 10
"""A command of this size is sent by itself: joined to others, all rows of an update are copied once
more, and it is not sent any faster."""

FIELD_BYTES: Final = 16
_END: Final = b"\r\n"

_Bytes: TypeAlias = NDArray[np.uint8]
_PAIRS_OF_DIGITS: Final = np.frombuffer(bytes(range(256)).hex().encode(), np.uint16)


@dataclass(frozen=True, slots=True)
class Packed:
    """The only argument of a command that is packed already.

    Attributes:
        data: All of the command, its name included.
        told: What it is, for messages.
    """

    data: bytes
    told: str

    def __str__(self) -> str:
        return self.told


class _Packing:
    """Packs the commands of a connection, but for those that are packed."""

    def pack_commands(self, commands: Iterable[tuple[Any, ...]]) -> list[bytes]:
        """What goes to the server: small commands in one piece, large ones as they are."""
        pieces: list[bytes] = []
        small: list[bytes] = []
        for piece in (piece for command in commands for piece in self._pack(command)):
            if len(piece) < ALONE_BYTES:
                small.append(piece)
                continue
            pieces += [b"".join(small), piece] if small else [piece]
            small = []
        return [*pieces, b"".join(small)] if small else pieces

    def _pack(self, command: tuple[Any, ...]) -> Sequence[bytes]:
        if isinstance(command[-1], Packed):
            return [command[-1].data]
        pieces: Sequence[bytes] = super().pack_command(*command)  # type: ignore[misc]
        return pieces


class PackedConnection(_Packing, redis.Connection):
    """A connection whose pipelines may have packed commands."""


class PackedSslConnection(PackedConnection):
    """The same, encrypted."""

    def __init__(self, *, trusted: ssl.SSLContext, server_name: str, **settings: Any) -> None:
        """Say whom to trust.

        Args:
            trusted: With the certificates of who vouches for the server.
            server_name: Whom its own has to be made out to.
            settings: As for any connection.
        """
        super().__init__(**settings)  # type: ignore[no-untyped-call]
        self._trusted = trusted
        self._server_name = server_name

    def _connect(self) -> socket.socket:
        plain: socket.socket = super()._connect()  # type: ignore[no-untyped-call]
        try:
            return self._trusted.wrap_socket(plain, server_hostname=self._server_name)
        except OSError:
            plain.close()
            raise


def fields(ids: Ids) -> list[bytes]:
    """Ids as the names of fields."""
    names: list[bytes] = _digits(ids).view(f"S{FIELD_BYTES}").reshape(-1).tolist()
    return names


def ids_of_fields(names: Sequence[bytes]) -> Ids:
    """The ids that fields are named after.

    Raises:
        ValueError: One is no id.
    """
    wrong = next((name for name in names if len(name) != FIELD_BYTES), None)
    if wrong is not None:
        raise ValueError(wrong.decode(errors="replace"))
    return np.frombuffer(bytes.fromhex(b"".join(names).decode()), ">i8").astype(np.int64)


def read_rows(pipe: Any, key: str, ids: Ids) -> int:
    """Have a pipeline read rows of a hash; how many lists of them it will answer with."""
    chunks = list(_chunks(ids))
    for some in chunks:
        pipe.execute_command("HMGET", _packed("HMGET", key, len(some), _lines(some)))
    return len(chunks)


def write_rows(pipe: Any, key: str, ids: Ids, values: Values) -> None:
    """Have a pipeline write rows to a hash, of shape (ids, width); empty ones for a width of 0."""
    for some, rows in zip(_chunks(ids), _chunks(values), strict=True):
        lines = _lines(some, rows)
        pipe.execute_command("HSET", _packed("HSET", key, 2 * len(some), lines))


def _chunks(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    return (array[start : start + CHUNK_ROWS] for start in range(0, len(array), CHUNK_ROWS))


def _digits(ids: Ids) -> _Bytes:
    """Of shape (ids, FIELD_BYTES)."""
    found: _Bytes = _PAIRS_OF_DIGITS[ids.astype(">i8").view(np.uint8)].view(np.uint8)
    return found.reshape(-1, FIELD_BYTES)


def _lines(ids: Ids, values: Values | None = None) -> bytes:
    """The arguments that some rows are."""
    field = _argument(bytes(FIELD_BYTES))
    if values is None:
        return _filled(field, len(ids), {len(field): _digits(ids)})
    rows = np.ascontiguousarray(values).view(np.uint8)
    line = field + _argument(bytes(rows.shape[1]))
    return _filled(line, len(ids), {len(field): _digits(ids), len(line): rows})


def _filled(line: bytes, num_lines: int, columns: Mapping[int, _Bytes]) -> bytes:
    """A line so many times, with what differs in them, by the place where that argument ends."""
    lines = np.empty((num_lines, len(line)), np.uint8)
    lines[:] = np.frombuffer(line, np.uint8)
    for end, column in columns.items():
        last = end - len(_END)
        lines[:, last - column.shape[1] : last] = column
    return lines.tobytes()


def _packed(name: str, key: str, num_arguments: int, arguments: bytes) -> Packed:
    head = b"*%d\r\n" % (2 + num_arguments) + _argument(name.encode()) + _argument(key.encode())
    return Packed(head + arguments, f"{key} …")


def _argument(data: bytes) -> bytes:
    return b"$%d\r\n%b" % (len(data), data) + _END
