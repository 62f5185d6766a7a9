"""Columns of Parquet as values of records: which types there are, and how rows of them are taken.

What a column gives depends on its type only, never on its values, so that all files of one schema
give records of one form.
"""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from elastic.data.columns import objects, texts
from elastic.errors import DataError

Rows: TypeAlias = NDArray[Any]
"""Of numbers, or of Python's objects: text, bytes, and arrays that differ in length."""


@dataclass(frozen=True, slots=True)
class ColumnForm:
    """What a column gives to a record.

    Attributes:
        dtype: Of NumPy, or None for text and bytes.
        shape: Of the array that each record has; empty for a scalar.
        is_ragged: Whether each record has its own number of arrays of `shape`.
        is_text: Without a dtype: `str`, else `bytes`.
        unit: What whole numbers that are times count, such as `timestamp[ms]`.
    """

    dtype: np.dtype[Any] | None = None
    shape: tuple[int, ...] = ()
    is_ragged: bool = False
    is_text: bool = False
    unit: str = ""

    def is_like(self, other: "ColumnForm") -> bool:
        """Whether records have the same, of whatever length where one file leaves that open.

        Arrays of which a file happens to hold equal lengths only may be written as fixed ones.
        """
        if self.is_ragged == other.is_ragged:
            return self == other
        ragged, fixed = (self, other) if self.is_ragged else (other, self)
        return (
            fixed.shape[1:] == ragged.shape
            and replace(fixed, shape=ragged.shape, is_ragged=True) == ragged
        )

    def __str__(self) -> str:
        if self.dtype is None:
            return "str" if self.is_text else "bytes"
        sizes = ("*" if self.is_ragged else None, *self.shape)
        shape = ", ".join(str(size) for size in sizes if size is not None)
        unit = f" of {self.unit}" if self.unit else ""
        return f"{self.dtype}{f' ({shape})' if shape else ''}{unit}"


class Column(Protocol):
    """One column of a row group, decoded."""

    nbytes: int
    nulls: NDArray[np.intp]
    """The rows without a value."""

    def rows(self, start: int, end: int) -> Rows:
        """The values of some rows, in memory of their own."""

    def take(self, rows: NDArray[np.intp]) -> Rows:
        """The values of some rows in any order, in memory of their own."""


class Arrays:
    """Rows of one NumPy array."""

    def __init__(self, values: NDArray[Any], nulls: NDArray[np.intp]) -> None:
        self.values = values
        self.nulls = nulls
        self.nbytes = values.nbytes

    def rows(self, start: int, end: int) -> Rows:
        return self.values[start:end].copy()

    def take(self, rows: NDArray[np.intp]) -> Rows:
        return self.values[rows]


class _RaggedArrays:
    """Rows of different lengths, one after the other in one array."""

    def __init__(
        self, values: NDArray[Any], offsets: NDArray[Any], nulls: NDArray[np.intp]
    ) -> None:
        self._values = values
        self._offsets = offsets
        self.nulls = nulls
        self.nbytes = values.nbytes + offsets.nbytes

    def rows(self, start: int, end: int) -> Rows:
        offsets = self._offsets[start : end + 1]
        values = self._values[offsets[0] : offsets[-1]].copy()
        bounds = (offsets - offsets[0]).tolist()
        return objects([values[low:high] for low, high in pairwise(bounds)])

    def take(self, rows: NDArray[np.intp]) -> Rows:
        lows, highs = self._offsets[rows].tolist(), self._offsets[rows + 1].tolist()
        bounds = zip(lows, highs, strict=True)
        return objects([self._values[low:high].copy() for low, high in bounds])


class _Objects:
    """Text or bytes; kept as Arrow keeps them, which takes a third of the memory of objects."""

    def __init__(self, array: Any, nulls: NDArray[np.intp]) -> None:
        self._array = array
        self.nulls = nulls
        self.nbytes = int(array.nbytes)

    def rows(self, start: int, end: int) -> Rows:
        return texts(self._array.slice(start, end - start).to_pylist())

    def take(self, rows: NDArray[np.intp]) -> Rows:
        return texts(self._array.take(pa.array(rows)).to_pylist())


