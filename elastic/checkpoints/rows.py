"""The rows of embeddings in a cut: for each table a file of all, and files of changes since.

A record is an id and the numbers of its row, optimizer slots included, in no order of ids. A file
of changes has behind its records the ids of rows that were removed.

A cut that follows another has that one's files too, as links to the same bytes, and adds what has
changed since. So each is whole by itself, and may be removed whatever others have.
"""

import errno
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from elastic.checkpoints.manifest import (
    ChangesEntry,
    FileDigest,
    Manifest,
    RowsForm,
    TableEntry,
    damaged,
    digest_of,
    read_manifest,
    unreadable,
)
from elastic.errors import CheckpointError
from elastic.rows.base import Ids, Life, Table
from elastic.rows.index import IdIndex
from elastic.rows.store import Change, RowMissingError, RowsLostError, TableForm, no_ids

PART_BYTES: Final = 4 << 20
"""Read at once."""

MAX_CHANGES: Final = 30
"""Files of changes that a table may have in a cut, beside that of all rows."""

_ID: Final = np.dtype("<i8")


def _nothing() -> None:
    pass


class RowsGoneError(OSError):
    """Rows that a cut is of are in their store no more, wherever the cut was to go."""


@dataclass(frozen=True, slots=True)
class CutRows:
    """Rows of one version, none of which is read before it is asked for.

    Attributes:
        forms: The tables, with the slots of each row.
        scan: Gives all rows of a table, by its name, in parts: each id once.
        is_held: The store holds the version beyond the life of this process, or did so once.
        is_here: `scan` has them. A cut of the version before may leave them to the store alone.
        let_go: Called once, when nobody needs the version any more.
        before: A cut that was written before.
        changed: Gives what has changed in a table since that one; None where nobody knows.
        path: The cut that they are read from; None where they are a store's.
    """

    forms: tuple[TableForm, ...]
    scan: Callable[[str], Iterable[Change]]
    is_held: bool = False
    is_here: bool = True
    let_go: Callable[[], None] = _nothing
    before: Path | None = None
    changed: Callable[[str], Iterable[Change]] | None = None
    path: Path | None = None


def record_type(width: int) -> np.dtype[Any]:
    """What stands in a file for each row of so many numbers."""
    return np.dtype([("id", _ID), ("row", "<f4", (width,))])


# -- writing ---------------------------------------------------------------------------------------


def write_rows(folder: Path, rows: CutRows) -> dict[str, Any]:
    """Write the files of a cut's tables; gives what the manifest says of them.

    Raises:
        OSError: The disk is full or not writable.
        RowsGoneError: The store has lost the version.
    """
    followed = _followed(rows)
    entries = []
    for number, form in enumerate(rows.forms):
        stem = folder / f"rows-{number:03d}"
        try:
            if followed is None or rows.before is None or rows.changed is None:
                entries.append(_write_all(stem, form, rows.scan(form.table.name)))
            else:
                entry, parts = followed[number], rows.changed(form.table.name)
                entries.append(_write_changes(stem, form, parts, entry, rows.before))
        except (RowsLostError, RowMissingError, KeyError) as error:
            raise RowsGoneError(
                errno.EIO, f"rows of {form.table.name!r} are gone: {error}"
            ) from error
    return {"tables": entries, **({"held": True} if rows.is_held else {})}


def _followed(rows: CutRows) -> Sequence[TableEntry] | None:
    """What the cut before says of its files, where this one had better add to them.

    All rows are written again once the changes are as much to read and to keep as these are, so
    that both cost twice the rows at most, and what is written as well twice what has changed.
    """
    if rows.before is None or rows.changed is None:
        return None
    try:
        said = read_manifest(rows.before).rows
    except CheckpointError:
        return None
    if said is None or not said.are_here or tuple(map(_form, said.tables)) != _plain(rows.forms):
        return None
    if max(len(entry.changes) for entry in said.tables) >= MAX_CHANGES:
        return None
    if said.changes_bytes >= said.size_bytes or not _are_there(rows.before, said):
        return None
    return said.tables


def _are_there(cut: Path, said: RowsForm) -> bool:
    files = [name for entry in said.tables for name in entry.files()]
    return all((cut / name).exists() for name in files)


def _plain(forms: Sequence[TableForm]) -> tuple[TableForm, ...]:
    """Forms without what no file tells: it changes nothing in them."""
    return tuple(replace(form, table=replace(form.table, life=Life())) for form in forms)


