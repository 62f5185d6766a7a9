"""Fields of text as columns of numbers: what type a column has, and the numbers of its fields.

A number is what Python takes for one, but for underscores. What Arrow reads, several times as fast,
are the same numbers: whatever it refuses is looked at here, and named here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from elastic.data.columns import texts
from elastic.errors import DataError
from elastic.policy.records import Columns
from elastic.spec.names import nearest

Kind: TypeAlias = "np.dtype[Any] | None"
"""Of a column: a dtype of numbers, or None for text."""

ALL_COLUMNS: Final = "*"
TYPED_ROWS: Final = 1000
"""Rows of the first file that tell what its columns hold, at most."""

_WHOLE: Final = np.dtype(np.int64)
_REAL: Final = np.dtype(np.float64)


@dataclass(frozen=True, slots=True)
class BadFieldError(Exception):
    """A field is no number of its column's type.

    Attributes:
        row: Which of the rows.
        name: Of the column.
        text: What stands there.
        kind: What should.
    """

    row: int
    name: str
    text: str
    kind: np.dtype[Any]

    def __str__(self) -> str:
        what = f"holds {self.text!r}, which is no {self.kind}" if self.text.strip() else "is empty"
        kind = "float64" if _can_be(_real, self.text) else "str"
        return (
            f"column {self.name!r} {what}, as its other fields are: mend the row, or say what the "
            f"column holds with --data_reader_params 'types={{{self.name}: {kind}}}'"
        )


def inferred(names: Sequence[str], rows: Sequence[Sequence[str]]) -> dict[str, Kind]:
    """What columns hold: whole numbers, numbers some of which may be missing, or text.

    Whole numbers that begin with a zero, as codes do, are text.
    """
    # A row with another number of fields is an error of who reads it.
    whole = [row for row in rows if len(row) == len(names)]
    return {name: _inferred([row[at] for row in whole]) for at, name in enumerate(names)}


def chosen(found: Mapping[str, Kind], declared: Mapping[str, Kind], where: str) -> dict[str, Kind]:
    """The types that somebody has declared, and the inferred ones of the other columns.

    Raises:
        DataError: A column is declared that is not there.
    """
    for name in declared:
        if name not in found and name != ALL_COLUMNS:
            near = nearest(name, found)
            raise DataError(
                f"{where} has no column {name!r}, which --data_reader_params types names: "
                f"{f'did you mean {near}? ' if near else ''}(it has {', '.join(found)})"
            )
    return {
        name: declared.get(name, declared.get(ALL_COLUMNS, kind)) for name, kind in found.items()
    }


def typed_columns(kinds: Mapping[str, Kind], rows: Sequence[Sequence[str]]) -> Columns:
    """Rows of as many fields as there are columns, as columns.

    Raises:
        BadFieldError: One is none of its column's type; the first such row.
    """
    arrays: dict[str, NDArray[Any]] = {}
    bad: list[BadFieldError] = []
    columns = list(zip(*rows, strict=True)) or [()] * len(kinds)
    for (name, kind), fields in zip(kinds.items(), columns, strict=True):
        if kind is None:
            arrays[name] = texts(fields)
            continue
        converted = _converted(fields, kind)
        if converted is None:
            row = next(at for at, field in enumerate(fields) if not _is_of(kind, field))
            bad.append(BadFieldError(row, name, fields[row], kind))
        else:
            arrays[name] = converted
    if bad:
        raise min(bad, key=lambda error: error.row)
    return Columns(arrays, len(rows))


def narrowed(numbers: NDArray[Any], kind: np.dtype[Any]) -> NDArray[Any]:
    """A copy in a type that may be narrower: what is too large for it is infinite."""
    with np.errstate(over="ignore"):
        return numbers.astype(kind)


def _inferred(fields: Sequence[str]) -> Kind:
    told = [field for field in fields if field.strip()]
    if not told or not all(_can_be(_real, field) for field in told):
        return None
    if not all(_is_of(_WHOLE, field) for field in told):
        return _REAL
    if any(_is_code(field) for field in told):
        return None
    return _WHOLE if len(told) == len(fields) else _REAL


def _is_code(field: str) -> bool:
    digits = field.strip().lstrip("+-")
    return len(digits) > 1 and digits.startswith("0")


def _converted(fields: Sequence[str], kind: np.dtype[Any]) -> NDArray[Any] | None:
    """The numbers of a column; None where one is not of its type."""
    if any("_" in field for field in fields):
        return None
    try:
        if kind.kind == "f":
            return narrowed(np.array(list(map(_real, fields)), _REAL), kind)
        numbers = list(map(int, fields))
    except ValueError:
        return None
    limits = np.iinfo(kind)
    if numbers and not limits.min <= min(numbers) <= max(numbers) <= limits.max:
        return None
    return np.array(numbers, kind)


def _real(field: str) -> float:
    try:
        return float(field)
    except ValueError:
        # Missing.
        if not field.strip():
            return float("nan")
        raise


def _is_of(kind: np.dtype[Any], field: str) -> bool:
    return _converted([field], kind) is not None


def _can_be(number: Callable[[str], float], field: str) -> bool:
    try:
        number(field)
    except ValueError:
        return False
    return "_" not in field
