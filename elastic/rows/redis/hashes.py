"""Rows in the hashes of a Redis: what they are written as, and the commands that move many."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import redis
from numpy.typing import NDArray

from elastic.errors import UserError
from elastic.rows.base import Ids
from elastic.rows.redis.packing import CHUNK_ROWS, ids_of_fields

SCAN_ROWS: Final = 4096
NUMBER_BYTES: Final = 4


def chunks(items: Sequence[bytes]) -> list[Sequence[bytes]]:
    """What goes into one command each."""
    return [items[start : start + CHUNK_ROWS] for start in range(0, len(items), CHUNK_ROWS)]


def joined(lists: Iterable[list[bytes | None]]) -> list[bytes | None]:
    """The answers to the commands of all chunks."""
    return [row for part in lists for row in part]


def are_there(rows: Sequence[bytes | None]) -> NDArray[np.bool_]:
    """Of each answer, whether it is a row."""
    if all(rows):
        # As they mostly are, which is seen in a tenth of the time.
        return np.ones(len(rows), np.bool_)
    return np.array([row is not None for row in rows], np.bool_)


def set_fields(pipe: Any, key: str, names: Sequence[bytes], values: Sequence[bytes]) -> None:
    """Have a pipeline set these fields of a hash."""
    for some, rows in zip(chunks(names), chunks(values), strict=True):
        pairs: list[bytes] = [b""] * (2 * len(some))
        pairs[::2], pairs[1::2] = some, rows
        pipe.execute_command("HSET", key, *pairs)


def remove_fields(pipe: Any, key: str, names: Sequence[bytes]) -> None:
    """Have a pipeline remove these fields of a hash."""
    for some in chunks(names):
        pipe.execute_command("HDEL", key, *some)


def unlink(client: redis.Redis, keys: Sequence[bytes]) -> None:
    """Remove keys, of which the server frees the memory when it has time."""
    for chunk in chunks(keys):
        client.execute_command("UNLINK", *chunk)


def ids_of(client: redis.Redis, key: str) -> Ids:
    """All ids of a hash, ascending.

    Raises:
        UserError: A field is none.
    """
    try:
        names = _scanned(client, key, no_values=True)
    except redis.ResponseError:
        # Older than Redis 7.4: it tells the rows as well.
        names = _scanned(client, key)
    return np.sort(_ids(names, key))


def items_of(client: redis.Redis, key: str) -> dict[bytes, bytes]:
    """All fields of a hash, with their values."""
    return _scanned(client, key)


def parts_of(client: Any, key: str) -> Iterator[tuple[Ids, list[bytes]]]:
    """Ids and rows of a hash in parts; an id may come in several.

    Raises:
        UserError: A field is no id.
    """
    cursor = None
    while cursor != 0:
        cursor, part = client.hscan(key, cursor or 0, count=SCAN_ROWS)
        yield _ids(part, key), list(part.values())


def _ids(names: Collection[bytes], key: str) -> Ids:
    try:
        return ids_of_fields(list(names))
    except ValueError as error:
        raise UserError(
            f"key {key} has a field that is no id ({error}), which the job has not made: remove it"
        ) from error


def _scanned(client: Any, key: str, *, no_values: bool | None = None) -> dict[bytes, bytes]:
    """All fields of a hash, each once; with their values where these are told."""
    found: dict[bytes, bytes] = {}
    cursor = None
    while cursor != 0:
        cursor, part = client.hscan(key, cursor or 0, count=SCAN_ROWS, no_values=no_values)
        found |= dict.fromkeys(part, b"") if no_values else part
    return found
