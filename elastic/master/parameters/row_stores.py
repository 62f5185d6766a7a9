"""Which store of rows a job has."""

import os
import ssl
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from elastic.errors import JobSpecError
from elastic.master.parameters.ring import ServerRing
from elastic.master.parameters.server_rows import ServerRows
from elastic.platforms.surroundings import MasterEnvironment
from elastic.rows.cached import CachedRows
from elastic.rows.memory import MemoryRows
from elastic.rows.store import RowsLostError, RowStore
from elastic.spec.job import JobSpec
from elastic.spec.kinds import JobKind
from elastic.spec.values.packages import pip_install
from elastic.spec.values.redis_url import (
    PASSWORD_VARIABLE,
    RedisAddress,
    own_password,
    parse_redis_url,
)

OF_REDIS: Final = "redis"
"""The package, and all that it is made of."""


def row_store(spec: JobSpec, env: MasterEnvironment, ring: ServerRing | None) -> RowStore:
    """The store that a job names, not opened yet.

    Args:
        spec: Of the job.
        env: Of its master.
        ring: Of the Redis that the job brings along; None where it brings none.

    Raises:
        JobSpecError: What it needs is not installed here.
    """
    if spec.kind is not JobKind.TRAIN:
        # They are read alone, so that they need no more memory than there is.
        return MemoryRows(env.recovery_dir.parent)
    if spec.embedding_store == "memory":
        return MemoryRows()
    if spec.embedding_store == "ps":
        return ServerRows()
    try:
        # Only jobs with a Redis need its package.
        from elastic.rows.redis.link import RedisLink
        from elastic.rows.redis.store import RedisRows
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != OF_REDIS:
            raise
        raise JobSpecError(
            "--embedding_store redis needs the package redis, which is not installed where the "
            f"master runs: {pip_install(OF_REDIS)}; in a cluster, the model_zoo's requirements.txt "
            "names it"
        ) from error
    link = RedisLink(_where(spec, env, ring), spec.embedding_redis_patience)
    return CachedRows(RedisRows(link, spec.job_name, env.run_id))


def never_reached(error: RowsLostError) -> JobSpecError:
    """What is told of a Redis of the user's that no master of the job has met."""
    return JobSpecError(
        f"{error}: see that it runs there and lets this machine in, and that --embedding_redis_url "
        "names it; --embedding_redis_patience is how long it is waited for"
    )


def _where(
    spec: JobSpec, env: MasterEnvironment, ring: ServerRing | None
) -> Callable[[], RedisAddress | None]:
    if ring is None:
        address = parse_redis_url(spec.embedding_redis_url, os.environ.get(PASSWORD_VARIABLE, ""))
        address = replace(address, authorities=_authorities(spec.embedding_redis_ca))
        return lambda: address
    chain = "" if env.certificate is None else env.certificate.chain
    return partial(_announced, ring, own_password(env.token), chain)


def _authorities(path: str) -> str:
    """The certificates of a file.

    Raises:
        JobSpecError: It cannot be read, or has none.
    """
    if not path:
        return ""
    try:
        text = Path(path).read_text("ascii")
        # Whoever connects would say it of the Redis.
        ssl.create_default_context(cadata=text)
    except (OSError, UnicodeDecodeError, ssl.SSLError) as error:
        raise JobSpecError(
            f"--embedding_redis_ca={path} cannot be read where the master runs ({error}): name a "
            "file with certificates as PEM"
        ) from error
    return text


def _announced(ring: ServerRing, password: str, certificate: str) -> RedisAddress | None:
    """Where the job's own Redis says that it is."""
    for life in ring.lives():
        address = parse_redis_url(f"redis://{life.address}", password)
        return replace(address, certificate=certificate)
    return None
