"""Records as columns: what fields they have, and how arrays of some become those of all."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from elastic.errors import DataError
from elastic.policy.records import Columns

VALUE_FIELD: Final = "value"
"""What the one field of a record is called that is no dict and no tuple."""

TEXT_FIELD: Final = "text"
"""The same of a record that is text."""

Placed: TypeAlias = tuple[NDArray[np.intp], NDArray[Any]]
"""Some records' places among all, and their values of one field."""

_EXACT: Final = 2**53
"""Whole numbers beyond it are not all of double precision."""


def fields_of(record: Any) -> Mapping[str, Any]:
    """A record as a dict: tuples have the fields `c0`, `c1`, …, everything else has one."""
    if isinstance(record, Mapping):
        return record
    if isinstance(record, tuple):
        return dict(zip(unnamed(len(record)), record, strict=True))
    return {TEXT_FIELD if isinstance(record, str) else VALUE_FIELD: record}


def unnamed(count: int) -> tuple[str, ...]:
    """What fields are called to which nobody gave a name."""
    return tuple(f"c{index}" for index in range(count))


def objects(values: Sequence[Any]) -> NDArray[Any]:
    """An array of one dimension that holds values as they are, be they arrays themselves."""
    array = np.empty(len(values), object)
    for index, value in enumerate(values):
        array[index] = value
    return array


def texts(values: Sequence[str] | Sequence[bytes]) -> NDArray[Any]:
    """The same of text or bytes alone, which NumPy takes all at once."""
    array = np.empty(len(values), object)
    array[:] = values
    return array


def columns_of(records: Sequence[Any]) -> Columns:
    """Records as columns, where their source has none: a minibatch, of the user's reader say.

    Raises:
        DataError: A record has other fields than the first one, or a number would be rounded.
    """
    rows = [fields_of(record) for record in records]
    names = list(rows[0]) if rows else []
    for row in rows:
        if row.keys() != rows[0].keys():
            raise DataError(
                f"a record has the fields {', '.join(map(str, row))}, but the first one of its "
                f"minibatch has {', '.join(map(str, names))}: columns need all of them in each "
                "record"
            )
    arrays = {name: _column(name, [row[name] for row in rows]) for name in names}
    return Columns(arrays, len(rows))


def _column(name: str, values: list[Any]) -> NDArray[Any]:
    """The values of a field: an array of numbers, or of Python objects where they are none."""
    if any(type(value) in (str, bytes) for value in values):
        # NumPy's own text has a fixed length, and bytes lose zeros at their end.
        return objects(values)
    try:
        array = np.asarray(values)
    except ValueError:
        # Of different shapes.
        return objects([np.asarray(value) for value in values])
    if array.dtype.kind == "f" and array.ndim == 1:
        for value in values:
            if isinstance(value, int) and abs(value) > _EXACT:
                raise DataError(
                    f"field {name!r} holds {value} and floating-point numbers, which would round "
                    "it: give the field one type in all records"
                )
    return array


def joined(parts: Sequence[Columns]) -> Columns:
    """Records that follow each other; the part itself where it is the only one."""
    if len(parts) == 1:
        return parts[0]
    arrays = {
        name: _concatenated([part.arrays[name] for part in parts]) for name in parts[0].arrays
    }
    return Columns(arrays, sum(map(len, parts)))


def placed(parts: Sequence[Placed], num_rows: int) -> NDArray[Any]:
    """Values of one field that came from several places, each where it belongs."""
    _, first = parts[0]
    if _are_alike([values for _, values in parts]):
        dtype = np.result_type(*(values.dtype for _, values in parts))
        together = np.empty((num_rows, *first.shape[1:]), dtype)
    else:
        together = np.empty(num_rows, object)
        parts = [(places, objects(list(values))) for places, values in parts]
    for places, values in parts:
        together[places] = values
    return together


def _concatenated(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    if _are_alike(arrays):
        return np.concatenate(arrays)
    return np.concatenate([objects(list(array)) for array in arrays])


def _are_alike(arrays: Sequence[NDArray[Any]]) -> bool:
    """Whether all have rows of one shape; lists of one length are arrays in one file of several."""
    forms = {(array.shape[1:], array.dtype.hasobject) for array in arrays}
    return len(forms) == 1
