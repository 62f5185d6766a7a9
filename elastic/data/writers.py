"""Records as files: one function for each format that can be written.

Those of columns have the values of each field, and one array of them that changes none.
"""

import csv
import io
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from elastic.data.base import Extra, RoundedError, common_type, fields_of, unrounded
from elastic.data.formats.parquet import is_read
from elastic.data.inspection import FieldForm, form_of_rows, form_of_value, forms_of
from elastic.errors import DataError, legible

_GROUP_BYTES: Final = 8 << 20
"""A task decodes whole row groups: small ones keep it from decoding much that it does not hold."""

_IMAGE_DIMENSIONS: Final = (2, 3)
"""Of a grey one, and of one with colours."""


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


@dataclass(frozen=True, slots=True)
class Writer:
    """A format that can be written.

    Attributes:
        name: As in `--format NAME`.
        suffix: Of its files, with the dot.
        write: Writes records, one at least, into a new file; gives what its fields hold.
        extra: What it needs that may be missing.
    """

    name: str
    suffix: str
    write: Callable[[Sequence[Any], Path], dict[str, FieldForm]]
    extra: Extra | None = None


def _write_npz(records: Sequence[Any], path: Path) -> dict[str, FieldForm]:
    arrays = {}
    for name, values in columns_of(records).items():
        if isinstance(values[0], bytes):
            # NumPy cuts off the zero bytes at their end.
            raise DataError(
                f"field {name!r} holds bytes, which arrays do not keep whole: choose "
                "--format parquet"
            )
        arrays[name] = stacked(name, values)
        if arrays[name].dtype.kind == "U":
            _check_ends(name, values)
    # Not numpy.savez, for which a field cannot be called `file`.
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    return {name: form_of_rows(array) for name, array in arrays.items()}


def _check_ends(name: str, values: Sequence[Any]) -> None:
    for index, value in enumerate(values):
        if any(item.endswith("\0") for item in np.asarray(value, object).flat):
            raise DataError(
                f"record {index}: field {name!r} holds text that ends with a zero character, which "
                "arrays do not keep: choose --format parquet"
            )


def _write_csv(records: Sequence[Any], path: Path) -> dict[str, FieldForm]:
    columns = columns_of(records)
    for name, values in columns.items():
        for index, value in enumerate(values):
            form = form_of_value(value)
            if not isinstance(value, str) and (form.shape or not _is_number(form)):
                raise DataError(
                    f"record {index}: field {name!r} holds {form}, which no field of CSV can be: "
                    "choose --format npz or parquet"
                )
    # Quotes around all text keep a line end, or a lone quote, in the field that has it.
    out = io.StringIO(newline="")
    writer = csv.writer(out, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    writer.writerow(columns)
    for row in zip(*columns.values(), strict=True):
        writer.writerow([value.item() if isinstance(value, np.generic) else value for value in row])
    _write_text(path, out.getvalue(), columns)
    return forms_of(records)


def _write_text(path: Path, text: str, columns: Mapping[str, Sequence[Any]]) -> None:
    """Write a file that is made of these values."""
    try:
        path.write_text(text, "utf-8", newline="")
    except UnicodeEncodeError:
        for name, values in columns.items():
            check_unicode(name, values)
        raise


def _is_number(form: FieldForm) -> bool:
    try:
        return np.dtype(form.kind).kind in "biuf"
    except TypeError:
        return False


def _write_lines(records: Sequence[Any], path: Path) -> dict[str, FieldForm]:
    lines = []
    for index, record in enumerate(records):
        values = list(record.values()) if isinstance(record, Mapping) else [record]
        line = values[0] if len(values) == 1 else None
        if not isinstance(line, str):
            raise DataError(
                f"record {index} is a {type(record).__name__}, not one text: choose another "
                "--format, or have prepare_data yield str"
            )
        if "\n" in line or line.endswith("\r"):
            raise DataError(
                f"record {index} holds a line end, so it would become two: choose another --format"
            )
        lines.append(line)
    # Readers take one byte order mark at the begin of a file for no part of the text.
    mark = "\ufeff" if lines[0].startswith("\ufeff") else ""
    text = mark + "".join(f"{line}\n" for line in lines)
    _write_text(path, text, {next(iter(fields_of(records[0]))): lines})
    return forms_of(records)


def _write_parquet(records: Sequence[Any], path: Path) -> dict[str, FieldForm]:

    return write_parquet(columns_of(records), path)


def _write_tfrecord(records: Sequence[Any], path: Path) -> dict[str, FieldForm]:
    from elastic.data.formats.tfrecord import frame

    with path.open("wb") as file:
        for index, record in enumerate(records):
            values = list(record.values()) if isinstance(record, Mapping) else [record]
            if len(values) != 1 or not isinstance(values[0], bytes):
                raise DataError(
                    f"record {index} is a {type(record).__name__}, not one bytes object: choose "
                    "another --format, or have prepare_data yield bytes, such as serialized "
                    "tf.train.Examples"
                )
            file.write(frame(values[0]))
    return forms_of(records)


_ALL: Final = (
    Writer("npz", ".npz", _write_npz),
    Writer("parquet", ".parquet", _write_parquet, Extra("parquet", ("pyarrow",))),
    Writer("csv", ".csv", _write_csv),
    Writer("lines", ".txt", _write_lines),
    Writer("tfrecord", ".tfrecord", _write_tfrecord),
)

WRITERS: Final = {writer.name: writer for writer in _ALL}


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
