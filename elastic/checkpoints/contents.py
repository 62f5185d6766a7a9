"""What a cut holds beside its tensors: a `manifest.json`, and the rows of embeddings.

The manifest is written with a checksum over itself, and read field by field. The checksum covers
every value as JSON, whatever the file's spaces and order. A manifest without one was made by an
older version and is taken as it is, if all of its fields make sense.
"""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from elastic.errors import CheckpointError
from elastic.policy.tasks.ledger_kinds import TRAINING_FORMAT
from elastic.rows.base import (
    Change,
    Ids,
    Life,
    RowDtype,
    RowMissingError,
    RowsLostError,
    Table,
    TableForm,
    no_ids,
)
from elastic.rows.ids import IdIndex

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
TENSORS: Final = "tensors.safetensors"

_CHECKSUM: Final = "checksum"

Natural = Annotated[int, Field(ge=0)]
Span = Annotated[list[Natural], Field(min_length=2, max_length=2)]


class _Form(BaseModel):
    # Nothing is converted: "3" for 3 is damage, not a spelling.
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class FileDigest(_Form):
    """What the bytes of one file of the cut were when it was written."""

    size_bytes: Natural
    sha256: str


class Files(_Form):
    """The files of a cut beside its manifest."""

    tensors: FileDigest = Field(alias=TENSORS)


class Order(_Form):
    """The model's order of names, which the file of tensors does not keep."""

    parameters: list[str]
    state: list[str]


class LedgerForm(BaseModel):
    """The parts of a ledger's snapshot that it cannot be restored without."""

    model_config = ConfigDict(strict=True, extra="ignore")

    fingerprint: dict[str, Any]
    epoch: Natural
    chunk: Natural
    reached: Natural
    gaps: list[Span]
    committed: Natural
    skipped: Natural
    skipped_records: list[tuple[str, Natural]]
    audits: list[tuple[Natural, Natural, Natural, Natural, Natural]]
    computed_again: Natural


class LastLedgerForm(BaseModel):
    """The same of the version before, which counted the records of shards."""

    model_config = ConfigDict(strict=True, extra="ignore")

    fingerprint: dict[str, Any]
    epoch: Natural
    position: Natural
    open: list[tuple[Natural, list[Span], list[Span]]]
    committed: Natural
    skipped: Natural
    skipped_records: list[tuple[str, Natural]]
    audits: list[tuple[Natural, Natural, Natural, Natural]]
    computed_again: Natural


RowsFile = Annotated[str, Field(pattern=r"^rows-\d+(-\d+)?\.bin$")]


class ChangesEntry(_Form):
    """A file of what was changed in a table from one cut to the next.

    It has so many rows, and behind them the ids of those that were removed.
    """

    file: RowsFile
    rows: Natural
    digest: FileDigest


class TableEntry(_Form):
    """A table of an embedding, and the files of its rows: all that there were once, then changes.

    Where there is no file the store has them, as with cuts of the version before.
    One of no numbers has the notes of ids that are counted and have no row yet.
    """

    name: str
    dim: Natural
    initializer: str
    slots: list[str]
    notes: list[str] = []
    row_dtype: RowDtype = "float32"
    file: RowsFile | None = None
    digest: FileDigest | None = None
    changes: list[ChangesEntry] = []

    def files(self) -> dict[str, FileDigest | None]:
        """The files of its rows, by name."""
        files = {} if self.file is None else {self.file: self.digest}
        return files | {each.file: each.digest for each in self.changes}


class RowsForm(_Form):
    """The rows of a model that has tables.

    `held` says that the store of the job had them as well, when the cut was written.
    """

    tables: list[TableEntry]
    held: bool = False

    @property
    def are_here(self) -> bool:
        """Whether the cut has them."""
        return all(entry.file is not None for entry in self.tables)

    @property
    def whole(self) -> list[FileDigest | None]:
        """What the files hold that all changes are of, which other cuts may have in common."""
        return [entry.digest for entry in self.tables]

    @property
    def size_bytes(self) -> int:
        """Of the files that have all rows that there were once."""
        return sum(entry.digest.size_bytes for entry in self.tables if entry.digest is not None)

    @property
    def changes_bytes(self) -> int:
        """Of all changes."""
        return sum(each.digest.size_bytes for entry in self.tables for each in entry.changes)


