"""What has changed in the tables of a model from one checkpoint to a later one, as files.

`TABLE.parquet` has the columns of an exported table: `id` with its new `row`, which is null where
the row was removed. It holds whole rows and not their differences, so that applying it twice, or to
an export of any version in between, gives the same.
"""

import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from elastic.checkpoints.cuts import list_cuts, no_cut_at
from elastic.checkpoints.manifest import MANIFEST, read_manifest
from elastic.checkpoints.rows import CutRows, read_rows
from elastic.checkpoints.table_files import (
    PARQUET,
    Replaced,
    file_name,
    holds_changes,
    read_parts,
    values_of,
    write_changes,
    write_parquet,
    writes_parquet,
)
from elastic.errors import CheckpointError, JobSpecError
from elastic.rows.base import Ids, Table, Values
from elastic.rows.index import IdIndex
from elastic.rows.store import Change, no_ids
from elastic.spec.packages import pip_install


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
