"""Predictions as files, one for each range of records, and the folder of a job's predictions.

A file is there whole or not at all, whenever its writer is killed. A file `_job.json` says whose
the folder is while the job runs. When every range has its file, `_manifest.json` is written and
`_job.json` removed: a folder with a manifest is whole.

Belongs here: what a file is called and holds, how it comes to be, and whose folder it lies in.
Does not belong here: which range counts (`policy`), and what the user's processor does (`worker`).
"""

import contextlib
import csv
import io
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from elastic.data.base import RoundedError, common_type
from elastic.errors import JobSpecError, ModelDefError, legible
from elastic.policy.tasks.records import RecordRange

BEGUN: Final = ".begun"
"""Ends the name of a file that is being written; nobody reads those."""

MANIFEST: Final = "_manifest.json"
OWNER: Final = "_job.json"
FORMAT: Final = 1
_WRITER: Final = "master"

Columns: TypeAlias = dict[str, NDArray[Any]]

SHARD: Final = "shard"
INDEX: Final = "index"
PREDICTION: Final = "prediction"
_PART: Final = re.compile(r"part-(\d+)-(\d+)-(\d+)\.(?:csv|parquet)")


class Files(Protocol):
    """The operations of a file system that such a file is made of, each done or not done."""

    def write(self, path: Path, data: bytes) -> None:
        """Make or replace a file; a writer that is killed may leave a part of it."""

    def sync(self, path: Path) -> None:
        """Have a file, or the names in a folder, outlast the machine."""

    def rename(self, path: Path, target: Path) -> None:
        """Give a file another name in one step; who had that name is gone."""

    def remove(self, path: Path) -> None:
        """Remove a file, if it is there."""


class SystemFiles:
    """The file system of this machine."""

    def write(self, path: Path, data: bytes) -> None:
        path.write_bytes(data)

    def sync(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, path: Path, target: Path) -> None:
        path.replace(target)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)


def write_whole(files: Files, target: Path, data: bytes, writer: str) -> None:
    """Make or replace `target`, which afterwards is there whole, or as it was.

    Args:
        files: Where.
        target: What readers look for.
        data: All of it.
        writer: Tells apart those who may write the same file at one time.

    Raises:
        OSError: The disk is full, or not writable; what was begun has been removed.
    """
    begun = target.with_name(f".{target.name}.{writer}{BEGUN}")
    try:
        files.write(begun, data)
        files.sync(begun)
        files.rename(begun, target)
    except OSError:
        with contextlib.suppress(OSError):
            files.remove(begun)
        raise
    files.sync(target.parent)


@dataclass(frozen=True, slots=True)
class Part:
    """One file of predictions, as the manifest names it.

    Attributes:
        file: Its name in the folder; None where none of its records has a prediction.
        shard: The shard that its records are of.
        start: The first record of its range.
        end: One past the last.
        num_predictions: How many of them have one: `dataset_fn` may drop some, and what failed for
            good is left out.
    """

    file: str | None
    shard: str
    start: int
    end: int
    num_predictions: int


