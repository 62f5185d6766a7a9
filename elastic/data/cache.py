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

    def get(self, key: Hashable, load: Callable[[], _Value]) -> _Value:
        """The value of a key, loaded where it is not kept."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        value = load()
        with self._lock:
            self._values[key] = value
            total = sum(map(self._size_of, self._values.values()))
            while total > self._max_bytes and len(self._values) > 1:
                total -= self._size_of(self._values.popitem(last=False)[1])
        return value
