"""A master that is about to be ended from outside, and may take a moment for it."""

import threading
from collections.abc import Callable


class Departure:
    """Asked for by the platform, made ready for by the master. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_asked = False
        self._on_asked: Callable[[], None] | None = None
        self._ready = threading.Event()

    def prepare(self, on_asked: Callable[[], None]) -> None:
        """Have `on_asked` called, once and on any thread; whoever prepares calls `be_ready`."""
        with self._lock:
            self._on_asked = on_asked
            is_asked = self._is_asked
        if is_asked:
            on_asked()

    def be_ready(self) -> None:
        """Nothing is lost from now on."""
        self._ready.set()

    def ask(self, timeout_s: float) -> bool:
        """Wait until nothing is lost by an end; False where that takes too long.

        A master that has not come to `prepare` has nothing to lose.
        """
        with self._lock:
            is_first, self._is_asked = not self._is_asked, True
            on_asked = self._on_asked
        if on_asked is None:
            return True
        if is_first:
            on_asked()
        return self._ready.wait(timeout_s)
