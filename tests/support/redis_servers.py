"""Real servers of the Redis protocol, which tests end and start again."""

import os
import shutil
import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path

import redis

from elastic.redis_server.program import configuration, find_server
from elastic.spec.values import RedisAddress
from support.local_jobs import eventually
from support.scraping import free_ports

PASSWORD = "of-a-test"
NUM_SLOTS = 16384
WRITES_AT_ONCE = ("--appendfsync", "always")
"""By everysec what was answered may be written up to 2 s later, while the disk is busy."""

CLUSTERED = [
    *("--cluster-enabled", "yes", "--masterauth", PASSWORD),
    # How long one is away until its copy takes its place, in milliseconds.
    *("--cluster-node-timeout", "1000"),
    *WRITES_AT_ONCE,
]


def lose_end(folder, share):
    """Cut off so much of what a server has written last, as its machine does that loses its power.

    The server must not write just now. What it was in the midst of it leaves out when it reads it.
    """
    written = sorted(Path(folder, "appendonlydir").glob("*.incr.aof"))
    for newest in written[-1:]:
        os.truncate(newest, round(newest.stat().st_size * (1 - share)))


class RedisServer:
    """One server at one address, with an append-only file in its folder.

    Attributes:
        address: With its password.
    """

    def __init__(self, folder, *settings, bus_port=None):
        """A server of its own, or one that speaks to others of a cluster by that port."""
        self.bus_port = bus_port
        if bus_port is not None:
            settings = (*settings, *CLUSTERED, "--cluster-port", str(bus_port))
        self.address = RedisAddress("127.0.0.1", free_ports(), password=PASSWORD)
        self._folder = Path(folder)
        self._settings = settings
        self._process = None

    def start(self):
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "log").open("ab") as told:
            self._process = subprocess.Popen(
                [find_server(), "-", *self._settings], stdin=subprocess.PIPE, stdout=told
            )
        given = configuration("127.0.0.1", self.address.port, PASSWORD, self._folder)
        self._process.stdin.write(given.encode())
        self._process.stdin.close()
        eventually(self._answers)

    def kill(self):
        """As a node's kernel does it; what it was writing stays as it is."""
        self._process.kill()
        self._process.wait()

    def lose_end(self, share):
        """Cut off so much of what it has written last."""
        lose_end(self._folder, share)

    def lose_disk(self):
        """Remove all that it has written; one of a cluster stays who it is to the others."""
        for path in sorted(self._folder.rglob("*"), reverse=True):
            if path.name == "nodes.conf":
                continue
            path.rmdir() if path.is_dir() else path.unlink()

    def keep_disk(self, folder):
        """Copy what it has written."""
        shutil.copytree(self._folder, folder)

    def have_disk(self, folder):
        """Have what was written then in place of what was written since."""
        self.lose_disk()
        shutil.copytree(folder, self._folder, dirs_exist_ok=True)

    @property
    def pid(self):
        return self._process.pid

    def pause(self):
        self._process.send_signal(signal.SIGSTOP)

    def resume(self):
        self._process.send_signal(signal.SIGCONT)

    def client(self):
        """Somebody else's connection."""
        return redis.Redis(
            self.address.host, self.address.port, password=PASSWORD, decode_responses=True
        )

    def ask(self, *command):
        """What it answers to one command."""
        with self.client() as client:
            return client.execute_command(*command)

    def _answers(self):
        try:
            with self.client() as client:
                return client.ping()
        except redis.ConnectionError:
            return False


class RedisCluster:
    """Servers that have the slots between them, as equally as those of most clusters.

    Attributes:
        servers: Each with a share of the slots; behind them, one that has a copy of each, if any.
    """

    def __init__(self, folder, num_masters=3, num_copies=0):
        self._folder = Path(folder)
        self._num_masters = num_masters
        self.servers = [self._server(i) for i in range(num_masters + num_copies)]

    def start(self):
        """Have them know each other, and agree on who has what."""
        for server in self.servers:
            server.start()
        ends = [NUM_SLOTS * i // self._num_masters for i in range(self._num_masters + 1)]
        for i, server in enumerate(self.servers[: self._num_masters]):
            server.ask("CLUSTER", "ADDSLOTSRANGE", ends[i], ends[i + 1] - 1)
        self.meet()
        for i, server in enumerate(self.servers[self._num_masters :]):
            server.ask("CLUSTER", "REPLICATE", self.servers[i].ask("CLUSTER", "MYID"))
        eventually(self.is_whole)

    def meet(self):
        first, *others = self.servers
        for i, server in enumerate(self.servers):
            server.ask("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
        for other in others:
            other.ask("CLUSTER", "MEET", "127.0.0.1", first.address.port, first.bus_port)
        eventually(lambda: all(self._knows_all(server) for server in self.servers))

    def is_whole(self):
        """Whether each server says so."""
        return all(
            "cluster_state:ok" in server.ask("CLUSTER", "INFO")
            and f"cluster_slots_ok:{NUM_SLOTS}" in server.ask("CLUSTER", "INFO")
            for server in self.servers
        )

    def server_of(self, slot):
        """Who has it, and answers for it."""
        [owner] = [
            (host, port)
            for first, last, (host, port, *_), *_ in self.servers[0].ask("CLUSTER", "SLOTS")
            if first <= slot <= last
        ]
        [server] = [each for each in self.servers if each.address.port == owner[1]]
        return server

    def begin_to_move(self, slot):
        """Have another server take a slot over; until the end each of the two has some of its keys.

        Gives the other one.
        """
        source = self.server_of(slot)
        target = next(each for each in self.servers if each is not source)
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.ask("CLUSTER", "MYID"))
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target.ask("CLUSTER", "MYID"))
        return target

    def end_move(self, slot, target):
        """Have it there."""
        source, id_ = self.server_of(slot), target.ask("CLUSTER", "MYID")
        if keys := source.ask("CLUSTER", "GETKEYSINSLOT", slot, 100):
            to = ("127.0.0.1", target.address.port, "", 0, 5000, "AUTH", PASSWORD)
            source.ask("MIGRATE", *to, "KEYS", *keys)
        for server in (target, source):
            server.ask("CLUSTER", "SETSLOT", slot, "NODE", id_)

    def _knows_all(self, server):
        nodes = server.ask("CLUSTER", "NODES").splitlines()
        return len(nodes) == len(self.servers) and not any("handshake" in node for node in nodes)

    def _server(self, index):
        return RedisServer(self._folder / str(index), bus_port=free_ports())


@contextmanager
def redis_cluster(folder, num_masters=3, num_copies=0):
    """A cluster that has been started, and ends with the block."""
    cluster = RedisCluster(folder, num_masters, num_copies)
    cluster.start()
    try:
        yield cluster
    finally:
        for server in cluster.servers:
            server.resume()
            server.kill()


@contextmanager
def redis_server(folder, *settings):
    """A server that has been started, and ends with the block."""
    server = RedisServer(folder, *settings)
    server.start()
    try:
        yield server
    finally:
        server.resume()
        server.kill()
