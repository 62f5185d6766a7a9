"""What goes between the master and the Redis of a job that encrypts its calls."""

from dataclasses import replace

import numpy as np
import pytest
from support.overhearing import overhearing
from support.redis_servers import PASSWORD, redis_server
from support.row_store_contract import DIM, FORMS, make, numbers, rows_of, scanned

from elastic.platforms.certificates import make_certificate
from elastic.redis_server.announcing import encrypt
from elastic.rows.base import Change, RowsLostError
from elastic.rows.redis.link import RedisLink
from elastic.rows.redis.store import RedisRows

HANDSHAKE = b"\x16\x03"
"""Begins each connection by TLS, from both ends."""

CERTIFICATE = make_certificate("a" * 64)
NEVER_ELSEWHERE = 1.2345678e-30


@pytest.fixture
def server(tmp_path):
    with redis_server(tmp_path / "redis") as server:
        yield server


@pytest.fixture
def address(server):
    """Where the server is called by TLS."""
    port = encrypt("127.0.0.1", CERTIFICATE, (server.address.host, server.address.port))
    return replace(server.address, port=port, certificate=CERTIFICATE.chain)


def opened(address, patience_s=30.0):
    store = RedisRows(RedisLink(lambda: address, patience_s), "job", "run")
    store.open(FORMS)
    return store


def use(address):
    """Write rows, and read them."""
    store = opened(address)
    make(store, deep=rows_of([1], NEVER_ELSEWHERE))
    store.hold(1)
    make(store, deep=rows_of([1, 2], NEVER_ELSEWHERE))
    found = scanned(store, 1)
    store.close()
    return found


def words_of_it():
    """What nobody else is to read: whose it is, the password, a row."""
    return b"elastic:{job", PASSWORD.encode(), np.float32(NEVER_ELSEWHERE).tobytes()


def test_nothing_is_in_clear(address):
    with overhearing(address.port) as heard:
        assert list(use(replace(address, port=heard.port))) == [1]
        said = [bytes(each) for each in (*heard.by_callers, *heard.by_server)]
    assert said
    assert {each[:2] for each in said} == {HANDSHAKE}
    for word in words_of_it():
        assert word not in b"".join(said)


def test_without_tls_the_same_ears_hear_all(server):
    with overhearing(server.address.port) as heard:
        use(replace(server.address, port=heard.port))
        said = b"".join(heard.by_callers)
    assert all(word in said for word in words_of_it())


def test_many_rows_come_as_they_went(address):
    store = opened(address)
    ids = np.arange(50_000)
    change = Change(ids, np.random.default_rng(1).random((len(ids), DIM), np.float32))
    make(store, deep=change)
    assert np.array_equal(store.read("deep", ids).values, change.values)
    store.close()


def test_who_calls_in_clear_is_not_let_in(server, address):
    with pytest.raises(RowsLostError, match="Connection closed"):
        opened(replace(server.address, port=address.port), patience_s=0.1)


def test_another_certificate_is_not_trusted_and_the_right_one_is_waited_for(address):
    """Another job's may have the address of one of this job that is gone."""
    other = replace(address, certificate=make_certificate("b" * 64).chain)
    with pytest.raises(RowsLostError, match=r"not answered for 2 s .*CERTIFICATE_VERIFY_FAILED"):
        # As long as a handshake may take as well, on a machine that has other work.
        opened(other, patience_s=2.0)


def test_who_is_vouched_for_on_this_machine_is_not_trusted(server, tmp_path, monkeypatch):
    """The job's own is the one that was made for it, and no authority speaks for it."""
    other = make_certificate("b" * 64)
    (tmp_path / "authorities.pem").write_text(other.chain)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authorities.pem"))
    port = encrypt("127.0.0.1", other, (server.address.host, server.address.port))
    address = replace(server.address, port=port)
    opened(replace(address, certificate=other.chain)).close()
    with pytest.raises(RowsLostError, match="CERTIFICATE_VERIFY_FAILED"):
        opened(replace(address, certificate=CERTIFICATE.chain), patience_s=2.0)


def test_a_server_that_comes_back_is_reached_again(server, address):
    store = opened(address)
    make(store, deep=rows_of([1], 1))
    server.kill()
    server.start()
    make(store, deep=rows_of([1], 2))
    assert numbers(store, [1]) == [2]
    store.close()
