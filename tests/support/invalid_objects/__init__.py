"""Objects that no kind can take: a module for each kind, all of the same form.

Each module has `VALID`, an object with which nothing is wrong, `ROWS`: what is changed in it, and
what people are told then, `SPEC`: the type of its spec, and `read`: how its kind reads an object. A
module that is added here is found by the tests, and so is a field that no row is about.
"""

import copy
import importlib
import pkgutil
import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from elastic.controller.resources.common import Fields


class _Gone:
    def __repr__(self):
        # Part of tests' names, which every process has to find the same.
        return "gone"


GONE = _Gone()
"""In place of a value: the field is left out."""


@dataclass(frozen=True)
class Row:
    """One object that is wrong.

    Attributes:
        path: Of the field, with dots; numbers are places in a list.
        value: What stands there, or `GONE`.
        told: What the message that names the field has to contain; the value itself by default.
        field: What messages call the field, where that is not `path`; the value need not be told.
    """

    path: str
    value: Any
    told: str = ""
    field: str = ""

    @property
    def names(self) -> str:
        """The field that a message has to name."""
        return self.field or self.path


def changed(valid: dict, row: Row) -> dict:
    """The valid object with the row's change."""
    wrong = copy.deepcopy(valid)
    *way, last = row.path.split(".")
    holder: Any = wrong
    for part in way:
        holder = holder[int(part)] if isinstance(holder, list) else holder.setdefault(part, {})
    if row.value is GONE:
        del holder[last]
    elif isinstance(holder, list):
        holder[int(last)] = row.value
    else:
        holder[last] = row.value
    return wrong


def field_paths(model: type[Fields], at: str = "spec") -> Iterator[str]:
    """Of all fields of a spec and of those within them, as rows name them."""
    yield at
    for name, info in model.model_fields.items():
        path = f"{at}.{info.alias or name}"
        inner = next(_models_in(info.annotation), None)
        if inner is None:
            yield path
        elif typing.get_origin(info.annotation) in (list, tuple):
            yield from (path, *field_paths(inner, f"{path}.0"))
        else:
            yield from field_paths(inner, path)


def _models_in(annotation: Any) -> Iterator[type[Fields]]:
    if isinstance(annotation, type) and issubclass(annotation, Fields):
        yield annotation
    for part in typing.get_args(annotation):
        yield from _models_in(part)


def untested(spec: type[Fields], rows: Sequence[Row]) -> list[str]:
    """Fields of a spec that no row is about, neither as a whole nor in a part of it."""
    there = {path for row in rows for path in (row.path, row.names)}
    return [
        path
        for path in field_paths(spec)
        if not any(each == path or each.startswith(f"{path}.") for each in there)
    ]


def kinds() -> list[ModuleType]:
    """The module of every kind that has one."""
    return [
        importlib.import_module(f"{__name__}.{found.name}")
        for found in pkgutil.iter_modules(__path__)
    ]
