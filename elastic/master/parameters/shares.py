"""A whole model as the shares of servers, and back, and so its optimizer's state."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from elastic.frameworks.base import Array, Tensors, UpdaterState
from elastic.policy.updates.server_shares import Share, Sized, Slice
from elastic.rpc.layout import Layout

SLOTS: Final = "slots"
"""What an optimizer keeps of each parameter, by name, where that is no tensor."""


def sized(layout: Layout) -> list[Sized]:
    """Tensors, as `spread` takes them."""
    return [Sized(each.name, each.shape, each.numpy_dtype.itemsize) for each in layout.specs]


def described(layout: Layout) -> Tensors:
    """Arrays of a layout's shapes and dtypes, without memory."""
    return {
        spec.name: np.broadcast_to(np.zeros((), spec.numpy_dtype), spec.shape)
        for spec in layout.specs
    }


def cut_out(slices: Sequence[Slice], arrays: Mapping[str, Array]) -> Tensors:
    """The pieces of a share, as views."""
    return {each.name: piece(arrays[each.name], each) for each in slices}


def piece(array: Array, rows: Slice) -> Array:
    """Some rows of a tensor, as a view; the whole of one without dimensions."""
    return array[rows.start : rows.end] if array.ndim else array


def share_of_optimizer(
    share: Share, whole: Mapping[str, Array], state: UpdaterState
) -> UpdaterState:
    """What a server needs of an optimizer's state: of its own parameters, and of none.

    Args:
        share: The server's.
        whole: The model's trained parameters, or others of their shapes.
        state: Of the optimizer over all of them.
    """
    owners = Owners(whole)
    own = {each.name: each for each in share.parameters}
    tensors: Tensors = {}
    for name, array in state.tensors.items():
        owner = owners.of(name)
        if owner is None:
            tensors[name] = array
        elif owner in own:
            # A slot of the parameter's shape has a number for each of its own.
            is_alike = array.ndim > 0 and array.shape == whole[owner].shape
            tensors[name] = piece(array, own[owner]) if is_alike else array
    values = dict(state.values)
    if SLOTS in values:
        values[SLOTS] = {name: slot for name, slot in values[SLOTS].items() if name in own}
    return UpdaterState(tensors, values)


def joined(
    names: Sequence[str], shares: Sequence[Sequence[Slice]], parts: Sequence[Mapping[str, Array]]
) -> Tensors:
    """The whole of tensors that are spread over servers.

    Args:
        names: In the order of the model.
        shares: What each server has of them.
        parts: Its values.
    """
    pieces: dict[str, list[tuple[int, Array]]] = {}
    for share, arrays in zip(shares, parts, strict=True):
        for each in share:
            pieces.setdefault(each.name, []).append((each.start, arrays[each.name]))
    return {name: _whole(pieces[name]) for name in names}


def joined_optimizer(
    whole: Mapping[str, Array], shares: Sequence[Share], states: Sequence[UpdaterState]
) -> UpdaterState:
    """The state of the optimizer over all parameters, from those of the servers.

    Args:
        whole: The model's trained parameters, or others of their shapes.
        shares: What each server has.
        states: Of its optimizer.
    """
    owners = Owners(whole)
    found: dict[str, list[tuple[int, Array]]] = {}
    for share, state in zip(shares, states, strict=True):
        own = {each.name: each for each in share.parameters}
        for name, array in state.tensors.items():
            owner = owners.of(name)
            rows = None if owner is None else own.get(owner)
            is_piece = (
                rows is not None
                and array.ndim > 0
                and array.shape == piece(whole[rows.name], rows).shape
            )
            if is_piece and rows is not None:
                found.setdefault(name, []).append((rows.start, array))
            else:
                # The same on all servers, as a count of steps.
                found.setdefault(name, [(0, array)])
    values = dict(states[0].values)
    if SLOTS in values:
        slots: dict[str, Any] = {}
        for state in states:
            slots |= {name: slot for name, slot in state.values[SLOTS].items() if name in whole}
        others = {name: each for name, each in values[SLOTS].items() if name not in whole}
        values[SLOTS] = {name: slots[name] for name in whole if name in slots} | others
    return UpdaterState({name: _whole(pieces) for name, pieces in found.items()}, values)


class Owners:
    """Says of which parameter a tensor of an optimizer is, by its name: `fc.weight/exp_avg`."""

    def __init__(self, parameters: Mapping[str, Array]) -> None:
        self._parameters = parameters

    def of(self, name: str) -> str | None:
        """The parameter with the longest name that fits; None for what belongs to none."""
        at = name.rfind("/")
        while at > 0:
            if name[:at] in self._parameters:
                return name[:at]
            at = name.rfind("/", 0, at)
        return None


def _whole(pieces: Sequence[tuple[int, Array]]) -> Array:
    if len(pieces) == 1:
        return pieces[0][1]
    return np.concatenate([array for _, array in sorted(pieces, key=lambda each: each[0])])
