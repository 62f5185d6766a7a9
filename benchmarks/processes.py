"""Processes that a benchmark starts, and that end with it."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

ROOT: Final = Path(__file__).parents[1]


class Server:
    """A program that says in one line of JSON when it is ready, and ends when its input does."""

    def __init__(self, module: str, *arguments: object) -> None:
        self._command = [sys.executable, "-m", module, *map(str, arguments)]
        self._process: subprocess.Popen[str] | None = None
        self._ready: dict[str, Any] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process is not None
        self._process.communicate(timeout=60)

    @property
    def ready(self) -> dict[str, Any]:
        """What the program said; waits for it."""
        if self._ready is None:
            assert self._process is not None
            assert self._process.stdout is not None
            line = self._process.stdout.readline()
            if not line:
                raise RuntimeError(f"{' '.join(self._command)} ended before it was ready")
            self._ready = json.loads(line)
        return self._ready

    def cpu_s(self) -> float:
        """Processor time of all its threads so far, to the nanosecond where the kernel tells."""
        assert self._process is not None
        total_ns = 0
        for path in Path(f"/proc/{self._process.pid}/task").iterdir():
            # Threads may end while they are looked at.
            with suppress(FileNotFoundError, ProcessLookupError):
                total_ns += int((path / "schedstat").read_text().split()[0])
        return total_ns / 1e9


def announce(**facts: object) -> None:
    """Say, as a `Server`, that this process is ready."""
    print(json.dumps(facts), flush=True)


def run_json(command: Sequence[object], environment: Mapping[str, str] | None = None) -> Any:
    """Run a Python program to its end and parse the last line that it prints.

    Raises:
        RuntimeError: It failed; the message has its standard error.
    """
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        env={**os.environ, **(environment or {})},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{command} exited with {done.returncode}:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])
