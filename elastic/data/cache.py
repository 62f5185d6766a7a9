"""What a process keeps of decoded data, up to a number of bytes."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

_Value = TypeVar("_Value")


class RecentlyUsed(Generic[_Value]):
    """The values used last stay, up to `max_bytes` together.

    The newest value stays even when it alone is larger: the task at hand needs it. Safe to use from
    several threads; two that miss at once both load.
    """

    def __init__(self, max_bytes: int, size_of: Callable[[_Value], int]) -> None:
        self._max_bytes = max_bytes
        self._size_of = size_of
        self._lock = threading.Lock()
        self._values: OrderedDict[Hashable, _Value] = OrderedDict()
        self._total = 0

    def get(self, key: Hashable, load: Callable[[], _Value]) -> _Value:
        """The value of a key, loaded where it is not kept."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
            newest = next(reversed(self._values.values()), None)
            # Of those before, so that they and the next one, likely as large, have room together.
            self._shrink(0 if newest is None else self._size_of(newest), least=0)
        # Or it would live on while the next one is loaded.
        del newest
        value = load()
        with self._lock:
            replaced = self._values.pop(key, None)
            self._total -= 0 if replaced is None else self._size_of(replaced)
            self._values[key] = value
            self._total += self._size_of(value)
            self._shrink(0, least=1)
        return value

    def _shrink(self, room_bytes: int, least: int) -> None:
        # Counted along: there may be thousands of them.
        while self._total + room_bytes > self._max_bytes and len(self._values) > least:
            self._total -= self._size_of(self._values.popitem(last=False)[1])
