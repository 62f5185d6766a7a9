"""The servers that are there: which process has which place, and whether it still has."""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from elastic.policy.liveness import HEARTBEAT_LIMIT_S, STALL_S
from elastic.policy.replicas import ReplicaId

K = TypeVar("K")

MAX_HANGS: Final = 3
"""So often the servers may fail to bring one version about, and the job fails."""


@dataclass(frozen=True, slots=True)
class ServerLife:
    """One process that serves.

    Attributes:
        life: Of this process alone: one launch may come again with an empty memory.
        address: `host:port`.
    """

    replica: ReplicaId
    life: str
    address: str


class ServerRing:
    """The places of a job's servers of one role. On the event loop.

    A server says every two seconds that it is there, as a worker does, and is given as long.

    Attributes:
        changed: Set when a server comes or goes; whoever waits clears it first.
    """

    def __init__(
        self,
        num_servers: int,
        set_up_s: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin without any server.

        Args:
            num_servers: How many places there are.
            set_up_s: What a server that runs may take until it says so.
            clock: Tells the time.
        """
        self.num_servers = num_servers
        self.changed = asyncio.Event()
        self._set_up_s = set_up_s
        self._clock = clock
        self._running_s: dict[ReplicaId, float] = {}
        self._lives: dict[int, ServerLife] = {}
        self._heard_s: dict[int, float] = {}
        self._hangs: Counter[int] = Counter()
        self._hung: set[ReplicaId] = set()
        self._fenced: set[ReplicaId] = set()
        self._last_look_s: float | None = None

    def announced(self, life: ServerLife) -> None:
        """A server is there, or says so before it ends."""
        index = life.replica.index
        if life.replica in self._fenced:
            return
        self._heard_s[index] = self._clock()
        if self._lives.get(index) != life:
            self._lives[index] = life
            self.changed.set()

    def gone(self, replica: ReplicaId) -> None:
        """A launch of a server has ended, be it one that has a place or not."""
        there = self._lives.get(replica.index)
        self._hung.discard(replica)
        if there is not None and there.replica == replica:
            del self._lives[replica.index]
            del self._heard_s[replica.index]
            self.changed.set()

    def fence(self, replica: ReplicaId) -> None:
        """This launch is about to be ended, and serves no more whatever it says."""
        self._fenced.add(replica)
        self.gone(replica)

    def has(self, lives: Sequence[ServerLife]) -> bool:
        """Whether all of these processes still have their places."""
        return all(self._lives.get(each.replica.index) == each for each in lives)

    def lives(self) -> list[ServerLife]:
        """The servers that are there."""
        return list(self._lives.values())

    def missing(self) -> list[int]:
        """Indices of the servers that are not there."""
        return [index for index in range(self.num_servers) if index not in self._lives]

    async def complete(self) -> list[ServerLife]:
        """Wait until all servers are there."""
        while self.missing():
            self.changed.clear()
            await self.changed.wait()
        return [self._lives[index] for index in range(self.num_servers)]

    async def change_of(self, lives: Sequence[ServerLife]) -> None:
        """Wait until one of these has lost its place."""
        while self.has(lives):
            self.changed.clear()
            await self.changed.wait()

    def hangs(self, life: ServerLife, version: int) -> bool:
        """A server does not bring a version about, and is to be replaced.

        Returns:
            Whether that has happened too often for the servers to be at fault.
        """
        self._hung.add(life.replica)
        self._hangs[version] += 1
        return self._hangs[version] >= MAX_HANGS

    def to_replace(self, running: Collection[ReplicaId] = ()) -> list[tuple[ReplicaId, str]]:
        """The servers that hang, and how that shows; to be asked at least every second.

        Args:
            running: The launches that run, as their platform sees them.
        """
        now_s = self._clock()
        self._forgive_stall(now_s)
        known = {life.replica for life in self._lives.values()} | self._fenced
        self._running_s = {
            each: self._running_s.get(each, now_s) for each in running if each not in known
        }
        found = [
            (each, f"hung in set-up: no word of it within start_timeout={self._set_up_s:g} s")
            for each, since_s in self._running_s.items()
            if now_s - since_s > self._set_up_s
        ]
        for index, life in self._lives.items():
            silent_s = now_s - self._heard_s[index]
            if life.replica in self._hung:
                found.append((life.replica, "did not answer in time"))
            elif silent_s > HEARTBEAT_LIMIT_S:
                found.append((life.replica, f"gave no sign of life for {silent_s:.1f} s"))
        return found

    def _forgive_stall(self, now_s: float) -> None:
        """Not count the time in which the master could not have heard anybody."""
        if self._last_look_s is not None and (stalled_s := now_s - self._last_look_s) > STALL_S:
            self._heard_s = _later(self._heard_s, stalled_s, now_s)
            self._running_s = _later(self._running_s, stalled_s, now_s)
        self._last_look_s = now_s


def _later(times_s: Mapping[K, float], by_s: float, now_s: float) -> dict[K, float]:
    return {key: min(now_s, at_s + by_s) for key, at_s in times_s.items()}
