"""Requests a second, bounded on our side: a client without bounds can take an API server down."""

import threading
import time
from typing import Final

RATE: Final = 20.0
BURST: Final = 40


class Pace:
    """A token bucket: `burst` requests at once, then `rate` a second."""

    def __init__(self, rate: float = RATE, burst: int = BURST) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._lock = threading.Lock()
        self._tokens = self._burst
        self._filled_s = time.monotonic()

    def wait(self) -> None:
        """Return when the next request may go out."""
        time.sleep(self._take(time.monotonic()))

    def _take(self, now_s: float) -> float:
        """Take a token, perhaps one that is still to come; seconds until it is there."""
        with self._lock:
            gained = (now_s - self._filled_s) * self._rate
            self._tokens = min(self._burst, self._tokens + gained) - 1.0
            self._filled_s = now_s
            return max(0.0, -self._tokens / self._rate)
