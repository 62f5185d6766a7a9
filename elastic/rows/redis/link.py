"""The connection to a Redis: opened again while there is patience, its refusals told."""

import logging
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import redis
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
from elastic.rows.redis.packing import PackedConnection, PackedSslConnection
from elastic.rows.store import RowsLostError
from elastic.spec.certificate import CERTIFICATE_NAME
from elastic.spec.values.redis_url import PASSWORD_VARIABLE, RedisAddress

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
