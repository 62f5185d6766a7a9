"""Addresses of a Redis, as users write them: `redis://user@host:port/database`."""

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
    """

    host: str
    port: int
    user: str = ""
    password: str = ""
    database: int = 0
    is_encrypted: bool = False

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
    parts = urlsplit(url)
    if parts.password is not None:
        # Not shown: it is the very thing that nobody shall see.
        raise ValueError(
            f"the address of the Redis holds a password: leave it out, and set {PASSWORD_VARIABLE}"
        )
    database = parts.path.removeprefix("/") or "0"
    if parts.scheme not in {"redis", "rediss"} or not parts.hostname or not _is_number(database):
        raise ValueError(f"{url!r} is no address of a Redis: write {FORM}")
    if parts.query or parts.fragment:
        raise ValueError(f"{url!r} says more than where a Redis is: write {FORM}")
    return RedisAddress(
        parts.hostname,
        parts.port or PORT,
        unquote(parts.username or ""),
        password,
        int(database),
        parts.scheme == "rediss",
    )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()