class PredictionFolder:
    """The folder as the master sees it."""

    def __init__(self, path: Path, files: Files) -> None:
        self.path = path
        self._files = files

    def claim(self, job_name: str, run_id: str, *, resume: bool, overwrite: bool) -> None:
        """Make the folder this job's own, before anything is written to it.

        Raises:
            JobSpecError: It holds what is not this job's to write over.
            OSError: It cannot be made or written.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        owner = self._owner()
        is_own = owner is not None and owner.get("job_name") == job_name
        if is_own and (owner or {}).get("run_id") == run_id:
            return
        names = sorted(e.name for e in self.path.iterdir() if not e.name.endswith(BEGUN))
        if names and not overwrite and not (is_own and resume):
            raise JobSpecError(self._in_the_way(names, owner, is_own=is_own))
        if names:
            # Without a run: whoever dies before the folder is in order puts it in order again.
            self._write(OWNER, {"job_name": job_name, "run_id": ""})
            self._files.remove(self.path / MANIFEST)
            self._files.sync(self.path)
        if not resume:
            self.remove_others(())
        self._write(OWNER, {"job_name": job_name, "run_id": run_id})

    def remove_others(self, expected: Iterable[str]) -> None:
        """Remove files of predictions that are not expected, and all that were only begun.

        Whatever else lies there is somebody's own and stays.
        """
        names = set(expected)
        for entry in list(self.path.iterdir()):
            is_part = range_of(entry.name) is not None and entry.name not in names
            if is_part or (entry.name.startswith(".part-") and entry.name.endswith(BEGUN)):
                self._files.remove(entry)

    def missing(self, expected: Iterable[str]) -> list[str]:
        """Those of the files that are not there."""
        there = {entry.name for entry in self.path.iterdir()}
        return [name for name in expected if name not in there]

    def finish(self, job: Mapping[str, Any], parts: Iterable[Part]) -> Path:
        """Say that the folder is whole; returns the manifest.

        Raises:
            OSError: It cannot be written.
        """
        document = {"format": FORMAT, **job, "parts": [asdict(part) for part in parts]}
        self._write(MANIFEST, document)
        self._files.remove(self.path / OWNER)
        return self.path / MANIFEST

    def _write(self, name: str, document: Mapping[str, Any]) -> None:
        text = json.dumps(document, indent=1) + "\n"
        write_whole(self._files, self.path / name, text.encode(), _WRITER)

    def _owner(self) -> dict[str, Any] | None:
        for name in (OWNER, MANIFEST):
            with contextlib.suppress(FileNotFoundError, ValueError):
                found = json.loads((self.path / name).read_text(encoding="utf-8"))
                if isinstance(found, dict):
                    return found
        return None

    def _in_the_way(
        self, names: list[str], owner: Mapping[str, Any] | None, *, is_own: bool
    ) -> str:
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        whose = f" of the job {owner.get('job_name')}" if owner is not None else ""
        go_on = "go on with them with --resume, " if is_own else ""
        return (
            f"--prediction_outputs={self.path} holds files already{whose} ({shown}): {go_on}name "
            "another folder, or replace the predictions in it with --overwrite"
        )


@dataclass(frozen=True, slots=True)
class Predictions:
    """What the model gives for some records of one shard.

    Attributes:
        shard: The shard's name.
        indices: (n,) int64, which records of the shard.
        outputs: An array, or a nested dict or list of them; first dimension n.
    """

    shard: str
    indices: NDArray[np.int64]
    outputs: Any


def part_name(records: RecordRange, form: str) -> str:
    """The name of the file of a range, the same whoever writes it."""
    return f"part-{records.shard_index:05d}-{records.start:012d}-{records.end:012d}.{form}"


def range_of(name: str) -> RecordRange | None:
    """The range behind the name of a file; None where it is no file of predictions."""
    match = _PART.fullmatch(name)
    return None if match is None else RecordRange(*(int(number) for number in match.groups()))


def encode(parts: Sequence[Predictions], form: str) -> bytes:
    """The content of a file.

    Args:
        parts: In the order of the records.
        form: `csv` or `parquet`.

    Raises:
        ModelDefError: The model gives other outputs for some minibatches than for others, or text
            that cannot be encoded.
    """
    tables = [columns(part) for part in parts]
    for table in tables[1:]:
        if list(table) != list(tables[0]):
            raise ModelDefError(
                f"the model gives the columns {', '.join(table)} for one minibatch and "
                f"{', '.join(tables[0])} for another: make them the same"
            )
    shards = [part.shard for part in parts for _ in part.indices]
    indices = np.concatenate([part.indices for part in parts]) if parts else np.array([], np.int64)
    arrays = {name: [table[name] for table in tables] for name in (tables or [{}])[0]}
    if form == "parquet":
        arrays = {name: _of_one_type(name, each) for name, each in arrays.items()}
    joined = {name: _joined(each) for name, each in arrays.items()}
    try:
        return (_parquet if form == "parquet" else _csv)(shards, indices, joined)
    except UnicodeEncodeError:
        _check_unicode(indices, joined)
        raise


def first_rows(outputs: Any, count: int) -> Any:
    """A model's outputs for the first so many records."""
    match outputs:
        case Mapping():
            return {name: first_rows(each, count) for name, each in outputs.items()}
        case list() | tuple():
            return [first_rows(each, count) for each in outputs]
    return outputs[:count]


