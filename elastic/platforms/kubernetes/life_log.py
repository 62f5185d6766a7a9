"""The lives of a master, as the first process of its container has seen them begin and end.

A life that began and did not end has ended together with its container. No import of ours but
light ones: the process that writes it must stay small.
"""

import json
import logging
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

logger = logging.getLogger(__name__)

NAME: Final = "lives.jsonl"
OUT_OF_MEMORY: Final = "OOMKilled"
ERROR: Final = "Error"
"""Reasons, as a kubelet gives them for containers."""

MAX_WORDS: Final = 4096


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
