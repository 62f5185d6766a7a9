"""The folder of a job's predictions: files that are whole or not there, and whose it is.

A file is there whole or not at all, whenever its writer is killed. A file `_job.json` says whose
the folder is while the job runs. When every range has its file, `_manifest.json` is written and
`_job.json` removed: a folder with a manifest is whole.
"""

import contextlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from elastic.data.predictions.parts import range_of
from elastic.errors import JobSpecError

BEGUN: Final = ".begun"
"""Ends the name of a file that is being written; nobody reads those."""

MANIFEST: Final = "_manifest.json"
OWNER: Final = "_job.json"
FORMAT: Final = 1
_WRITER: Final = "master"


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
