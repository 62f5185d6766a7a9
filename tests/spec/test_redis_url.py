"""Addresses of a Redis as users write them."""

import pytest

from elastic.spec.values import RedisAddress, own_password, parse_redis_url


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://db", RedisAddress("db", 6379)),
        ("redis://db.example.com:7000/3", RedisAddress("db.example.com", 7000, database=3)),
        ("rediss://me@db/", RedisAddress("db", 6379, "me", is_encrypted=True)),
        ("redis://a%40b@[::1]:1", RedisAddress("::1", 1, "a@b")),
    ],
)
def test_an_address_is_read(url, expected):
    assert parse_redis_url(url) == expected


def test_it_comes_with_the_password_and_does_not_show_it():
    address = parse_redis_url("redis://me@[::1]/2", "geheim")
    assert address.password == "geheim"
    assert str(address) == "[::1]:6379/2"


@pytest.mark.parametrize(
    "url",
    [
        "db:6379",
        "http://db",
        "redis://",
        "redis://db/x",
        "redis://db/1?a=b",
        "redis://db:port",
        "redis://[::1",
    ],
)
def test_another_form_is_refused_with_the_right_one(url):
    with pytest.raises(ValueError, match="write redis://"):
        parse_redis_url(url)


def test_each_job_has_a_password_of_its_own():
    assert own_password("one") != own_password("other")
    assert "one" not in own_password("one")
