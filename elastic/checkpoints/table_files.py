"""Tables of embeddings beside an exported model, and their changes, for any program to read.

`NAME.rows/TABLE.parquet` has the columns `id` and `row`, a list of float32; where pyarrow is not
installed it is `TABLE.npz` with arrays of these names. Rows that nobody has changed are not there.

A file of what has changed from one checkpoint to a later one has the same columns, with a null as
the `row` of an id that was removed. It holds whole rows and not their differences, so that applying
it twice, or to an export of any version in between, gives the same.
"""

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Final
from urllib.parse import quote
from zipfile import BadZipFile, ZipFile

import numpy as np

from elastic.checkpoints.contents import MANIFEST, CutRows, read_manifest, read_rows
from elastic.checkpoints.cuts import list_cuts, no_cut_at
from elastic.errors import CheckpointError, JobSpecError
from elastic.rows.arithmetic import unpacked
from elastic.rows.base import PART_BYTES, Change, Ids, Table, TableForm, Values, no_ids, part_rows
from elastic.rows.ids import IdIndex
from elastic.spec.values import pip_install

PARQUET: Final = ".parquet"
NPZ: Final = ".npz"

_OWN_VERSION: Final = (1, 0)
"""Of the headers of arrays, as they are written here."""

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
    """Write rows as `numpy.savez` does, without having all of them at once."""
    all_ids, dim = [no_ids()], 0
    # An array begins with its length, which nobody knows before the last row has come.
    with TemporaryFile(dir=path.parent) as rows, ZipFile(path, "w") as arrays:
        for part in parts:
            all_ids.append(part.ids)
            dim = part.values.shape[1]
            rows.write(np.ascontiguousarray(part.values, np.float32).data)
        ids = np.concatenate(all_ids)
        rows.seek(0)
        _add_array(arrays, "id", ids.shape, "<i8", BytesIO(ids.tobytes()))
        _add_array(arrays, "row", (len(ids), dim), "<f4", rows)


def _add_array(
    arrays: ZipFile, name: str, shape: tuple[int, ...], dtype: str, data: IO[bytes]
) -> None:
    header = {"descr": dtype, "fortran_order": False, "shape": shape}
    with arrays.open(f"{name}.npy", "w", force_zip64=True) as member:
        np.lib.format.write_array_header_1_0(member, header)
        shutil.copyfileobj(data, member, PART_BYTES)


def _read(path: Path, dim: int) -> Iterator[Change]:
    try:
        for ids, values in (_read_parquet if path.suffix == PARQUET else _read_npz)(path, dim):
            if len(values) != len(ids) * dim:
                raise CheckpointError(
                    f"{path} holds rows of another length than the model's {dim} numbers"
                )
            order = np.argsort(ids)
            yield Change(ids[order], values.reshape(len(ids), dim)[order])
    except (OSError, ValueError, KeyError, BadZipFile) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error


def _read_parquet(path: Path, dim: int) -> Iterator[tuple[Any, Any]]:
    if not writes_parquet():
        raise CheckpointError(
            f"reading {path} needs pyarrow, which is not installed where the job runs: add it to "
            "the image's requirements"
        )
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(part_rows(dim), columns=["id", "row"]):
            yield batch["id"].to_numpy(), batch["row"].flatten().to_numpy().astype(np.float32)


def _read_npz(path: Path, dim: int) -> Iterator[tuple[Any, Any]]:
    with np.load(path) as arrays, arrays.zip.open("row.npy") as rows:
        ids, step = arrays["id"], part_rows(dim)
        if np.lib.format.read_magic(rows) != _OWN_VERSION:
            yield ids, arrays["row"].reshape(-1)
            return
        shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(rows)
        if shape != (len(ids), dim) or is_fortran or dtype != np.float32:
            # Not as it is written here.
            yield ids, arrays["row"].reshape(-1)
            return
        for start in range(0, len(ids), step):
            some = ids[start : start + step]
            yield some, np.frombuffer(rows.read(4 * dim * len(some)), np.float32)


@dataclass(slots=True)
class TableDelta:
    """What a delta has of one table.

    Attributes:
        changed: Rows that are new or have other values.
        removed: Rows that are there no more.
    """

    name: str
    changed: int = 0
    removed: int = 0


def write_delta(since: Path, cut: Path, folder: Path) -> list[TableDelta]:
    """Write what has changed in all tables; memory is needed for the older values of one table.

    Args:
        since: The older checkpoint, or a folder of which the newest is meant.
        cut: The newer one.
        folder: To be made; what is there is replaced when all is written.

    Raises:
        CheckpointError: One cannot be read, has no rows, or has other tables than the other.
        JobSpecError: pyarrow is not installed, or something else is in the folder.
        OSError: The disk is full, or not writable.
    """
    check_parquet()
    _check_is_free(folder)
    since, cut = _cut(since), _cut(cut)
    if (older_version := _version(since)) > (version := _version(cut)):
        raise CheckpointError(
            f"--since {since} is of version {older_version}, which came after version {version} of "
            f"{cut}: exchange them"
        )
    older, newer = _rows(since), _rows(cut)
    tables = _tables(newer)
    if _tables(older) != tables:
        raise CheckpointError(
            f"{since} and {cut} have other tables of embeddings: name two checkpoints of one job"
        )
    with Replaced(folder) as temporary:
        return [_write(temporary, table, older, newer) for table in tables]


