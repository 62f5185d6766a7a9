"""Where a model waits for the test that runs it; `support.gate` is the test's side."""

import os
import threading
import time
from pathlib import Path

POLL_S = 0.005


class Steps:
    """Lets this worker take as many steps as a file of the gate's folder allows it.

    While it waits, a file of its own says for which step. Whoever is no worker never waits.
    """

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._num_steps = 0

    def begin(self) -> None:
        """Begin one more step, once it is allowed."""
        # A worker is a process of its own, or a thread of the test's.
        launch = os.environ.get("ELASTIC_REPLICA") or threading.current_thread().name
        if not launch.startswith("worker-"):
            return
        self._num_steps += 1
        if self._is_allowed(launch):
            return
        waits = self._folder / f"{launch}.waits"
        waits.write_text(str(self._num_steps))
        while not self._is_allowed(launch):
            time.sleep(POLL_S)
        waits.unlink()

    def _is_allowed(self, launch: str) -> bool:
        if is_open(self._folder):
            return True
        # What one launch may do goes before what all launches of its worker may.
        for name in (launch, "-".join(launch.split("-")[:2])):
            allowed = self._folder / name
            if allowed.exists():
                return self._num_steps <= int(allowed.read_text())
        return False


def wait_until_open(folder: str) -> None:
    """Wait until the test lets everybody through."""
    while not is_open(Path(folder)):
        time.sleep(POLL_S)


def is_open(folder: Path) -> bool:
    return (folder / "open").exists()
