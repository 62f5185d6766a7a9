"""Records as columns: the values of each field, and one array of them that changes none."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from elastic.data.columns import fields_of
from elastic.data.exact import RoundedError, common_type, unrounded
from elastic.data.inspection import form_of_value
from elastic.errors import DataError, legible

_IMAGE_DIMENSIONS: Final = (2, 3)
"""Of a grey one, and of one with colours."""


def columns_of(records: Sequence[Any]) -> dict[str, list[Any]]:
    """The values of each field.

    Raises:
        DataError: A record has other fields than the first one, or one whose name is no text.
    """
    rows = [fields_of(record) for record in records]
    names = list(rows[0])
    for name in names:
        if not isinstance(name, str) or legible(name) != name:
            raise DataError(
                f"record 0: the name of the field {name!r} is no text: name it otherwise in "
                "prepare_data"
            )
    for index, row in enumerate(rows):
        if row.keys() != rows[0].keys():
            raise DataError(
                f"record {index} has the fields {', '.join(map(str, row))}, but the first one has "
                f"{', '.join(names)}: give all records the same fields"
            )
    return {name: [row[name] for row in rows] for name in names}


def arrays_of(name: str, values: Sequence[Any]) -> list[NDArray[Any]]:
    """The values of a field as one array each.

    Raises:
        DataError: A list among them can be none without changing its items.
    """
    arrays: list[NDArray[Any]] = []
    for index, value in enumerate(values):
        try:
            arrays.append(np.asarray(value))
        except ValueError as error:
            raise DataError(
                f"record {index}: field {name!r} holds lists of different lengths in a list, which "
                "are no array: make one list of them in prepare_data"
            ) from error
    try:
        arrays = unrounded(values, arrays)
    except RoundedError as error:
        raise _rounded(name, error.index, error.number) from error
    _check_text(name, values, arrays)
    _check_bytes(name, arrays)
    return arrays


def type_of(name: str, arrays: Sequence[NDArray[Any]]) -> np.dtype[Any]:
    """The type that all values of a field can have.

    Raises:
        DataError: A number would become another one, or some are no numbers.
    """
    try:
        return common_type(arrays)
    except RoundedError as error:
        raise _rounded(name, error.index, error.number) from error
    except TypeError as error:
        found = ", ".join(dict.fromkeys(str(array.dtype) for array in arrays))
        raise DataError(
            f"field {name!r} holds {found}, which no type has together: make it the same in all "
            "records in prepare_data"
        ) from error


def _rounded(name: str, index: int, number: int) -> DataError:
    return DataError(
        f"record {index}: field {name!r} holds {number}, which would be rounded, since no type has "
        f"it and the other numbers: give all one type, with --type {name}=... or in prepare_data"
    )


def stacked(name: str, values: Sequence[Any]) -> NDArray[Any]:
    """The values of a field as one array, none of them changed.

    Raises:
        DataError: They differ in shape, are no numbers, text or arrays of them, or no type has all.
    """
    return stacked_arrays(name, values, arrays_of(name, values))


def stacked_arrays(
    name: str, values: Sequence[Any], arrays: Sequence[NDArray[Any]]
) -> NDArray[Any]:
    """The same, where the values have been made arrays already."""
    for index, array in enumerate(arrays):
        if array.shape != arrays[0].shape:
            raise DataError(
                f"record {index}: field {name!r} has the shape {array.shape}, but the first record "
                f"has {arrays[0].shape}: {_ways_out(arrays)}"
            )
    whole = np.stack(arrays, dtype=type_of(name, arrays), casting="unsafe")
    if whole.dtype.hasobject:
        raise DataError(
            f"field {name!r} holds {form_of_value(values[0]).kind}, which is no number, text or "
            "array: convert it in prepare_data"
        )
    return whole


def _ways_out(arrays: Sequence[NDArray[Any]]) -> str:
    """What to do about arrays of different shapes: Parquet has lists of numbers of any length."""
    if any(array.dtype.kind not in "biuf" for array in arrays):
        return "give all one shape"
    if all(array.ndim == 1 for array in arrays):
        return "give all one shape, or choose --format parquet"
    if all(array.dtype == np.uint8 and array.ndim in _IMAGE_DIMENSIONS for array in arrays):
        return "give all one shape, images of a folder with --data_reader_params size=64"
    return "give all one shape, or make them of one dimension and choose --format parquet"


def _check_text(name: str, values: Sequence[Any], arrays: Sequence[NDArray[Any]]) -> None:
    """Refuse what NumPy would change without a word: it makes text of numbers among text."""
    if all(array.dtype.kind != "U" for array in arrays):
        return
    for index, value in enumerate(values):
        for item in np.asarray(value, object).flat:
            if not isinstance(item, str):
                raise DataError(
                    f"record {index}: field {name!r} holds {item!r} among text: make all of it "
                    "text, or all of it numbers, in prepare_data"
                )


def _check_bytes(name: str, arrays: Sequence[NDArray[Any]]) -> None:
    for index, array in enumerate(arrays):
        if array.dtype.kind == "S":
            raise DataError(
                f"record {index}: field {name!r} holds bytes in a list or among other values, "
                "where NumPy cuts off zero bytes at their end: give each record one bytes object "
                "and choose --format parquet, or make numbers of them in prepare_data"
            )


def check_unicode(name: str, values: Sequence[Any]) -> None:
    """Name the value that cannot be written as UTF-8; asked once that has failed.

    Raises:
        DataError: There is one.
    """
    for index, value in enumerate(values):
        for item in np.asarray(value, object).flat:
            if isinstance(item, str) and legible(item) != item:
                raise DataError(
                    f"record {index}: field {name!r} holds {item!r}, which is no text that can be "
                    "encoded: decode it with the encoding that it has, or with errors='replace'"
                )
