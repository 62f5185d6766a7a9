"""Records made of columns, one dict for each row."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any


@lru_cache(maxsize=64)
def record_maker(fields: tuple[str, ...]) -> Callable[..., dict[str, Any]]:
    """A function of one value for each field that gives them as a dict.

    `dict(zip(fields, values))` takes twice as long, which is most of what a record of a few small
    values costs.
    """
    keys = ", ".join(f"k{index}" for index in range(len(fields)))
    values = ", ".join(f"v{index}" for index in range(len(fields)))
    items = ", ".join(f"k{index}: v{index}" for index in range(len(fields)))
    # Nothing of the user's is in this text: the names of the fields are passed as values.
    make: Callable[..., dict[str, Any]] = eval(f"lambda {keys}: lambda {values}: {{{items}}}")(  # noqa: S307
        *fields
    )
    return make