def _write_all(stem: Path, form: TableForm, parts: Iterable[Change]) -> dict[str, Any]:
    path = stem.with_suffix(".bin")
    with path.open("wb") as file:
        for part in parts:
            file.write(_records(part, form.width))
    return {**_entry(form), "file": path.name, "digest": digest_of(path).model_dump()}


def _write_changes(
    stem: Path, form: TableForm, parts: Iterable[Change], entry: TableEntry, before: Path
) -> dict[str, Any]:
    """Link the files that a table had, and write one of what has changed, if anything has."""
    for name in entry.files():
        _link(before / name, stem.parent / name)
    path = stem.with_name(f"{stem.name}-{len(entry.changes) + 1:03d}.bin")
    num_rows, removed = 0, [no_ids()]
    with path.open("wb") as file:
        for part in parts:
            file.write(_records(part, form.width))
            num_rows += len(part.ids)
            removed.append(part.removed)
        file.write(np.concatenate(removed).astype(_ID).tobytes())
    said = entry.model_dump(exclude_defaults=True)
    if not path.stat().st_size:
        path.unlink()
        return said
    added = ChangesEntry(file=path.name, rows=num_rows, digest=digest_of(path))
    return {**said, "changes": [*said.get("changes", ()), added.model_dump()]}


def _records(part: Change, width: int) -> bytes:
    records = np.empty(len(part.ids), record_type(width))
    records["id"], records["row"] = part.ids, part.values
    return records.tobytes()


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        # There are file systems without links.
        shutil.copyfile(source, target)


# -- reading ---------------------------------------------------------------------------------------


def rows_of_manifest(path: Path, manifest: Manifest) -> CutRows | None:
    """The rows of a cut whose manifest has been read; None where it has no tables.

    Raises:
        CheckpointError: A file is missing, or not what it was when written.
    """
    said = manifest.rows
    if said is None:
        return None
    for entry in said.tables:
        for name, digest in entry.files().items():
            _check_file(path, name, digest)
    by_name = {entry.name: entry for entry in said.tables}
    return CutRows(
        tuple(map(_form, said.tables)),
        lambda table: _scan(path, by_name[table]),
        is_held=manifest.holds_rows,
        is_here=said.are_here,
        path=path,
    )


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


def _check_file(path: Path, name: str, digest: FileDigest | None) -> None:
    try:
        if digest_of(path / name) != digest:
            raise damaged(path, f"{name} has changed")
    except OSError as error:
        raise unreadable(path, name, error) from error


def _scan(path: Path, entry: TableEntry) -> Iterator[Change]:
    """All rows of a table, the newest first, so that of what comes later an id alone is kept."""
    assert entry.file is not None, "rows that the store alone holds are read there"
    later, width = IdIndex(), _form(entry).width
    for each in reversed(entry.changes):
        yield from _unseen(_parts(path / each.file, width, each.rows), later, is_last=False)
        removed = _removed(path / each.file, width, each.rows)
        later.add(removed[later.find(removed) < 0])
    yield from _unseen(_parts(path / entry.file, width), later, is_last=True)


def _unseen(parts: Iterable[Change], later: IdIndex, *, is_last: bool) -> Iterator[Change]:
    """Rows whose ids are not among those of later files, which have them from then on."""
    for part in parts:
        is_new = later.find(part.ids) < 0
        if not is_last:
            later.add(part.ids[is_new])
        if is_new.all():
            yield part
        elif is_new.any():
            yield Change(part.ids[is_new], part.values[is_new])


def _parts(path: Path, width: int, num_rows: int | None = None) -> Iterator[Change]:
    """Rows of a file as they stand there; all, or the first ones."""
    dtype = record_type(width)
    num_bytes = path.stat().st_size if num_rows is None else num_rows * dtype.itemsize
    step = max(PART_BYTES // dtype.itemsize, 1) * dtype.itemsize
    with path.open("rb") as file:
        for start in range(0, num_bytes, step):
            records = np.frombuffer(file.read(min(step, num_bytes - start)), dtype)
            order = np.argsort(records["id"])
            yield Change(records["id"][order], records["row"][order])


def _removed(path: Path, width: int, num_rows: int) -> Ids:
    """The ids behind the rows of a file of changes."""
    return np.fromfile(path, _ID, offset=num_rows * record_type(width).itemsize)


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
