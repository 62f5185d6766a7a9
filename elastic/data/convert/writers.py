"""Records as files: one function for each format that can be written."""

import csv
import io
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from elastic.data.convert.columns import check_unicode, columns_of, stacked
from elastic.data.extras import Extra
from elastic.data.inspection import FieldForm, fields_of, form_of_rows, form_of_value, forms_of
from elastic.errors import DataError


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
    from elastic.data.convert.parquet_writer import write_parquet

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