class Manifest(_Form):
    """All of a cut but its tensors."""

    format: int
    version: Natural
    job_name: str
    run_id: str
    created_s: float
    loss: float | None
    metrics: dict[str, float]
    evaluated_on: str = ""
    order: Order
    optimizer: dict[str, Any]
    ledger: dict[str, Any] | None
    steering: dict[str, Any] = {}
    grads_to_wait: Natural | None = None
    files: Files
    rows: RowsForm | None = None

    @property
    def holds_rows(self) -> bool:
        """Whether the store held the version of the rows when the cut was written."""
        return self.rows is not None and (self.rows.held or not self.rows.are_here)


def digest_of(path: Path) -> FileDigest:
    """The size and the SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return FileDigest(size_bytes=path.stat().st_size, sha256=sha256)


def write_manifest(folder: Path, fields: dict[str, Any]) -> None:
    """Write the fields of a `Manifest` with their checksum.

    Raises:
        OSError: The disk is full, or not writable.
    """
    content = {**fields, _CHECKSUM: _checksum(fields)}
    (folder / MANIFEST).write_text(json.dumps(content, indent=1))


def read_manifest(path: Path) -> Manifest:
    """Read the manifest of the cut `path`, and check every field of it.

    Raises:
        CheckpointError: It is missing, damaged or of a format that is not known.
    """
    content = _content(path)
    if content.get("format") != FORMAT:
        raise CheckpointError(
            f"checkpoint {path} has format {content.get('format')}, this version reads {FORMAT}"
        )
    checksum = content.pop(_CHECKSUM, None)
    if checksum is not None and checksum != _checksum(content):
        raise damaged(path, f"{MANIFEST} has changed")
    try:
        manifest = Manifest.model_validate(content)
    except ValidationError as error:
        raise damaged(path, f"{MANIFEST} {_problem(error)}") from error
    if manifest.ledger is not None:
        try:
            # Read from text, where a list can stand for a tuple.
            is_last = manifest.ledger.get("format") == TRAINING_FORMAT - 1
            form = LastLedgerForm if is_last else LedgerForm
            form.model_validate_json(json.dumps(manifest.ledger))
        except ValidationError as error:
            raise damaged(path, f"the ledger in {MANIFEST} {_problem(error)}") from error
    return manifest


def damaged(path: Path, what: str) -> CheckpointError:
    """The error of a cut that is not as it was written."""
    return CheckpointError(f"checkpoint {path} is damaged: {what}")


def unreadable(path: Path, name: str, error: OSError) -> CheckpointError:
    """The error of a cut one of whose files cannot be read."""
    if isinstance(error, FileNotFoundError):
        return damaged(path, f"{name} is missing")
    return CheckpointError(f"checkpoint {path} cannot be read: {name}: {error.strerror or error}")


def _content(path: Path) -> dict[str, Any]:
    try:
        content = json.loads((path / MANIFEST).read_bytes())
    except OSError as error:
        raise unreadable(path, MANIFEST, error) from error
    except ValueError as error:
        raise damaged(path, f"{MANIFEST} is no JSON document") from error
    if not isinstance(content, dict):
        raise damaged(path, f"{MANIFEST} holds no fields")
    return content


def _checksum(content: dict[str, Any]) -> str:
    # Through JSON once, since it is what has been read back that must give the same.
    plain = json.loads(json.dumps(content))
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _problem(error: ValidationError) -> str:
    """The first problem in words."""
    first = error.errors(include_url=False)[0]
    name = ".".join(map(str, first["loc"]))
    match first["type"]:
        case "missing":
            return f"has no {name}"
        case "extra_forbidden":
            return f"has an unknown field {name}"
    return f"has no usable {name}: {first['msg']}"


# The rows of embeddings in a cut: for each table a file of all, and files of changes since.
#
# A record is an id and the numbers of its row, optimizer slots included, in no order of ids. A file
# of changes has behind its records the ids of rows that were removed.
#
# A cut that follows another has that one's files too, as links to the same bytes, and adds what has
# changed since. So each is whole by itself, and may be removed whatever others have.


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
