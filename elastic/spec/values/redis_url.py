"""Addresses of a Redis, as users write them: `redis://user@host:port/database`."""

import hashlib
import hmac
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

PASSWORD_VARIABLE: Final = "ELASTIC_REDIS_PASSWORD"  # noqa: S105 - the name of a variable
"""Where the password is: a job's settings are shown to whoever may see the job."""

PORT: Final = 6379
FORM: Final = "redis://[USER@]HOST[:PORT][/DATABASE], or rediss:// for TLS"


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """A Redis, and as whom to come.

    Attributes:
        user: Empty for the user that a Redis has by itself.
        password: Empty for none.
        database: Its number.
        is_encrypted: It is called by TLS.
        authorities: Certificates of who may vouch for it, as PEM; those of the system where empty.
        certificate: Where it is the job's own, the certificate that it shows, as PEM: no other is
            trusted, and this one whatever the address is.
    """

    host: str
    port: int
    user: str = ""
    password: str = ""
    database: int = 0
    is_encrypted: bool = False
    authorities: str = ""
    certificate: str = ""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}/{self.database}"


def parse_redis_url(url: str, password: str = "") -> RedisAddress:
    """Read an address.

    Args:
        url: As `FORM` says.
        password: To come with.

    Raises:
        ValueError: It has another form, or names a password.
    """
    try:
        parts = urlsplit(url)
        port = parts.port or PORT
    except ValueError as error:
        raise ValueError(_asked_for(url)) from error
    if parts.password is not None:
        # Not shown: it is the very thing that nobody shall see.
        raise ValueError(
            f"the address of the Redis holds a password: leave it out, and set {PASSWORD_VARIABLE}"
        )
    database = parts.path.removeprefix("/") or "0"
    if parts.scheme not in {"redis", "rediss"} or not parts.hostname or not _is_number(database):
        raise ValueError(_asked_for(url))
    if parts.query or parts.fragment:
        raise ValueError(f"{parts.query or parts.fragment!r} is no part of it: write {FORM}")
    return RedisAddress(
        parts.hostname,
        port,
        unquote(parts.username or ""),
        password,
        int(database),
        parts.scheme == "rediss",
    )


def own_password(token: str) -> str:
    """The password of a Redis that a job brings along, which whoever has the job's token knows."""
    return hmac.new(token.encode(), b"redis", hashlib.sha256).hexdigest()


def _asked_for(url: str) -> str:
    # Without what may be a password.
    return f"{url.rpartition('@')[2]!r} is no address of a Redis: write {FORM}"


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()
