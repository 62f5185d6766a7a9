"""The first process of the master's container: starts the master, and again when it has ended.

`python -m elastic.platforms.kubernetes.supervisor STATE_DIR TERMINATION_LOG PROGRAM…`

The kubelet lets a container wait longer from one restart to the next (10 s, 20 s, … 5 min); a
process can be started again at once. What follows an end is decided by the next life of the master,
which finds here how the one before has ended; a supervisor decides nothing, so that it stays small
and nothing can end it but what ends the container: no import of ours but light ones. A life that
began and did not end has ended together with its container.

Pods name this module, and their images may hold another version of elastic: it stays here.
"""

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final

from elastic.platforms.process import count_kills, own_counter, start_logging

logger = logging.getLogger(__name__)

NAME: Final = "lives.jsonl"
OUT_OF_MEMORY: Final = "OOMKilled"
ERROR: Final = "Error"
"""Reasons, as a kubelet gives them for containers."""

MAX_WORDS: Final = 4096

MAX_PRINTED: Final = 2048
"""Of a log, as much as the kubelet would keep of a container that has left no last words."""

ACCOUNT_NAME: Final = "masters.json"
"""Written by each life of a master when it has looked how those before it have ended, before its
work."""
MAX_UNCOUNTED: Final = 10
"""Lives in a row that did not come so far, after which the kubelet is left to wait and try: it
tells people of a container, and not of a process. More than a job may have crashes, so that a
master that is killed at its beginning by chance is no such case."""

_READ_BYTES: Final = 65536
_LEFT_S: Final = 5.0
"""For what the program had started to be gone, and with it the last that holds its output."""

_PASSED_ON: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Life:
    """One life of a master.

    Attributes:
        number: From 0, over all containers.
        container: Tells those of one container from those of others.
        terminated: How it ended, in the form in which a kubelet tells it of a container; None of
            one that goes on, or has ended with its container.
        ended_s: When, in seconds since the epoch; None where that is not known.
    """

    number: int
    container: str
    terminated: dict[str, Any] | None = None
    ended_s: float | None = None


