"""Every store of rows does what the others do."""

import contextlib
import secrets
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from support.redis_servers import redis_cluster, redis_server
from support.row_store_contract import DIM, FORMS, RowStoreContract, RowStoreMachine, rows_of

from elastic.rows import cached
from elastic.rows.cached import CachedRows, WouldWaitError
from elastic.rows.memory import MemoryRows
from elastic.rows.redis.link import RedisLink
from elastic.rows.redis.store import RedisRows


class InMemory:
    def opened(self, forms=FORMS):
        store = MemoryRows()
        store.open(forms)
        return store


class InFiles:
    def __init__(self, folder):
        self._folder = folder

    def opened(self, forms=FORMS):
        store = MemoryRows(self._folder)
        store.open(forms)
        return store


class InRedis:
    """Each store is another job's."""

    def __init__(self, server):
        self._server = server

    def opened(self, forms=FORMS):
        link = RedisLink(lambda: self._server.address, 5.0)
        store = RedisRows(link, "job", secrets.token_hex(6))
        store.open(forms)
        return store


class InRedisCached(InRedis):
    """What is in the server is behind what was committed, and most of it is forgotten again."""

    def opened(self, forms=FORMS):
        link = RedisLink(lambda: self._server.address, 5.0)
        store = CachedRows(RedisRows(link, "job", secrets.token_hex(6)))
        store.open(forms)
        return store


class Hurried(CachedRows):
    """What can be had at once is, as a master has it."""

    def read(self, *asked):
        with contextlib.suppress(WouldWaitError), self.at_once():
            return super().read(*asked)
        return super().read(*asked)

    def commit(self, *change):
        with contextlib.suppress(WouldWaitError), self.at_once():
            return super().commit(*change)
        return super().commit(*change)


class InRedisHurried(InRedis):
    def opened(self, forms=FORMS):
        link = RedisLink(lambda: self._server.address, 5.0)
        store = Hurried(RedisRows(link, "job", secrets.token_hex(6)))
        store.open(forms)
        return store


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(scope="module")
def one_of_a_cluster(tmp_path_factory):
    with redis_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster.servers[0]


class TestMemory(RowStoreContract):
    @pytest.fixture
    def harness(self):
        return InMemory()


class TestFiles(RowStoreContract):
    @pytest.fixture
    def harness(self, tmp_path):
        return InFiles(tmp_path)


class TestRedis(RowStoreContract):
    @pytest.fixture
    def harness(self, server):
        return InRedis(server)


class TestRedisCluster(RowStoreContract):
    """Rows are spread over three servers."""

    @pytest.fixture
    def harness(self, one_of_a_cluster):
        return InRedis(one_of_a_cluster)


class TestCached(RowStoreContract):
    @pytest.fixture
    def harness(self, server):
        return InRedisCached(server)


class TestHurried(RowStoreContract):
    @pytest.fixture
    def harness(self, server):
        return InRedisHurried(server)


@pytest.mark.usefixtures("_forgets")
class TestForgetful(TestCached):
    """The cache remembers no more than the last calls."""

    @pytest.fixture
    def _forgets(self, monkeypatch):
        monkeypatch.setattr(cached, "CACHE_BYTES", 0)


class MemoryMachine(RowStoreMachine):
    def open_store(self):
        return InMemory().opened()


class FileMachine(RowStoreMachine):
    """The one folder of all schedules is set by the test."""

    folder: Path

    def open_store(self):
        return InFiles(self.folder).opened()


class TestFileSchedules(FileMachine.TestCase):
    settings = settings(deadline=None, stateful_step_count=40)

    @pytest.fixture(autouse=True)
    def _given_folder(self, tmp_path):
        FileMachine.folder = tmp_path


class RedisMachine(RowStoreMachine):
    """The one server of all schedules is set by the test."""

    harness: InRedis

    def open_store(self):
        return self.harness.opened()

    def teardown(self):
        self.store.erase()
        self.store.close()


TestMemorySchedules = MemoryMachine.TestCase
TestMemorySchedules.settings = settings(deadline=None, stateful_step_count=40)


class CachedMachine(RedisMachine):
    """Few rows are remembered, so that most are forgotten and read again."""


class TestCachedSchedules(CachedMachine.TestCase):
    settings = settings(deadline=None, stateful_step_count=30, max_examples=30)

    @pytest.fixture(autouse=True)
    def _given_server(self, server, monkeypatch):
        monkeypatch.setattr(cached, "CACHE_BYTES", 4 * len(FORMS) * 4 * DIM)
        CachedMachine.harness = InRedisCached(server)


class HurriedMachine(RedisMachine):
    """Some of what is asked for is had at once, and some is not."""


class TestHurriedSchedules(HurriedMachine.TestCase):
    settings = settings(deadline=None, stateful_step_count=30, max_examples=30)

    @pytest.fixture(autouse=True)
    def _given_server(self, server, monkeypatch):
        monkeypatch.setattr(cached, "CACHE_BYTES", 16 * len(FORMS) * 4 * DIM)
        HurriedMachine.harness = InRedisHurried(server)


class TestRedisSchedules(RedisMachine.TestCase):
    settings = settings(deadline=None, stateful_step_count=30, max_examples=30)

    @pytest.fixture(autouse=True)
    def _given_server(self, server):
        RedisMachine.harness = InRedis(server)


class ClusterMachine(RedisMachine):
    """Few ids are in many parts, so that most have none of a commit."""


class TestClusterSchedules(ClusterMachine.TestCase):
    settings = settings(deadline=None, stateful_step_count=30, max_examples=15)

    @pytest.fixture(autouse=True)
    def _given_cluster(self, one_of_a_cluster):
        ClusterMachine.harness = InRedis(one_of_a_cluster)


def test_possible_ids_that_never_come_take_nothing():
    """Of 10⁸, of which one in a thousand comes: what counts is how many do."""
    store = InMemory().opened()
    ids = np.arange(0, 10**8, 1000)
    store.load(0, {"deep": (rows_of(part, 1) for part in np.array_split(ids, 50))})
    # Arrays are twice as long as they need be, at most; memory that nobody touches is not there.
    assert store.size_bytes() <= len(ids) * 2 * (4 * DIM + 8 + 1 + 4 * 8)
