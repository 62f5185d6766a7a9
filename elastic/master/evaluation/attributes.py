"""The plain attributes of a callback as JSON values, and back as they were.

What JSON cannot hold is written as a dict of one tagged key.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from enum import Enum
from types import MemberDescriptorType
from typing import Any, Final

import numpy as np

_TUPLE: Final = "$tuple"
_ITEMS: Final = "$items"


def plain_attributes(thing: Any) -> dict[str, Any]:
    """Copies of the attributes that are plain values, by name, as JSON."""
    packed = {}
    for name, value in _attributes(thing):
        # What holds itself has no end.
        with suppress(TypeError, RecursionError):
            packed[name] = _pack(dict(value) if isinstance(value, dict) else value)
    return packed


def set_attributes(thing: Any, packed: Mapping[str, Any]) -> None:
    """Undo `plain_attributes`."""
    present = dict(_attributes(thing))
    for name, value in packed.items():
        setattr(thing, name, _in_form_of(present.get(name), _unpack(value)))


def _attributes(thing: Any) -> Iterator[tuple[str, Any]]:
    yield from getattr(thing, "__dict__", {}).items()
    for kind in type(thing).__mro__:
        # Classes written in C have members of their own, which nobody sets.
        for name, slot in vars(kind).items() if "__slots__" in vars(kind) else ():
            if isinstance(slot, MemberDescriptorType):
                with suppress(AttributeError):  # nothing has been assigned to it
                    yield name, slot.__get__(thing)


def _pack(value: Any) -> Any:
    """A copy as JSON.

    Raises:
        TypeError: It is something else, or holds it.
    """
    match value:
        case None | bool():
            return value
        case str():
            return str.__str__(value)
        case int():
            return int(value)
        case float():
            return float(value)
    # Of other classes a copy would lack what makes them others.
    if type(value) is list:
        return [_pack(each) for each in value]
    if type(value) is tuple:
        return {_TUPLE: [_pack(each) for each in value]}
    if type(value) is not dict:
        return _number(value)
    if all(type(key) is str and not key.startswith("$") for key in value):
        return {key: _pack(each) for key, each in value.items()}
    return {_ITEMS: [[_pack(key), _pack(each)] for key, each in value.items()]}


def _unpack(value: Any) -> Any:
    match value:
        case list():
            return [_unpack(each) for each in value]
        case {"$tuple": values}:
            return tuple(_unpack(each) for each in values)
        case {"$items": items}:
            return {_unpack(key): _unpack(each) for key, each in items}
        case dict():
            return {key: _unpack(each) for key, each in value.items()}
    return value


def _number(value: Any) -> bool | int | float:
    """What a NumPy value, tensor or variable without dimensions holds.

    Raises:
        TypeError: It is none of these, or holds something else.
    """
    if not hasattr(value, "dtype") or getattr(value, "shape", None) != ():
        raise TypeError
    try:
        # TensorFlow's own conversion to an array knows no bfloat16.
        if not hasattr(value, "item"):
            value = np.asarray(value.numpy() if hasattr(value, "numpy") else value)
        number = value.item()
        number = float(number) if hasattr(number, "dtype") else number
    except Exception as error:
        # Each framework has its own way to refuse, one that is symbolic or uninitialized.
        raise TypeError from error
    if not isinstance(number, bool | int | float):
        raise TypeError
    return number


def _in_form_of(present: Any, value: Any) -> Any:
    """A value for the place of another, whose class a snapshot does not tell."""
    if hasattr(present, "assign") and isinstance(value, bool | int | float):
        # A variable: the optimizer's, perhaps, or called by its methods.
        present.assign(value)
        return present
    if isinstance(present, dict) and type(present) is not dict and isinstance(value, dict):
        # A defaultdict, say, that the hooks count on.
        present.clear()
        present.update(value)
        return present
    with suppress(ValueError):
        return type(present)(value) if isinstance(present, Enum) else value
    return value