class LifeLog:
    """One line for each beginning and each end, in a folder that outlives the container."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._container = f"{time.time_ns()}"

    def begin(self) -> None:
        """Write down that a life begins."""
        self._append({"began": self._container})

    def end(self, exit_code: int, is_memory: bool, words: str) -> None:
        """Write down how the life that began last has ended.

        Args:
            exit_code: As a shell tells it: 128 and the number of the signal that ended it.
            is_memory: Whether the kernel ended it for memory.
            words: What it said last.
        """
        self._append(
            {
                "exitCode": exit_code,
                "reason": OUT_OF_MEMORY if is_memory else ERROR,
                "message": words[-MAX_WORDS:],
                "ended_s": time.time(),
            }
        )

    def read(self) -> list[Life]:
        """All lives so far, oldest first; the present one is the last."""
        lives: list[Life] = []
        for entry in self._entries():
            if "began" in entry:
                lives.append(Life(len(lives), str(entry["began"])))
            elif lives and lives[-1].terminated is None:
                ended_s = entry.pop("ended_s", None)
                last = lives[-1]
                lives[-1] = Life(last.number, last.container, entry, ended_s)
        return lives

    def counted_ns(self) -> int:
        """When a life last counted those before it; 0 where none has."""
        with suppress(OSError):
            return (self._path.parent / ACCOUNT_NAME).stat().st_mtime_ns
        return 0

    def _entries(self) -> Iterator[dict[str, Any]]:
        with suppress(FileNotFoundError):
            for line in self._path.read_text(encoding="utf-8", errors="replace").splitlines():
                # One that the container's end, or a full disk, has cut off.
                with suppress(json.JSONDecodeError):
                    yield json.loads(line)

    def _append(self, entry: dict[str, Any]) -> None:
        try:
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                # Begins with the end of a line, so that one cut off before spoils only itself.
                os.write(file, f"\n{json.dumps(entry)}".encode())
            finally:
                os.close(file)
        except OSError as error:
            # A full disk: the master matters more than the record of its lives.
            logger.warning("cannot write %s: %s", self._path, error.strerror)


class Supervisor:
    """Runs one program until it ends well, or somebody asks for an end."""

    def __init__(self, program: Sequence[str], log: LifeLog, words_path: Path) -> None:
        """Keep the parts.

        Args:
            program: The command to run.
            log: Where its lives are written down.
            words_path: Where the program writes why it ends.
        """
        self._program = program
        self._log = log
        self._words_path = words_path
        self._counter = own_counter()
        self._child: subprocess.Popen[bytes] | None = None
        self._asked_by: int | None = None
        self._printed = b""

    def run(self) -> int:
        """Returns the exit code of the container."""
        for number in _PASSED_ON:
            signal.signal(number, self._pass_on)
        num_uncounted = 0
        while True:
            counted_ns = self._log.counted_ns()
            code = self._live()
            num_uncounted = num_uncounted + 1 if self._log.counted_ns() == counted_ns else 0
            if code == 0 or self._asked_by is not None or num_uncounted == MAX_UNCOUNTED:
                return code
            logger.warning("the program ended with exit code %d and is started again", code)

    def _live(self) -> int:
        """One life of the program; returns how a shell would tell its end."""
        with suppress(OSError):
            # The last words of the life before are in the log of lives.
            os.truncate(self._words_path, 0)
        self._printed = b""
        self._log.begin()
        kills = count_kills(self._counter)
        child = self._child = subprocess.Popen(
            self._program,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert child.stdout is not None
        copying = threading.Thread(target=self._copy, args=(child.stdout.fileno(),), daemon=True)
        copying.start()
        if self._asked_by is not None:
            # It was asked for before there was a child to pass it on to.
            self._pass_on(self._asked_by, None)
        code = _wait_for(child.pid)
        self._child = None
        child.returncode = code
        _end_what_is_left(child.pid)
        copying.join(_LEFT_S)
        told = code if code >= 0 else 128 - code
        is_memory = code == -signal.SIGKILL and count_kills(self._counter) > kills
        self._log.end(told, is_memory, self._words() or self._log_end(code))
        return told

    def _pass_on(self, number: int, _frame: FrameType | None) -> None:
        self._asked_by = number
        if self._child is not None:
            with suppress(ProcessLookupError):
                os.kill(self._child.pid, number)

    def _copy(self, source: int) -> None:
        while chunk := os.read(source, _READ_BYTES):
            self._printed = (self._printed + chunk)[-MAX_PRINTED:]
            rest = memoryview(chunk)
            while rest:
                rest = rest[os.write(sys.stdout.fileno(), rest) :]

    def _words(self) -> str:
        with suppress(OSError):
            return self._words_path.read_text(encoding="utf-8", errors="replace")
        return ""

    def _log_end(self, code: int) -> str:
        return self._printed.decode(errors="replace") if code else ""


def _wait_for(child: int) -> int:
    """Wait for one process, and bury all others meanwhile: theirs is the first of the container."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == child:
            return os.waitstatus_to_exitcode(status)


def _end_what_is_left(session: int) -> None:
    """End what the program had started: the next life starts its own, on the same ports."""
    with suppress(ProcessLookupError, PermissionError):
        if os.getpid() == 1:
            # All there is but this one; in a pod that shares its processes it is not the first.
            os.kill(-1, signal.SIGKILL)
        else:
            os.killpg(session, signal.SIGKILL)


def main() -> int:
    """Run the program of the command line."""
    start_logging("INFO")
    state_dir, words_path, *program = sys.argv[1:]
    return Supervisor(program, LifeLog(Path(state_dir)), Path(words_path)).run()


if __name__ == "__main__":
    sys.exit(main())
