"""Real servers of the Redis protocol, which tests end and start again."""

import shutil
import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path

import redis

from elastic.redis_server.program import configuration, find_server
from elastic.spec.redis_url import RedisAddress
from support.local_jobs import eventually
from support.scraping import free_ports

PASSWORD = "of-a-test"


class RedisServer:
    """One server at one address, with an append-only file in its folder.

    Attributes:
        address: With its password.
    """

    def __init__(self, folder, *settings):
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

    def lose_disk(self):
        """Remove all that it has written."""
        for path in sorted(self._folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()

    def keep_disk(self, folder):
        """Copy what it has written."""
        shutil.copytree(self._folder, folder)

    def have_disk(self, folder):
        """Have what was written then in place of what was written since."""
        self.lose_disk()
        shutil.copytree(folder, self._folder, dirs_exist_ok=True)

    def pause(self):
        self._process.send_signal(signal.SIGSTOP)

    def resume(self):
        self._process.send_signal(signal.SIGCONT)

    def client(self):
        """Somebody else's connection."""
        return redis.Redis(
            self.address.host, self.address.port, password=PASSWORD, decode_responses=True
        )

    def _answers(self):
        try:
            with self.client() as client:
                return client.ping()
        except redis.ConnectionError:
            return False


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
