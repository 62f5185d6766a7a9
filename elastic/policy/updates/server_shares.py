"""Which parameter server holds what: tensors spread by their size, large ones cut by rows.

A row is an element of a tensor's first dimension, so that a cut tensor is a run of bytes on each
server, and the whole is its pieces one after the other.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

MIN_CUT_BYTES: Final = 256 << 10
"""A smaller tensor is not cut: each piece costs a message's header, and an update's call."""


@dataclass(frozen=True, slots=True)
class Sized:
    """A tensor, as far as its place depends on it."""

    name: str
    shape: tuple[int, ...]
    item_bytes: int

    @property
    def num_rows(self) -> int:
        return self.shape[0] if self.shape else 1

    @property
    def size_bytes(self) -> int:
        return math.prod(self.shape) * self.item_bytes


@dataclass(frozen=True, slots=True)
class Slice:
    """Rows [start, end) of a tensor; the whole of one without dimensions is its row 0."""

    name: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Share:
    """What one server holds, each in the order of the model."""

    parameters: tuple[Slice, ...]
    state: tuple[Slice, ...]


def spread(
    parameters: Sequence[Sized], state: Sequence[Sized], num_servers: int, *, may_cut: bool
) -> list[Share]:
    """Spread a model over servers: the same for the same model, wherever it is asked.

    A large parameter is cut into as many pieces as there are servers, so that all have the same of
    it. The other tensors go whole, the largest first, to whoever has the least.

    Args:
        parameters: That are trained, in the order of the model.
        state: That is not.
        num_servers: How many there are, > 0.
        may_cut: Whether a parameter may be cut, which the optimizer says.
    """
    loads = [0] * num_servers
    held: list[dict[str, Slice]] = [{} for _ in range(num_servers)]
    whole = []
    for tensor in parameters:
        is_large = tensor.size_bytes >= MIN_CUT_BYTES and tensor.num_rows >= num_servers
        if may_cut and is_large and num_servers > 1:
            _cut(tensor, loads, held)
        else:
            whole.append(tensor)
    # Of equal ones the first comes first.
    for tensor in sorted([*whole, *state], key=lambda each: -each.size_bytes):
        server = loads.index(min(loads))
        loads[server] += max(tensor.size_bytes, 1)
        held[server][tensor.name] = Slice(tensor.name, 0, tensor.num_rows)
    return [
        Share(
            tuple(pieces[each.name] for each in parameters if each.name in pieces),
            tuple(pieces[each.name] for each in state if each.name in pieces),
        )
        for pieces in held
    ]


def _cut(tensor: Sized, loads: list[int], held: list[dict[str, Slice]]) -> None:
    num_servers, rows = len(loads), tensor.num_rows
    row_bytes = tensor.size_bytes // rows
    for server in range(num_servers):
        start, end = rows * server // num_servers, rows * (server + 1) // num_servers
        held[server][tensor.name] = Slice(tensor.name, start, end)
        loads[server] += (end - start) * row_bytes
