"""Shows event files with TensorBoard: in the command line's process, and as a pod's program.

`python -m elastic.telemetry.board --logdir DIR --port N [--master HOST:PORT]`
"""

import argparse
import os
import resource
import signal
import socket
import sys
import threading
import time
import types
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from elastic.errors import ElasticError, JobSpecError
from elastic.telemetry.event_log import MISSING

LINGER_S: Final = 3600.0
"""How long a board in a cluster can be looked at when the master of its job is gone."""

LOOK_S: Final = 30.0
CONNECT_S: Final = 5.0
MAX_DATA_BYTES: Final = 512 << 20
"""Beside a master: a board that grows beyond ends, and not what shares its container's memory."""

STACK_BYTES: Final = 1 << 20
_WORST_VICTIM: Final = "1000"


class Board:
    """A TensorBoard server in threads of this process."""

    def __init__(self, log_dir: Path, host: str, port: int) -> None:
        """Keep the parts.

        Args:
            log_dir: Where the event files are, or will be.
            host: Address to listen at; empty for all there are, of whichever family.
            port: 0 takes a free one.
        """
        self._log_dir = log_dir
        self._host = host
        self._port = port

    def start(self) -> str:
        """Begin to serve; returns the address for a browser.

        Raises:
            JobSpecError: The port is in use, or tensorboard is not installed.
        """
        # What TensorBoard's own build without TensorFlow has: with it, it does not import
        # TensorFlow, which takes ten seconds and 300 MB and adds nothing to scalars and texts.
        sys.modules.setdefault("tensorboard.compat.notf", types.ModuleType("notf"))
        try:
            from tensorboard import default, program
        except ImportError as error:
            raise JobSpecError(MISSING.partition(",")[0]) from error
        self._check_port()
        server = program.TensorBoard(plugins=default.get_plugins())
        where = f"--host={self._host}" if self._host else "--bind_all"
        # The default reader is a process and a package of its own.
        how = ("--load_fast=false", "--reload_interval=5")
        server.configure(
            ["tensorboard", f"--logdir={self._log_dir}", where, f"--port={self._port}", *how]
        )
        try:
            address: str = server.launch()
        except (program.TensorBoardServerException, OSError) as error:
            raise self._unusable(error) from error
        return address

    def _check_port(self) -> None:
        """TensorBoard itself would take another port than the one that was asked for."""
        if not self._port:
            return
        try:
            with socket.create_server((self._host, self._port)):
                pass
        except OSError as error:
            raise self._unusable(error) from error

    def _unusable(self, error: Exception) -> JobSpecError:
        # `socket` puts the address into its text, which is told already.
        number = error.errno if isinstance(error, OSError) else None
        why = str(error) if number is None else os.strerror(number)
        return JobSpecError(
            f"--port {self._port} cannot be listened at: {why}: choose another, or 0 for a free one"
        )


def main() -> int:
    """Serve until told to end, or until the master has been gone for long."""
    parser = argparse.ArgumentParser(prog="elastic.telemetry.board")
    parser.add_argument("--logdir", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--master", default="", help="host:port; without it, serve for ever")
    parser.add_argument("--beside-master", action="store_true")
    arguments = parser.parse_args()
    # The first process of a container ignores signals that it has no handler for.
    signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))
    if arguments.beside_master:
        _be_modest()
    try:
        address = Board(arguments.logdir, "", arguments.port).start()
    except ElasticError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"TensorBoard of {arguments.logdir} at {address}\n")
    sys.stdout.flush()
    if not arguments.master:
        threading.Event().wait()
    stay_while(lambda: is_listening(arguments.master), time.monotonic, time.sleep)
    sys.stdout.write(f"the master has been gone for {LINGER_S / 60:.0f} minutes: ends\n")
    return 0


def stay_while(
    is_heard: Callable[[], bool], now_s: Callable[[], float], sleep: Callable[[float], None]
) -> None:
    """Return once nothing has been heard for `LINGER_S`.

    Args:
        is_heard: Asked every `LOOK_S`.
        now_s: The clock.
        sleep: Waits by that clock.
    """
    last_s = now_s()
    while now_s() - last_s < LINGER_S:
        sleep(LOOK_S)
        if is_heard():
            last_s = now_s()


def is_listening(address: str) -> bool:
    """Whether anybody takes connections at `host:port`."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=CONNECT_S):
            return True
    except OSError:
        return False


def _be_modest() -> None:
    """Take no time and no memory that the master needs."""
    os.nice(10)
    # Stacks and the buffers of linear algebra, one for each thread, count as data.
    threading.stack_size(STACK_BYTES)
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_DATA_BYTES, MAX_DATA_BYTES))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_WORST_VICTIM, encoding="ascii")


if __name__ == "__main__":
    sys.exit(main())
