"""What a cut's `manifest.json` holds: written with a checksum over itself, read field by field.

The checksum covers every value as JSON, whatever the file's spaces and order. A manifest without
one was made by an older version and is taken as it is, if all of its fields make sense.
"""

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from elastic.errors import CheckpointError
from elastic.policy.tasks.training_ledger import TRAINING_FORMAT
from elastic.rows.base import RowDtype

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
