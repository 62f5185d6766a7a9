"""A Redis Cluster: by which keys rows are spread over all of it, and which server has which.

A cluster spreads keys over 16,384 slots by what stands in braces in them, and slots over its
servers. Keys of one transaction have to be in one slot: so a job has some slots, with a part of its
rows in each.
"""

import itertools
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import redis
from redis.crc import key_slot

from elastic.rows.redis.link import AWAY, CONNECT_S, RedisLink, connect
from elastic.spec.values.redis_url import RedisAddress

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
