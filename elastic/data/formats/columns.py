"""What formats of columns share: rows made of columns, and how many columns a process keeps."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from functools import lru_cache
from typing import Any, Generic, TypeVar

from elastic.policy.records import Columns

_Value = TypeVar("_Value")

RecordMaker = Callable[..., Iterator[dict[str, Any]]]
"""Of one column for each field: the rows as dicts, made as they are asked for."""


@lru_cache(maxsize=64)
def record_maker(fields: tuple[str, ...]) -> RecordMaker:
    """A function of one column for each field that gives the rows as dicts.

    A dict display within one generator: a call for each row costs a sixth more, and
    `dict(zip(fields, values))` twice as much, which is most of what a record of a few small values
    costs.
    """
    indices = range(len(fields))
    keys = ", ".join(f"k{index}" for index in indices)
    columns = ", ".join(f"c{index}" for index in indices)
    values = "".join(f"v{index}, " for index in indices)
    items = ", ".join(f"k{index}: v{index}" for index in indices)
    # Nothing of the user's is in this text: the names of the fields are passed as values.
    make: RecordMaker = eval(  # noqa: S307
        f"lambda {keys}: lambda {columns}: ({{{items}}} for {values} in zip({columns}))"
    )(*fields)
    return make


def made_records(columns: Columns) -> Iterator[dict[str, Any]]:
    """Columns as records."""
    return record_maker(tuple(columns.arrays))(*columns.arrays.values())


class RecentlyUsed(Generic[_Value]):
    """The values used last stay, up to `max_bytes` together.

    The newest value stays even when it alone is larger: the task at hand needs it. Safe to use from
    several threads; two that miss at once both load. `cachetools` refuses such a value, and makes
    room for one only when it has been loaded: it and what it replaces are in memory at once.
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