def columns(part: Predictions) -> Columns:
    """The columns of a model's outputs, each with one value, or array, a record.

    A single number a record is the column `prediction`, a vector the columns `prediction_0`,
    `prediction_1`, …; the outputs of a dict are called by their names instead, those of a list by
    their numbers. What has more dimensions stays whole.
    """
    found: Columns = {}
    for name, array in _named(PREDICTION, part.outputs, is_top=True):
        # Of half the precision; nothing that reads files expects it.
        wide = array.astype(np.float32) if array.dtype == np.float16 else array
        if wide.ndim == 2 and wide.shape[1] != 1:
            columns = {f"{name}_{number}": wide[:, number] for number in range(wide.shape[1])}
        else:
            columns = {name: wide[:, 0] if wide.ndim == 2 else wide}
        for column in columns.keys() & found.keys():
            raise ModelDefError(
                f"two outputs of the model would be the column {column!r}: call one otherwise"
            )
        found |= columns
    for name in (SHARD, INDEX):
        if name in found:
            raise ModelDefError(
                f"the model calls an output {name!r}, as the column that names the record: "
                "call it otherwise"
            )
    return found


def _named(name: str, outputs: Any, *, is_top: bool) -> Iterator[tuple[str, NDArray[Any]]]:
    items: Iterator[tuple[Any, Any]]
    match outputs:
        case Mapping():
            items = iter(outputs.items())
            prefix = "" if is_top else f"{name}_"
        case list() | tuple():
            items = iter(enumerate(outputs))
            prefix = f"{name}_"
        case _:
            yield name, outputs
            return
    for key, value in items:
        yield from _named(f"{prefix}{key}", value, is_top=False)


def _of_one_type(name: str, arrays: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """The same predictions in the type that all of them can have."""
    try:
        kind = common_type(arrays)
    except (TypeError, RoundedError) as error:
        found = ", ".join(dict.fromkeys(str(array.dtype) for array in arrays))
        raise ModelDefError(
            f"the model gives {found} for the column {name!r} in minibatches of one task, which no "
            f"column of Parquet can hold together ({error}): make them the same"
        ) from error
    return [array.astype(kind, copy=False) for array in arrays]


def _check_unicode(indices: NDArray[np.int64], values: Mapping[str, list[Any]]) -> None:
    """Name the prediction that cannot be written as UTF-8."""
    for name, column in values.items():
        for index, value in zip(indices, column, strict=True):
            for item in np.asarray(value, object).flat:
                if isinstance(item, str) and legible(item) != item:
                    raise ModelDefError(
                        f"the model gives {str(item)!r} for record {index} in the column {name!r}, "
                        "which is no text that can be encoded: decode it with errors='replace'"
                    )


def _joined(arrays: Sequence[NDArray[Any]]) -> list[Any]:
    return [value for array in arrays for value in array]


def _csv(
    shards: Sequence[str], indices: NDArray[np.int64], values: Mapping[str, list[Any]]
) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([SHARD, INDEX, *values])
    cells = [[_cell(value) for value in column] for column in values.values()]
    writer.writerows(zip(shards, indices, *cells, strict=True))
    return text.getvalue().encode()


def _cell(value: Any) -> Any:
    """A value of a CSV file; an array becomes JSON."""
    if isinstance(value, np.ndarray):
        return json.dumps(_plain(value))
    return value


def _plain(value: Any) -> Any:
    """Lists of numbers for JSON, in as few digits as their type needs."""
    if isinstance(value, np.ndarray):
        return [_plain(item) for item in value]
    if isinstance(value, np.floating):
        return float(str(value))
    return value.item() if isinstance(value, np.generic) else value


def _parquet(
    shards: Sequence[str], indices: NDArray[np.int64], values: Mapping[str, list[Any]]
) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet

    table = {SHARD: pa.array(shards, pa.string()), INDEX: pa.array(indices, pa.int64())}
    for name, column in values.items():
        table[name] = _arrow(pa, column)
    sink = io.BytesIO()
    pyarrow.parquet.write_table(pa.table(table), sink)
    return sink.getvalue()


def _arrow(pa: Any, column: list[Any]) -> Any:
    """An Arrow array of values of one type; of arrays, one of lists."""
    if not column or not isinstance(column[0], np.ndarray):
        first = column[0] if column else None
        kind = pa.from_numpy_dtype(first.dtype) if isinstance(first, np.generic) else None
        return pa.array(column, kind)
    kind = pa.from_numpy_dtype(column[0].dtype)
    for _ in range(column[0].ndim):
        kind = pa.list_(kind)
    return pa.array([item.tolist() for item in column], kind)
