"""Rows in a Redis of one server, or spread over a Redis Cluster.

A job's keys are in parts (`part`): one in a single server, sixteen in a cluster. Each makes a
version by a transaction of its own, with a key of its own that names it: a commit that ends midway
leaves parts at different versions, and is told by that. The job then goes back to a cut, as it does
where a single server is at another version than the books: each part by what it has kept for it.
"""

import itertools
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
import redis
from redis.crc import key_slot

from elastic.rows.base import Change, Ids, Notes, Rows, RowsLostError, TableForm
from elastic.rows.ids import Positions, spread_rows
from elastic.rows.redis.link import (
    AWAY,
    CONNECT_S,
    KEPT_BYTES,
    RedisLink,
    RedoLog,
    check_server,
    connect,
)
from elastic.rows.redis.part import RedisPart
from elastic.spec.values import RedisAddress

R = TypeVar("R")

Places: TypeAlias = Positions | slice
"""Where in an array the ids of a part stand; a slice copies nothing."""


class RedisRows:
    """A `RowStore` of a Redis, or of a Redis Cluster."""

    is_durable: Final = True

    def __init__(self, link: RedisLink, job: str, run_id: str) -> None:
        """Keep how to get there; see `open`.

        Args:
            link: To the server, or to any one of a cluster.
            job: Name of the job.
            run_id: Of its submission: a later one of the same name has rows of its own.
        """
        self._link = link
        self._name = f"{job}/{run_id}"
        self._writer = secrets.token_hex(8).encode()
        self._links: Sequence[RedisLink] = ()
        self._parts: Sequence[RedisPart] = ()
        # Has no threads before there is more than one part.
        self._pool = ThreadPoolExecutor(NUM_PARTS, thread_name_prefix="redis")
        # Held by who changes several parts, or reads the newest version of several.
        self._turn = threading.Lock()

    @property
    def version(self) -> int:
        """See `RowStore`."""
        return self._parts[0].version

    def open(self, forms: Sequence[TableForm]) -> None:
        """See `RowStore`."""
        self._find_parts()
        for link in {link.address(): link for link in self._links}.values():
            link.call(partial(check_server, link=link))
        self._at_once([partial(part.open, forms) for part in self._parts])

    def close(self) -> None:
        """See `RowStore`."""
        for link in (self._link, *self._links):
            link.close()

    def erase(self) -> None:
        """See `RowStore`."""
        self._at_once([part.erase for part in self._parts])

    @property
    def held(self) -> Sequence[int]:
        """See `RowStore`: also what only some parts still hold, so that they let go of it."""
        return sorted({version for part in self._parts for version in part.held})

    def num_rows(self, table: str) -> int:
        """See `RowStore`."""
        return sum(part.num_rows(table) for part in self._parts)

    def size_bytes(self) -> int:
        """See `RowStore`: of the numbers alone, for a server tells what it takes for all users."""
        return sum(part.size_bytes() for part in self._parts)

    # -- reading -------------------------------------------------------------------------------

    def read(self, table: str, ids: Ids, version: int | None = None) -> Rows:
        """See `RowStore`."""
        shares = [
            (part, where)
            for part, where in zip(self._parts, self._places(table, ids), strict=True)
            if len(ids[where])
        ]
        if len(shares) <= 1:
            [(part, _)] = shares or [(self._parts[0], slice(None))]
            return part.read(table, ids, version)
        with nullcontext() if version in self.held else self._between_commits():
            found = self._at_once(
                [partial(part.read, table, ids[where], version) for part, where in shares]
            )
        return _merged(len(ids), [where for _, where in shares], found)

    def scan(self, table: str, version: int) -> Iterator[Change]:
        """See `RowStore`."""
        for part in self._parts:
            yield from part.scan(table, version)

    def notes(self, table: str) -> Notes:
        """See `RowStore`: of what this process knows, without a call."""
        notes = [part.notes(table) for part in self._parts]
        if len(notes) == 1:
            return notes[0]
        return Notes(
            np.concatenate([each.ids for each in notes]),
            np.concatenate([each.numbers for each in notes]),
        )

    # -- writing -------------------------------------------------------------------------------

    def commit(
        self,
        version: int,
        changes: Mapping[str, Change],
        before: Mapping[str, Rows] | None = None,
    ) -> None:
        """See `OutsideStore`."""
        spread = self._spread(changes, before or {})
        with self._between_commits():
            self._at_once(
                [
                    partial(part.commit, version, *share)
                    for part, share in zip(self._parts, spread, strict=True)
                ]
            )

    def hold(self, version: int) -> None:
        """See `RowStore`."""
        with self._between_commits():
            self._at_once([partial(part.hold, version) for part in self._parts])

    def let_go(self, version: int) -> None:
        """See `RowStore`."""
        self._at_once([partial(part.let_go, version) for part in self._parts])

    def go_back(self, version: int) -> bool:
        """See `RowStore`."""
        with self._turn:
            self._at_once([part.look for part in self._parts])
            if not all(version in part.held for part in self._parts):
                return False
            self._at_once([partial(part.go_back, version) for part in self._parts])
        return True

    def load(self, version: int, tables: Mapping[str, Iterable[Change]]) -> None:
        """See `RowStore`."""
        with self._turn:
            self._at_once([part.begin_load for part in self._parts])
            for name, changes in tables.items():
                for change in changes:
                    self._load(name, change)
            self._at_once([partial(part.end_load, version) for part in self._parts])

    def _load(self, table: str, change: Change) -> None:
        shares = zip(self._parts, self._spread({table: change}, {}), strict=True)
        self._at_once([partial(part.load, table, share[table]) for part, (share, _) in shares])

    # -- parts ---------------------------------------------------------------------------------

    def _find_parts(self) -> None:
        if not self._link.call(is_cluster):
            self._links = [self._link]
            self._parts = [RedisPart(self._link, self._name, self._writer, RedoLog(KEPT_BYTES))]
            return
        cluster = Cluster(self._link.address())
        by_tag = {tag: cluster.link(tag, self._link.patience_s) for tag in tags(self._name)}
        self._links = list(by_tag.values())
        room = KEPT_BYTES // len(by_tag)
        self._parts = [
            RedisPart(link, tag, self._writer, RedoLog(room)) for tag, link in by_tag.items()
        ]

    def _places(self, table: str, ids: Ids) -> Sequence[Places]:
        """For each part, where its ids stand."""
        if len(self._parts) == 1:
            return [slice(None)]
        return spread_rows(table, ids, len(self._parts))

    def _spread(
        self, changes: Mapping[str, Change], before: Mapping[str, Rows]
    ) -> Sequence[tuple[dict[str, Change], dict[str, Rows]]]:
        """What each part is to make of a commit."""
        spread: list[tuple[dict[str, Change], dict[str, Rows]]] = [({}, {}) for _ in self._parts]
        for name, change in changes.items():
            places = self._places(name, change.ids), self._places(name, change.removed)
            for (share, was), ids, removed in zip(spread, *places, strict=True):
                share[name] = Change(change.ids[ids], change.values[ids], change.removed[removed])
                if name in before:
                    was[name] = Rows(before[name].values[ids], before[name].is_there[ids])
        return spread

    def _at_once(self, calls: Sequence[Callable[[], R]]) -> list[R]:
        """Make these calls side by side, and have all of them ended when one fails."""
        others = [self._pool.submit(call) for call in calls[1:]]
        try:
            return [calls[0](), *(each.result() for each in others)]
        finally:
            wait(others)

    @contextmanager
    def _between_commits(self) -> Iterator[None]:
        """All parts are at one version, and stay there."""
        with self._turn:
            self._check_whole()
            yield

    def _check_whole(self) -> None:
        versions = {part.version for part in self._parts}
        if len(versions) > 1:
            raise RowsLostError(
                f"some servers of the Redis Cluster at {self._link} have rows of version "
                f"{min(versions)}, and others those of {max(versions)}"
            )


