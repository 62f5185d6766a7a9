"""Records as a Parquet file that `parquet` reads back as they were."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from elastic.data.convert.columns import arrays_of, check_unicode, stacked_arrays, type_of
from elastic.data.formats.parquet_columns import is_read
from elastic.data.inspection import FieldForm, form_of_rows, form_of_value
from elastic.errors import DataError

_GROUP_BYTES: Final = 8 << 20
"""A task decodes whole row groups: small ones keep it from decoding much that it does not hold."""


def write_parquet(columns: Mapping[str, Sequence[Any]], path: Path) -> dict[str, FieldForm]:
    """Write one file; returns what its fields hold.

    Args:
        columns: The values of each field, as many for each.
        path: A file that is not there.

    Raises:
        DataError: Values of a field cannot be a column.
    """
    made = {name: _column(name, values) for name, values in columns.items()}
    for name, (column, form) in made.items():
        if not is_read(column.type):
            raise DataError(
                f"field {name!r} holds {form}, which no reader takes from Parquet: make one text "
                "or numbers of it in prepare_data, or give all one shape and choose --format npz"
            )
    table = pa.table({name: column for name, (column, _) in made.items()})
    rows = max(1, table.num_rows * _GROUP_BYTES // max(1, table.nbytes))
    pq.write_table(table, path, row_group_size=rows, write_page_checksum=True)
    return {name: form for name, (_, form) in made.items()}


def _check_all(name: str, values: Sequence[Any], kind: type) -> None:
    for index, value in enumerate(values):
        if not isinstance(value, kind):
            raise DataError(
                f"record {index}: field {name!r} holds {value!r}, but the first record has "
                f"{kind.__name__} there: give all records the same, with --type {name}=... or in "
                "prepare_data"
            )


def _column(name: str, values: Sequence[Any]) -> tuple[Any, FieldForm]:
    first = values[0]
    try:
        for kind, column in ((str, pa.string()), (bytes, pa.binary())):
            if isinstance(first, kind):
                _check_all(name, values, kind)
                return pa.array(values, column), FieldForm(kind.__name__)
        arrays = arrays_of(name, values)
        if {array.ndim for array in arrays} == {1}:
            lengths = set(map(len, arrays))
            if len(lengths) > 1 or lengths == {0}:
                return _lists(name, arrays)
        whole = stacked_arrays(name, values, arrays)
        return _rows(whole), form_of_rows(whole)
    # Arrow decodes the characters of NumPy.
    except (UnicodeEncodeError, UnicodeDecodeError):
        check_unicode(name, values)
        raise
    except (pa.ArrowException, TypeError) as error:
        raise DataError(
            f"field {name!r} holds {form_of_value(first)}, which is no column of Parquet "
            f"({str(error).splitlines()[0]}): convert it in prepare_data"
        ) from error


def _lists(name: str, arrays: Sequence[NDArray[Any]]) -> tuple[Any, FieldForm]:
    """A column of lists of different lengths."""
    # NumPy gives a list without items the type of doubles, which says nothing of the others.
    kind = type_of(name, [array for array in arrays if array.size] or arrays)
    lists = [array.astype(kind, copy=False) for array in arrays]
    item = pa.string() if kind.kind == "U" else pa.from_numpy_dtype(kind)
    form = replace(form_of_value(lists[0]), shape=(None,))
    return pa.array(lists, pa.list_(item)), form


def _rows(whole: NDArray[Any]) -> Any:
    """A column of the rows of an array."""
    if whole.ndim == 1:
        return pa.array(whole)
    flat = pa.array(whole.reshape(-1))
    lists = pa.FixedSizeListArray.from_arrays(flat, int(np.prod(whole.shape[1:])))
    if whole.ndim == 2:
        return lists
    kind = pa.fixed_shape_tensor(flat.type, list(whole.shape[1:]))
    return pa.ExtensionArray.from_storage(kind, lists)
