"""Bears with a platform that cannot tell for a moment how things are."""

import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from elastic.errors import InfrastructureError

T = TypeVar("T")

LOST_AFTER_S: Final = 15.0
"""What nobody can tell, or decides, for so long is given up; less passes by itself."""


class LastLook(Generic[T]):
    """Looks, and gives what was seen last while the platform cannot tell."""

    def __init__(self, look: Callable[[], T], lost_after_s: float = LOST_AFTER_S) -> None:
        self._look = look
        self._lost_after_s = lost_after_s
        self._seen: tuple[T] | None = None
        self._lost_since_s: float | None = None

    def __call__(self) -> T:
        """What is to be seen now, as far as anybody can tell.

        Raises:
            InfrastructureError: The platform could not tell at the first look, or for
                `lost_after_s`.
        """
        try:
            self._seen = (self._look(),)
        except InfrastructureError:
            now_s = time.monotonic()
            if self._lost_since_s is None:
                self._lost_since_s = now_s
            if self._seen is None or now_s - self._lost_since_s >= self._lost_after_s:
                raise
        else:
            self._lost_since_s = None
        return self._seen[0]