def _merged(num_ids: int, places: Sequence[Places], found: Sequence[Rows]) -> Rows:
    """Rows in the order of their ids."""
    values = np.empty((num_ids, found[0].values.shape[1]), np.float32)
    is_there = np.empty(num_ids, np.bool_)
    for where, rows in zip(places, found, strict=True):
        values[where], is_there[where] = rows.values, rows.is_there
    return Rows(values, is_there)


# A Redis Cluster: by which keys rows are spread over all of it, and which server has which.
#
# A cluster spreads keys over 16,384 slots by what stands in braces in them, and slots over its
# servers. Keys of one transaction have to be in one slot: so a job has some slots, with a part of
# its rows in each.


NUM_PARTS: Final = 16
"""Of a job's rows: as many servers may have some. It is part of a job, as its keys are."""

NUM_SLOTS: Final = 16384


@dataclass(frozen=True, slots=True)
class _Range:
    """Slots that follow each other, and who has them."""

    first: int
    last: int
    address: RedisAddress


def is_cluster(client: redis.Redis) -> bool:
    """Whether a server is one of a cluster."""
    told: dict[str, Any] = client.info("cluster")
    return bool(told.get("cluster_enabled"))


def tags(name: str) -> list[str]:
    """What stands in the braces of a job's keys: one for each of equally many slots."""
    found: dict[int, str] = {}
    numbers = itertools.count()
    while len(found) < NUM_PARTS:
        tag = f"{name}:{next(numbers)}"
        found.setdefault(_slot(tag) * NUM_PARTS // NUM_SLOTS, tag)
    return [found[part] for part in range(NUM_PARTS)]


class Cluster:
    """Which server has which slots, as one of them tells. Thread-safe."""

    def __init__(self, address: RedisAddress) -> None:
        """Know one of its servers; users, passwords and authorities are the same for all."""
        self._lock = threading.Lock()
        self._servers: Sequence[RedisAddress] = (address,)
        self._ranges: Sequence[_Range] = ()

    def link(self, tag: str, patience_s: float) -> RedisLink:
        """Calls of whichever server has the keys with this tag just now."""
        slot = _slot(tag)
        return RedisLink(lambda: self._server_of(slot), patience_s, self._forget)

    def _server_of(self, slot: int) -> RedisAddress | None:
        with self._lock:
            ranges, servers = self._ranges, self._servers
        if not ranges:
            ranges = self._ask(servers)
        return next((each.address for each in ranges if each.first <= slot <= each.last), None)

    def _forget(self) -> None:
        """Ask again, and another one first: who was asked may have been left behind."""
        with self._lock:
            self._ranges = ()
            self._servers = [*self._servers[1:], *self._servers[:1]]

    def _ask(self, servers: Iterable[RedisAddress]) -> Sequence[_Range]:
        """What the first one tells that answers."""
        failure: BaseException | None = None
        for server in servers:
            try:
                ranges = _told_by(server)
            except AWAY as error:
                failure = error
            else:
                self._remember(ranges)
                return ranges
        assert failure is not None, "there is always one to ask"
        raise failure

    def _remember(self, ranges: Sequence[_Range]) -> None:
        with self._lock:
            self._ranges = ranges
            self._servers = list(
                dict.fromkeys([*self._servers, *(each.address for each in ranges)])
            )


def _told_by(server: RedisAddress) -> list[_Range]:
    with connect(server, CONNECT_S) as client:
        told = client.execute_command("CLUSTER", "SLOTS")
    return [
        # One that does not know its own address leaves it to who has found it.
        _Range(first, last, replace(server, host=(host or b"").decode() or server.host, port=port))
        for first, last, (host, port, *_), *_ in told
    ]


def _slot(tag: str) -> int:
    return int(key_slot(tag.encode()))
