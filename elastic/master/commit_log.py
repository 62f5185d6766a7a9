"""The records behind every update, in the order they counted: what a replay needs."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from elastic.errors import JobSpecError, TrainingError
from elastic.policy.ledger import Audit, Ledger, StagedRange


class CommitLog:
    """Appends one JSON line an update: `{"version", "epoch", "records": [[shard, start, end]]}`.

    Written only where the user asks for it, before the reply that tells a worker of the commit.
    Without a path it does nothing.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path) if path else None
        self._file: IO[str] | None = None

    def open(self, version: int) -> None:
        """Begin, or go on after the update to `version`: later lines belong to a lost future.

        Raises:
            JobSpecError: The file cannot be written.
        """
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            kept = _lines_until(self._path, version)
            self._path.write_text("".join(kept))
            self._file = self._path.open("a")
        except OSError as error:
            raise JobSpecError(
                f"commit_log={self._path} cannot be written: {error.strerror}"
            ) from error

    def append(
        self, version: int, ledger: Ledger, audit: Audit | None, staged: Sequence[StagedRange]
    ) -> None:
        """Note what was just committed; `audit` is set if that ended the epoch."""
        if self._file is None:
            return
        records = [
            [ledger.shard_name(s.records.shard_index), s.records.start, s.records.end]
            for s in staged
        ]
        epoch = ledger.epoch if audit is None else audit.epoch
        try:
            json.dump({"version": version, "epoch": epoch, "records": records}, self._file)
            self._file.write("\n")
            self._file.flush()
        except OSError as error:
            raise TrainingError(
                f"commit_log {self._path} cannot be written: {error.strerror}"
            ) from error

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _lines_until(path: Path, version: int) -> list[str]:
    if version == 0 or not path.exists():
        return []
    lines = path.read_text().splitlines(keepends=True)
    # A line cut short by a crash is of the lost future too.
    return [
        line for line in lines if line.endswith("\n") and json.loads(line)["version"] <= version
    ]
