"""The rows of embeddings in a cut: a file of records for each table, or the word of the store.

A record is an id and the numbers of its row, optimizer slots included, in no order of ids.
"""

import errno
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from elastic.checkpoints.manifest import (
    Manifest,
    TableEntry,
    damaged,
    digest_of,
    read_manifest,
    unreadable,
)
from elastic.errors import CheckpointError
from elastic.rows.base import Table
from elastic.rows.store import Change, RowMissingError, RowsLostError, TableForm

PART_ROWS: Final = 1 << 16
"""Read at once: what a table of 16 float32 keeps in 4 MiB."""


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class CutRows:
    """Rows of one version, none of which is read before it is asked for.

    Attributes:
        forms: The tables, with the slots of each row.
        scan: Gives all rows of a table, by its name, in parts.
        is_held: The store holds the version, and the cut only says so.
        is_durable: Whether the store can hold it beyond the life of this process.
        let_go: Called once, when nobody needs the version any more.
    """

    forms: tuple[TableForm, ...]
    scan: Callable[[str], Iterable[Change]]
    is_held: bool = False
    is_durable: bool = False
    let_go: Callable[[], None] = _nothing


def record_type(width: int) -> np.dtype[Any]:
    """What stands in a file for each row of so many numbers."""
    return np.dtype([("id", "<i8"), ("row", "<f4", (width,))])


def write_rows(folder: Path, rows: CutRows) -> dict[str, Any]:
    """Write the files of a cut's tables; gives what the manifest says of them.

    Raises:
        OSError: The disk is full or not writable, or the store has lost the version.
    """
    if rows.is_held:
        return {"tables": [_entry(form) for form in rows.forms]}
    entries = []
    for number, form in enumerate(rows.forms):
        path = folder / f"rows-{number:03d}.bin"
        try:
            _write_table(path, form, rows.scan(form.table.name))
        except (RowsLostError, RowMissingError, KeyError) as error:
            raise OSError(errno.EIO, f"rows of {form.table.name!r} are gone: {error}") from error
        entries.append({**_entry(form), "file": path.name, "digest": digest_of(path).model_dump()})
    return {"tables": entries}


def rows_of_manifest(path: Path, manifest: Manifest) -> CutRows | None:
    """The rows of a cut whose manifest has been read; None where it has no tables.

    Raises:
        CheckpointError: A file is missing, or not what it was when written.
    """
    said = manifest.rows
    if said is None:
        return None
    for entry in said.tables:
        _check_file(path, entry)
    by_name = {entry.name: entry for entry in said.tables}

    def scan(table: str) -> Iterator[Change]:
        entry = by_name[table]
        assert entry.file is not None, "rows that the store holds are read there"
        return _scan(path / entry.file, _form(entry).width)

    return CutRows(tuple(map(_form, said.tables)), scan, is_held=manifest.leaves_rows)


def read_rows(path: Path) -> CutRows | None:
    """The rows of the cut `path`, without its tensors; None where it has no tables.

    Raises:
        CheckpointError: See `rows_of_manifest`.
    """
    return rows_of_manifest(path, read_manifest(path))


def refuse_rows(rows: CutRows | None) -> None:
    """Refuse the rows of a cut where a model has no tables: they would be dropped in silence.

    Raises:
        CheckpointError: There are some.
    """
    if rows is not None:
        names = ", ".join(form.table.name for form in rows.forms if form.table.dim)
        raise CheckpointError(
            f"it has rows of the tables {names}, and this model has no tables: use the model and "
            "the --embedding_threshold that it was trained with"
        )


def _check_file(path: Path, entry: TableEntry) -> None:
    if entry.file is None:
        return
    try:
        if digest_of(path / entry.file) != entry.digest:
            raise damaged(path, f"{entry.file} has changed")
    except OSError as error:
        raise unreadable(path, entry.file, error) from error


def _write_table(path: Path, form: TableForm, parts: Iterable[Change]) -> None:
    dtype = record_type(form.width)
    with path.open("wb") as file:
        for part in parts:
            records = np.empty(len(part.ids), dtype)
            records["id"], records["row"] = part.ids, part.values
            file.write(records.tobytes())


def _scan(path: Path, width: int) -> Iterator[Change]:
    dtype = record_type(width)
    with path.open("rb") as file:
        for data in iter(partial(file.read, PART_ROWS * dtype.itemsize), b""):
            records = np.frombuffer(data, dtype)
            order = np.argsort(records["id"])
            yield Change(records["id"][order], records["row"][order])


def _entry(form: TableForm) -> dict[str, Any]:
    table = form.table
    return {
        "name": table.name,
        "dim": table.dim,
        "initializer": table.initializer,
        "slots": list(form.slots),
        # A version before reads the others.
        **({"notes": list(form.notes)} if form.notes else {}),
        **({"row_dtype": table.row_dtype} if table.row_dtype != "float32" else {}),
    }


def _form(entry: TableEntry) -> TableForm:
    table = Table(entry.name, entry.dim, entry.initializer, row_dtype=entry.row_dtype)
    return TableForm(table, tuple(entry.slots), tuple(entry.notes))
