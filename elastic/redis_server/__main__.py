"""`python -m elastic.redis_server --job-dir DIR|--kubernetes|… --index I --launch L`: a Redis.

This process becomes the server itself, so that whatever ends the one ends the other; a child of it
tells the master where it is.
"""

import fcntl
import os
import socket
import sys
from pathlib import Path
from typing import Final

from elastic.platforms import first_process  # noqa: F401 - before what takes long
from elastic.platforms.registry import Surroundings, run_replica
from elastic.policy.replicas import ReplicaId
from elastic.redis_server.program import can_keep_environment, configuration, find_server
from elastic.spec.job import JobSpec
from elastic.spec.roles import REDIS
from elastic.spec.values import RedisAddress, own_password

LIMIT_PATH: Final = Path("/sys/fs/cgroup/memory.max")
LOOPBACK: Final = "127.0.0.1"
SHARE_OF_LIMIT: Final = 0.75
"""What rows may take of the memory that a container may have: while the server rewrites its file,
what is written to meanwhile is there twice."""


def main() -> int:
    """Serve until the job asks for the end; the reason of one before that goes into its record."""
    return run_replica(REDIS, _serve)


def _serve(_spec: JobSpec, surroundings: Surroundings, replica: ReplicaId) -> int:
    program = find_server()
    folder, password = surroundings.kept_dir(), own_password(surroundings.token())
    # Where calls are encrypted, those in clear come from this machine alone.
    is_encrypted = surroundings.certificate() is not None
    host = LOOPBACK if is_encrypted else surroundings.own_host()
    address = RedisAddress(host, _free_port(host), password=password)
    server = os.getpid()
    if os.fork() == 0:
        # Imported only here: the server needs none of it, and gRPC bears no fork.
        from elastic.redis_server.announcing import announce

        os._exit(announce(surroundings, replica, address, server))
    _take(folder)
    _give_on_input(
        configuration(
            host,
            address.port,
            address.password,
            folder,
            _max_bytes(LIMIT_PATH),
            can_keep_environment(program),
        )
    )
    os.execv(program, [program, "-"])  # noqa: S606 - a program found by its fixed name


def _take(folder: Path) -> None:
    """Wait until no server of an earlier launch has the files, and have them until the end."""
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    os.set_inheritable(descriptor, True)
    fcntl.flock(descriptor, fcntl.LOCK_EX)


def _give_on_input(text: str) -> None:
    reading, writing = os.pipe()
    # Less than a pipe holds, so that nobody has to read yet.
    os.write(writing, text.encode())
    os.close(writing)
    os.dup2(reading, 0)


def _free_port(host: str) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _max_bytes(limit_path: Path) -> int | None:
    try:
        limit = limit_path.read_text().strip()
    except OSError:
        return None
    return int(int(limit) * SHARE_OF_LIMIT) if limit.isdigit() else None


if __name__ == "__main__":
    sys.exit(main())
