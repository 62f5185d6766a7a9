"""Tables of embeddings beside an exported model, for programs of any kind to read.

`NAME.rows/TABLE.parquet` has the columns `id` and `row`, a list of float32; where pyarrow is not
installed it is `TABLE.npz` with arrays of these names. Rows that nobody has changed are not there.
"""

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote
from zipfile import BadZipFile

import numpy as np

from elastic.checkpoints.rows import CutRows
from elastic.errors import CheckpointError
from elastic.rows.base import Table, Values
from elastic.rows.precision import unpacked
from elastic.rows.store import Change, TableForm

PARQUET: Final = ".parquet"
NPZ: Final = ".npz"

# An export and changes of it have the same columns: what a file is stands in its metadata.
_MARK: Final = (b"elastic", b"changes")


def rows_folder(export: Path) -> Path:
    """Where the tables of an exported model are."""
    return export.with_name(f"{export.name}.rows")


def writes_parquet() -> bool:
    """Whether Parquet can be written here."""
    return find_spec("pyarrow") is not None


def export_tables(export: Path, rows: CutRows, check: Callable[[], None]) -> Path:
    """Write the tables of a model beside it, without optimizer slots; gives their folder.

    Args:
        export: What was written of the model.
        rows: All rows.
        check: Called right before the folder can be seen; what it raises goes on to the caller.

    Raises:
        OSError: The disk is full, or not writable.
    """
    folder = rows_folder(export)
    suffix = PARQUET if writes_parquet() else NPZ
    write = write_parquet if writes_parquet() else _write_npz
    with Replaced(folder) as temporary:
        for form in (form for form in rows.forms if form.table.dim):
            write(temporary / file_name(form.table, suffix), values_of(form.table, rows))
        check()
    return folder


class Replaced:
    """A folder that takes the place of another when all has gone well.

    The other one is set aside before it is removed, so that it is whole, under one name or
    another, until the new one is there. Where its name is a link, the link stays.
    """

    def __init__(self, folder: Path) -> None:
        # A link cannot be replaced by a folder, and `.` has no name of its own.
        self._folder = folder.resolve()
        self._temporary = self._folder.with_name(f".{self._folder.name}.begun")
        self._before = self._folder.with_name(f".{self._folder.name}.before")

    def __enter__(self) -> Path:
        shutil.rmtree(self._temporary, ignore_errors=True)
        self._temporary.mkdir(parents=True)
        return self._temporary

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._replace()
        finally:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def _replace(self) -> None:
        shutil.rmtree(self._before, ignore_errors=True)
        if self._folder.exists():
            self._folder.rename(self._before)
        self._temporary.rename(self._folder)
        shutil.rmtree(self._before, ignore_errors=True)


def exported_tables(export: Path, tables: Sequence[Table]) -> CutRows:
    """The tables beside an exported model, none of which is read before it is asked for.

    Raises:
        CheckpointError: One is missing.
    """
    paths = {table.name: _path_of(rows_folder(export), table) for table in tables}
    dims = {table.name: table.dim for table in tables}
    forms = tuple(TableForm(replace(table, row_dtype="float32")) for table in tables)

    def scan(name: str) -> Iterator[Change]:
        return _read(paths[name], dims[name])

    return CutRows(forms, scan)


def file_name(table: Table, suffix: str) -> str:
    """Of a table's file."""
    return quote(table.name, safe="") + suffix


def _path_of(folder: Path, table: Table) -> Path:
    for suffix in (PARQUET, NPZ):
        path = folder / file_name(table, suffix)
        if path.exists():
            return path
    raise CheckpointError(
        f"the rows of table {table.name!r} are missing: {folder / file_name(table, PARQUET)} was "
        "written with the model, and belongs beside it"
    )


def values_of(table: Table, rows: CutRows) -> Iterator[Change]:
    """All rows of a table as float32, without their slots."""
    stored = next(form.table for form in rows.forms if form.table.name == table.name)
    for part in rows.scan(table.name):
        yield Change(part.ids, unpacked(stored, part.values))


def write_changes(path: Path, parts: Iterable[Change]) -> None:
    """Write rows that have changed, in a file that says that it holds no others."""
    write_parquet(path, parts, dict([_MARK]))


def write_parquet(
    path: Path, parts: Iterable[Change], metadata: Mapping[bytes, bytes] | None = None
) -> None:
    """Write rows as a file of the columns `id` and `row`, which is null where one is removed."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows_type = pa.list_(pa.float32())
    schema = pa.schema([("id", pa.int64()), ("row", rows_type)], metadata)
    with pq.ParquetWriter(path, schema) as writer:
        for part in parts:
            ends = np.arange(len(part.ids) + 1, dtype=np.int32) * part.values.shape[1]
            values = pa.ListArray.from_arrays(pa.array(ends), pa.array(part.values.reshape(-1)))
            writer.write_table(pa.table([pa.array(part.ids), values], schema=schema))
            if len(part.removed):
                gone = [pa.array(part.removed), pa.nulls(len(part.removed), rows_type)]
                writer.write_table(pa.table(gone, schema=schema))


def holds_changes(path: Path) -> bool:
    """Whether `write_changes` has written it.

    Raises:
        CheckpointError: It cannot be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_metadata(path).metadata or {}
    except (OSError, pa.ArrowException) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    return _MARK in metadata.items()


def read_parts(path: Path) -> Iterator[Change]:
    """What `write_parquet` has written, in parts.

    Raises:
        CheckpointError: It cannot be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(columns=["id", "row"]):
                ids, is_gone = batch["id"].to_numpy(), np.asarray(batch["row"].is_null())
                values = batch["row"].flatten().to_numpy().astype(np.float32)
                rows = values.reshape(len(ids) - is_gone.sum(), -1) if len(values) else _no_rows()
                yield Change(ids[~is_gone], rows, ids[is_gone])
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error


def _no_rows() -> Values:
    return np.empty((0, 0), np.float32)


def _write_npz(path: Path, parts: Iterable[Change]) -> None:
    found = list(parts)
    ids = [part.ids for part in found] or [np.empty(0, np.int64)]
    rows = [part.values for part in found] or [np.empty((0, 0), np.float32)]
    np.savez(path, id=np.concatenate(ids), row=np.concatenate(rows))


def _read(path: Path, dim: int) -> Iterator[Change]:
    try:
        for ids, values in (_read_parquet if path.suffix == PARQUET else _read_npz)(path):
            if len(values) != len(ids) * dim:
                raise CheckpointError(
                    f"{path} holds rows of another length than the model's {dim} numbers"
                )
            order = np.argsort(ids)
            yield Change(ids[order], values.reshape(len(ids), dim)[order])
    except (OSError, ValueError, BadZipFile) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error


def _read_parquet(path: Path) -> Iterator[tuple[Any, Any]]:
    if not writes_parquet():
        raise CheckpointError(
            f"reading {path} needs pyarrow, which is not installed where the job runs: add it to "
            "the image's requirements"
        )
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(columns=["id", "row"]):
            yield batch["id"].to_numpy(), batch["row"].flatten().to_numpy().astype(np.float32)


def _read_npz(path: Path) -> Iterator[tuple[Any, Any]]:
    with np.load(path) as arrays:
        yield arrays["id"], arrays["row"].reshape(-1)
