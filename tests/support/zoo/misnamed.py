"""The obedient model, whose failing records are in files of names that are no UTF-8."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import obedient
from obedient import *  # noqa: F403 - the rest of the module is that one's
from torch import Tensor

NAME = b"caf\xe9.png".decode("utf-8", "surrogateescape")


def dataset_fn(dataset: Iterable[Mapping[str, Any]], mode: str) -> Iterator[tuple[Tensor, Tensor]]:
    """Fail as opening such a file does."""
    try:
        yield from obedient.dataset_fn(dataset, mode)
    except ValueError as error:
        raise OSError(f"cannot open {NAME}") from error
