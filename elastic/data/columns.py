"""Records as columns: what fields they have, and arrays of values, of which none becomes another.

NumPy makes doubles of whole numbers beside floating-point ones, and of signed ones of 64 bits
beside unsigned ones. Beyond 2**53 doubles lack most whole numbers: hashes and ids would change.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from elastic.errors import DataError
from elastic.policy.tasks.records import Columns

VALUE_FIELD: Final = "value"
"""What the one field of a record is called that is no dict and no tuple."""

TEXT_FIELD: Final = "text"
"""The same of a record that is text."""

Placed: TypeAlias = tuple[NDArray[np.intp], NDArray[Any]]
"""Some records' places among all, and their values of one field."""

_EXACT: Final = 2**53
"""Whole numbers beyond it are not all of double precision."""

_ALL_EXACT: Final = 2.0**53
"""Doubles have every whole number below."""
_OF_WHOLE_NUMBERS: Final = "dgDG"
"""Doubles and what is wider: NumPy puts whole numbers of more bits than a narrower type has only
there."""


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


class RoundedError(ValueError):
    """A whole number would become another one.

    Attributes:
        index: Of the array that holds it.
        number: What it is.
    """

    def __init__(self, index: int, number: int) -> None:
        super().__init__(f"{number} is no number of double precision")
        self.index = index
        self.number = number


def array_of(value: Any) -> NDArray[Any]:
    """A value as an array; where it is a list, its numbers stay what they are.

    Raises:
        RoundedError: No type has all numbers of a list.
        ValueError: The lists in a list differ in length.
    """
    return unrounded([value], [np.asarray(value)])[0]


def unrounded(values: Sequence[Any], arrays: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """The arrays that NumPy has made of values, or others where it has rounded items of a list.

    Raises:
        RoundedError: No type has all numbers of a list.
    """
    unsure = [
        index
        for index, (value, array) in enumerate(zip(values, arrays, strict=True))
        if isinstance(value, (list, tuple)) and array.dtype.char in _OF_WHOLE_NUMBERS
    ]
    result = list(arrays)
    large = [unsure[place] for place in _with_large([arrays[index] for index in unsure])]
    for index in large:
        result[index] = _made_again(index, values[index], arrays[index])
    if any(result[index].dtype.kind in "iu" for index in large):
        # Signed ones beside unsigned ones, which may be so in the other lists of the field too.
        for index in set(unsure).difference(large):
            result[index] = _made_again(index, values[index], arrays[index])
    return result


def _with_large(arrays: Sequence[NDArray[Any]]) -> list[int]:
    """Which of these hold a number that may have been another, whole one."""
    if not arrays:
        return []
    # All at once: to look at each takes three times as long as to make it.
    sizes = np.abs(np.concatenate([array.reshape(-1) for array in arrays]).real)
    places = np.flatnonzero((sizes >= _ALL_EXACT) & (sizes < np.inf))
    ends = np.cumsum([array.size for array in arrays])
    return [int(index) for index in np.unique(np.searchsorted(ends, places, side="right"))]


def _made_again(index: int, value: Any, array: NDArray[Any]) -> NDArray[Any]:
    items = np.asarray(value, object).flat
    try:
        kind = common_type([np.asarray(item) for item in items] or [array])
    except RoundedError as error:
        raise RoundedError(index, error.number) from error
    # Nothing was rounded where floating-point numbers are right, and the type is that of NumPy
    # then, as in lists without large numbers.
    return array if kind.kind in "fc" else np.asarray(value, kind)


def common_type(arrays: Sequence[NDArray[Any]]) -> np.dtype[Any]:
    """The type in which the values of all arrays, one at least, stay what they are.

    Raises:
        RoundedError: There is none for these numbers.
        TypeError: There is none for what they are, such as numbers and text.
    """
    kinds = dict.fromkeys(array.dtype for array in arrays)
    common = np.result_type(*kinds)
    if common.kind in "US" and any(kind.kind != common.kind for kind in kinds):
        raise TypeError("NumPy would make text of numbers")
    if len(kinds) == 1 or common.kind not in "fc":
        return common
    if all(kind.kind in "biu" for kind in kinds):
        return _whole_type(arrays)
    for index, array in enumerate(arrays):
        if array.dtype.kind in "iu":
            changed = array[_is_rounded(array, common)]
            if changed.size:
                raise RoundedError(index, int(changed.flat[0]))
    return common


def _whole_type(arrays: Sequence[NDArray[Any]]) -> np.dtype[Any]:
    """Of numbers that are whole, for which 64 bits may do with a sign or without one."""
    filled = [index for index, array in enumerate(arrays) if array.size]
    lowest = min((int(arrays[index].min()) for index in filled), default=0)
    highest = {index: int(arrays[index].max()) for index in filled}
    if lowest >= 0:
        return np.dtype(np.uint64)
    for index, number in highest.items():
        if number > np.iinfo(np.int64).max:
            raise RoundedError(index, number)
    return np.dtype(np.int64)


def _is_rounded(array: NDArray[Any], kind: np.dtype[Any]) -> NDArray[np.bool_]:
    rounded = array.astype(kind).real
    # What lies beyond the type of the whole numbers becomes an arbitrary one of them.
    is_inside = rounded < 2.0 ** (8 * array.dtype.itemsize - (array.dtype.kind == "i"))
    back = np.where(is_inside, rounded, 0).astype(array.dtype)
    result: NDArray[np.bool_] = ~is_inside | (back != array)
    return result
