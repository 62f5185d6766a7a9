"""The connection to a Redis: opened again while there is patience, its refusals told.

And what goes by it: commands of thousands of rows, of which the last are kept for a server that
comes back without them.
"""

import logging
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
import redis
from numpy.typing import NDArray
from redis.backoff import NoBackoff
from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    ClusterDownError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)
from redis.retry import Retry

from elastic.errors import TrainingError, UserError
from elastic.rows.base import Ids, RowsLostError, Values
from elastic.spec.values import CERTIFICATE_NAME, PASSWORD_VARIABLE, RedisAddress

log = logging.getLogger(__name__)

R = TypeVar("R")

MOVING: Final = (AskError, ClusterDownError, TryAgainError)
"""Answers of a cluster whose keys are at another of its servers, or will be at one in a moment."""

AWAY: Final = (redis.ConnectionError, redis.TimeoutError, redis.WatchError, OSError, *MOVING)
"""A connection that breaks in a transaction is one of which a key was written to, by the package's
words. Who tries again looks at that key first."""

PAUSE_S: Final = 0.1
CONNECT_S: Final = 5.0
KEEPING_POLICY: Final = "noeviction"
MAX_TOLD: Final = 300
"""Letters of an answer: it may repeat a command with thousands of rows."""


class RedisRefusesError(TrainingError):
    """Something that a Redis does not do, and will not do if it is asked again."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "EmbeddingStore")


class RedisLink:
    """Calls of one Redis, wherever it is just now. Thread-safe."""

    def __init__(
        self,
        where: Callable[[], RedisAddress | None],
        patience_s: float,
        on_away: Callable[[], None] = lambda: None,
    ) -> None:
        """Keep how to find it.

        Args:
            where: Tells its address; None while nobody knows it.
            patience_s: How long a call waits for one that is away.
            on_away: Called when it was not where it was said to be.
        """
        self._where = where
        self.patience_s = patience_s
        self._on_away = on_away
        self._lock = threading.Lock()
        self._address: RedisAddress | None = None
        self._client: redis.Redis | None = None
        self._closed = threading.Event()

    def call(self, work: Callable[[redis.Redis], R]) -> R:
        """Have `work` do what can be done twice, until an answer comes.

        Raises:
            RowsLostError: None came in time.
            UserError: It was refused, and why.
        """
        end_s = time.monotonic() + self.patience_s
        while True:
            try:
                with self._in_our_words():
                    return work(self._connected())
            except AWAY as error:
                self._forget_idle()
                self._on_away()
                if time.monotonic() >= end_s or self._closed.wait(PAUSE_S):
                    raise RowsLostError(
                        f"the Redis at {self} has not answered for {self.patience_s:g} s "
                        f"({_short(error)})"
                    ) from error

    def address(self) -> RedisAddress:
        """Where it is, once somebody tells.

        Raises:
            RowsLostError: Nobody did in time.
        """
        return self.call(lambda _: self._told())

    def close(self) -> None:
        """Drop the connections; who waits for an answer waits no more."""
        self._closed.set()
        with self._lock:
            self._drop()

    def __str__(self) -> str:
        return str(self._address or "an address that nobody has told yet")

    def _told(self) -> RedisAddress:
        address = self._where()
        if address is None:
            raise redis.ConnectionError("nobody has told where it is")
        return address

    def _connected(self) -> redis.Redis:
        address = self._told()
        with self._lock:
            if self._closed.is_set():
                # Nobody would close a connection that is opened from now on.
                raise redis.ConnectionError("the job is done with it")
            if self._client is None or address != self._address:
                self._drop()
                self._address, self._client = address, connect(address, self.patience_s)
            return self._client

    def _forget_idle(self) -> None:
        """Have the next try open a connection: those that wait are as broken as this one was."""
        with self._lock:
            if self._client is not None:
                self._client.connection_pool.disconnect(inuse_connections=False)

    def _drop(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client = None

    @contextmanager
    def _in_our_words(self) -> Iterator[None]:
        try:
            yield
        except MOVING:
            raise
        except (AuthenticationError, AuthorizationError) as error:
            is_given = self._address is not None and bool(self._address.password)
            how = f"with the password of {PASSWORD_VARIABLE}" if is_given else "without a password"
            raise UserError(
                f"the Redis at {self} refuses {self._user()} {how} "
                f"({_short(error)}): set {PASSWORD_VARIABLE}, and name the user in "
                "--embedding_redis_url"
            ) from error
        except NoPermissionError as error:
            raise UserError(
                f"the Redis at {self} forbids {self._user()} what the job needs "
                f"({_short(error)}): have its administrator allow it with `ACL SETUSER NAME "
                "~elastic:* +@all -@dangerous +info +cluster|slots`"
            ) from error
        except redis.ConnectionError as error:
            cause = error.__context__
            if not isinstance(cause, ssl.SSLCertVerificationError) or self._is_own():
                # Another job's may have the address of one of this job that is gone.
                raise
            raise UserError(
                f"the Redis at {self} shows a certificate that cannot be trusted "
                f"({_short(cause)}): name the certificates of who vouches for it by "
                "--embedding_redis_ca, and it by a name that its certificate has"
            ) from error
        except OutOfMemoryError as error:
            raise RedisRefusesError(
                f"the Redis at {self} has no room for further rows of embeddings{self._room()}: "
                "raise its maxmemory, and submit the job again with --resume"
            ) from error
        except ReadOnlyError as error:
            raise UserError(
                f"the Redis at {self} is a copy that cannot be written to: name the one that it "
                "is a copy of"
            ) from error
        except ResponseError as error:
            raise RedisRefusesError(
                f"the Redis at {self} does not do what the job needs of it ({_short(error)}): see "
                "its log"
            ) from error

    def _is_own(self) -> bool:
        return self._address is not None and bool(self._address.certificate)

    def _user(self) -> str:
        user = self._address.user if self._address is not None else ""
        return f"user {user!r}" if user else "its default user"

    def _room(self) -> str:
        assert self._client is not None, "it has just answered"
        try:
            memory: dict[str, Any] = self._client.info("memory")
        except redis.RedisError:
            return ""
        return f" ({memory['used_memory_human']} of maxmemory {memory['maxmemory_human']} are used)"


def connect(address: RedisAddress, patience_s: float) -> redis.Redis:
    """A client of a Redis, whose connections are opened as they are needed.

    Args:
        address: Of it.
        patience_s: How long an answer may take.
    """
    pool = redis.ConnectionPool(
        **_kind_of_connection(address),
        host=address.host,
        port=address.port,
        db=address.database,
        username=address.user or None,
        password=address.password or None,
        # A transaction of a large update may take long, and is worth waiting for.
        socket_timeout=patience_s,
        socket_connect_timeout=min(CONNECT_S, patience_s),
        # It is tried again here, where more than one call belongs together.
        retry=Retry(NoBackoff(), 0),
    )
    return redis.Redis.from_pool(pool)


def _kind_of_connection(address: RedisAddress) -> dict[str, Any]:
    if address.certificate:
        # Only what it is given is trusted, and not what vouches for others on this machine.
        own = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        own.load_verify_locations(cadata=address.certificate)
        return _encrypted(own, CERTIFICATE_NAME)
    if not address.is_encrypted:
        return {"connection_class": PackedConnection}
    trusted = ssl.create_default_context()
    if address.authorities:
        trusted.load_verify_locations(cadata=address.authorities)
    return _encrypted(trusted, address.host)


def _encrypted(trusted: ssl.SSLContext, name: str) -> dict[str, Any]:
    return {
        "connection_class": PackedSslConnection,
        "trusted": trusted,
        "server_name": name,
    }


def check_server(client: redis.Redis, link: RedisLink) -> None:
    """See that a Redis keeps what it is given.

    Raises:
        UserError: It may drop rows by itself.
    """
    info: dict[str, Any] = client.info()
    policy = info.get("maxmemory_policy", KEEPING_POLICY)
    if info.get("maxmemory", 0) and policy != KEEPING_POLICY:
        raise UserError(
            f"the Redis at {link} drops rows of its choice when its maxmemory of "
            f"{info['maxmemory_human']} is full (maxmemory-policy {policy}), and a row that is "
            f"dropped would begin again: set its maxmemory-policy to {KEEPING_POLICY}"
        )
    if not info.get("aof_enabled", 0):
        log.warning(
            "the Redis at %s keeps nothing on its disk as it goes (appendonly no): when it ends, "
            "the job goes back to its newest cut",
            link,
        )


def _short(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= MAX_TOLD else text[:MAX_TOLD] + " …"


# Commands of thousands of rows as they go to a Redis: made by NumPy, and not one by one.
#
# A field is an id as 16 hexadecimal digits, which people can read, and all of which have one
# length: so has a row of a table, and a command is an array with a line for each of its rows.


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


# Rows in the hashes of a Redis: what they are written as, and the commands that move many.


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


# What was written to a Redis lately, for one that comes back without the last of it.
#
# A server hands its file to the disk every second, or two where the disk is slow, and with its
# machine it loses what it has not: always the last of what it has answered, and a transaction whole
# or not at all. So it is at a stamp that was there before, and the transactions since bring it to
# where it was. They may be made again where it has them already: each leaves what it leaves.


FillTransaction: TypeAlias = Callable[[Any], None]
"""Adds the commands of a transaction."""

KEPT_S: Final = 10.0
"""After so long what a server has answered is on its disk, unless it keeps nothing there."""

KEPT_BYTES: Final = 64 << 20
"""Of rows in what all parts of a store keep together; the oldest of more is forgotten."""


@dataclass(frozen=True, slots=True)
class Written:
    """One transaction.

    Attributes:
        before: The stamp that it found.
        after: The one that it left, which may be the same.
        fill: Its commands, whose arrays do not change.
        size_bytes: About what these take.
        at_s: When it was made.
    """

    before: bytes | None
    after: bytes | None
    fill: FillTransaction
    size_bytes: int
    at_s: float


class RedoLog:
    """The last transactions, one behind the other. Thread-safe."""

    def __init__(self, max_bytes: int, now: Callable[[], float] = time.monotonic) -> None:
        """Begin with none.

        Args:
            max_bytes: Of those that are kept.
            now: Seconds.
        """
        self._max_bytes = max_bytes
        self._now = now
        self._lock = threading.Lock()
        self._kept: deque[Written] = deque()
        self._size_bytes = 0
        self._is_torn = False

    def add(
        self, before: bytes | None, after: bytes | None, fill: FillTransaction, size_bytes: int
    ) -> None:
        """Keep what was made now."""
        now_s = self._now()
        with self._lock:
            self._kept.append(Written(before, after, fill, size_bytes, now_s))
            self._size_bytes += size_bytes
            while self._size_bytes > self._max_bytes or self._kept[0].at_s < now_s - KEPT_S:
                self._forget_oldest()
                if not self._kept:
                    break

    def clear(self) -> None:
        """Begin anew: nothing is to be made again of what was written until now."""
        with self._lock:
            self._kept.clear()
            self._size_bytes, self._is_torn = 0, False

    def since(self, stamp: bytes | None) -> list[Written]:
        """What is to be made again by a server at a stamp that was there before.

        Nothing where that is longer ago, or the newest one; nor where there is no stamp at all, as
        on another disk: that is for a cut.
        """
        if stamp is None:
            return []
        with self._lock:
            kept = list(self._kept)
            is_torn = self._is_torn
        for i, written in enumerate(kept):
            if written.before == stamp:
                # Others at this stamp are forgotten, and whether the server has them nobody knows.
                return [] if i == 0 and is_torn else kept[i:]
        return []

    def _forget_oldest(self) -> None:
        written = self._kept.popleft()
        self._size_bytes -= written.size_bytes
        self._is_torn = written.before == written.after