def apply_delta(delta: Path, rows: Path) -> list[TableDelta]:
    """Bring the exported tables `rows` up to date, all of them or none.

    Raises:
        CheckpointError: A file cannot be read, one that the delta is of is missing or has rows of
            another length, or `delta` is an export, or `rows` none.
        JobSpecError: pyarrow is not installed.
        OSError: The disk is full, or not writable.
    """
    check_parquet()
    names = sorted(path.name for path in delta.glob(f"*{PARQUET}"))
    if not names:
        raise CheckpointError(
            f"{delta} has no {PARQUET} file: name a folder of `elastic rows delta`"
        )
    for name in names:
        if not (rows / name).exists():
            raise CheckpointError(
                f"{rows} has no {name}, of which {delta} has changes: name the folder MODEL.rows "
                "that was exported as Parquet with the model"
            )
    _check_direction(delta, rows, names)
    with Replaced(rows) as temporary:
        shutil.copytree(rows, temporary, dirs_exist_ok=True, ignore=lambda *_: names)
        return [_apply(delta / name, rows / name, temporary / name) for name in names]


def check_parquet() -> None:
    """See that Parquet can be read and written here.

    Raises:
        JobSpecError: It cannot.
    """
    if not writes_parquet():
        raise JobSpecError(f"changes of rows are Parquet files: {pip_install('pyarrow')}")


def _check_is_free(folder: Path) -> None:
    """See that nothing but an older delta is there, which may be replaced."""
    found = list(folder.iterdir()) if folder.exists() else []
    if any(path.suffix != PARQUET or not holds_changes(path) for path in found):
        raise JobSpecError(f"{folder} has other files than those of a delta: name another folder")


def _check_direction(delta: Path, rows: Path, names: Sequence[str]) -> None:
    """See that changes are applied to an export, and not the other way round."""
    is_delta = all(holds_changes(delta / name) for name in names)
    is_export = not any(holds_changes(rows / name) for name in names)
    if not is_delta and not is_export:
        raise CheckpointError(
            f"{rows} holds changes, and {delta} the rows of a model: exchange the two"
        )
    if not is_delta:
        raise CheckpointError(
            f"{delta} holds rows of a model, not changes: name a folder of `elastic rows delta`"
        )
    if not is_export:
        raise CheckpointError(
            f"{rows} holds changes, not the rows of a model: name the folder MODEL.rows that was "
            "exported with the model"
        )


def _cut(path: Path) -> Path:
    cut = path if (path / MANIFEST).exists() else next(iter(list_cuts(path)), None)
    if cut is None:
        raise CheckpointError(no_cut_at(path))
    return cut


def _version(cut: Path) -> int:
    return read_manifest(cut).version


def _rows(cut: Path) -> CutRows:
    rows = read_rows(cut)
    if rows is None:
        raise CheckpointError(f"checkpoint {cut} has no tables of embeddings")
    if not rows.is_here:
        raise CheckpointError(
            f"checkpoint {cut} leaves its rows to the store of its job: use one of a "
            "--checkpoint_dir, which has them"
        )
    return rows


def _tables(rows: CutRows) -> list[Table]:
    # Values are compared as everybody sees them, however they are stored.
    return [replace(form.table, row_dtype="float32") for form in rows.forms if form.table.dim]


def _write(folder: Path, table: Table, older: CutRows, newer: CutRows) -> TableDelta:
    told = TableDelta(table.name)
    parts = changes(values_of(table, older), values_of(table, newer), table.dim)
    write_changes(folder / file_name(table, PARQUET), _counted(parts, told))
    return told


def changes(older: Iterable[Change], newer: Iterable[Change], dim: int) -> Iterator[Change]:
    """What makes the newer rows of the older ones; each id comes in one part at most."""
    index, values = _gathered(older, dim)
    is_left = np.zeros(len(index), np.bool_)
    for part in newer:
        positions = index.find(part.ids)
        is_known = positions >= 0
        is_left[positions[is_known]] = True
        is_changed = ~is_known
        is_changed[is_known] = _differ(values[positions[is_known]], part.values[is_known])
        yield Change(part.ids[is_changed], part.values[is_changed])
    yield Change(no_ids(), np.empty((0, dim), np.float32), np.sort(index.ids[~is_left]))


def _gathered(parts: Iterable[Change], dim: int) -> tuple[IdIndex, Values]:
    index, values = IdIndex(), [np.empty((0, dim), np.float32)]
    for part in parts:
        index.add(part.ids)
        values.append(part.values)
    return index, np.concatenate(values)


def _differ(one: Values, other: Values) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Of each row, whether any bit differs: also a NaN is itself."""
    is_other: np.ndarray[tuple[int], np.dtype[np.bool_]] = (
        one.view(np.int32) != other.view(np.int32)
    ).any(axis=1)
    return is_other


def _counted(parts: Iterable[Change], told: TableDelta) -> Iterator[Change]:
    for part in parts:
        told.changed += len(part.ids)
        told.removed += len(part.removed)
        yield part


def _apply(delta: Path, before: Path, after: Path) -> TableDelta:
    told = TableDelta(delta.name.removesuffix(PARQUET))
    found = list(_counted(read_parts(delta), told))
    touched = np.concatenate(
        [no_ids(), *(ids for part in found for ids in (part.ids, part.removed))]
    )
    new = [Change(part.ids, part.values) for part in found]
    write_parquet(after, _followed_by(before, touched, new, delta))
    return told


def _followed_by(
    before: Path, touched: Ids, new: Sequence[Change], delta: Path
) -> Iterator[Change]:
    dims = {part.values.shape[1] for part in new if len(part.ids)}
    for part in read_parts(before):
        if len(part.ids) and dims - {part.values.shape[1]}:
            raise CheckpointError(
                f"{delta} has rows of {max(dims)} numbers, and {before} of {part.values.shape[1]}: "
                "they are of two models"
            )
        stays = ~np.isin(part.ids, touched)
        yield Change(part.ids[stays], part.values[stays])
    yield from new