def form_of(name: str, field: Any) -> ColumnForm:
    """What a field of a schema gives.

    Args:
        name: The file, for the error.
        field: A `pyarrow.Field`.

    Raises:
        DataError: Columns of this type are not read.
    """
    form = _form(field.type)
    if form is None:
        raise DataError(
            f"{name}: column {field.name!r} is of type {field.type}, which is no text, bytes, "
            "number or array of numbers: convert it, or name the other columns with "
            "--data_reader_params columns=[...]"
        )
    return form


def is_read(kind: Any) -> bool:
    """Whether columns of a `pyarrow.DataType` are read."""
    return _form(kind) is not None


def decode(column: Any, form: ColumnForm) -> Column:
    """Make a column of a row group ready for reading by rows.

    Args:
        column: A `pyarrow.ChunkedArray` of a type that `form_of` takes.
        form: What it gives.
    """
    array = _plain(column)
    if form.dtype is None:
        return _Objects(array, _null_places(array))
    if not form.is_ragged:
        return Arrays(*_numbers(array, form))
    offsets = array.offsets.to_numpy()
    values, missing = _numbers(array.values, form)
    missing = missing[(missing >= offsets[0]) & (missing < offsets[-1])]
    owners = np.searchsorted(offsets, missing, side="right") - 1
    return _RaggedArrays(values, offsets, np.union1d(_null_places(array), owners))


def _form(kind: Any) -> ColumnForm | None:
    if isinstance(kind, pa.FixedShapeTensorType):
        dtype = _dtype(kind.value_type)
        in_order = kind.permutation is None or list(kind.permutation) == sorted(kind.permutation)
        return ColumnForm(dtype, tuple(kind.shape)) if dtype and in_order else None
    if isinstance(kind, pa.BaseExtensionType):
        return _form(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return _form(kind.value_type)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return ColumnForm(is_text=True)
    if (
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    ):
        return ColumnForm()
    is_ragged = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    kind = kind.value_type if is_ragged else kind
    shape = []
    while pa.types.is_fixed_size_list(kind) and kind.list_size:
        shape.append(kind.list_size)
        kind = kind.value_type
    dtype = _dtype(kind)
    unit = str(kind) if pa.types.is_temporal(kind) else ""
    return None if dtype is None else ColumnForm(dtype, tuple(shape), is_ragged, unit=unit)


def _dtype(kind: Any) -> np.dtype[Any] | None:
    """The dtype of numbers and of times, which are counts of their unit; None for all else."""
    if pa.types.is_temporal(kind):
        has_value = kind.bit_width in (32, 64) and not pa.types.is_interval(kind)
        return np.dtype(f"int{kind.bit_width}") if has_value else None
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        dtype: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
        return dtype
    return None


def _plain(column: Any) -> Any:
    """One array without dictionary or extension type."""
    kind = column.type
    if column.num_chunks != 1 and (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        # Several chunks are there because together they are too large for 32-bit offsets.
        column = column.cast(pa.large_string() if pa.types.is_string(kind) else pa.large_binary())
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    while isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _numbers(array: Any, form: ColumnForm) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """The values, and the rows that lack one.

    A number that is missing is NaN among floating-point numbers, and has no value among others.
    """
    assert form.dtype is not None, "text and bytes are kept as they are"
    rows, size = len(array), 1
    missing: list[NDArray[np.intp]] = []
    while pa.types.is_fixed_size_list(array.type):
        missing.append(_null_places(array) // size)
        width = array.type.list_size
        array = array.values.slice(array.offset * width, len(array) * width)
        size *= width
    if pa.types.is_temporal(array.type):
        array = array.view(pa.from_numpy_dtype(form.dtype))
    if form.dtype.kind != "f" and array.null_count:
        missing.append(_null_places(array) // size)
        array = array.fill_null(pa.scalar(0).cast(array.type))
    values = array.to_numpy(zero_copy_only=False).reshape(rows, *form.shape)
    return values, np.unique(np.concatenate(missing)) if missing else np.empty(0, np.intp)


def _null_places(array: Any) -> NDArray[np.intp]:
    if not array.null_count:
        return np.empty(0, np.intp)
    return np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))
