"""The records behind every update, in the order they counted: what a replay needs."""

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from elastic.checkpoints.destinations import advice, in_words
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
            JobSpecError: The file cannot be written, or is there and no commit log.
        """
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if version and self._path.exists():
                # Cut in place, as that needs no room on the disk.
                with self._path.open("r+b") as file:
                    file.truncate(_size_until(file, version))
            else:
                self._path.write_text("")
            self._file = self._path.open("a")
        except OSError as error:
            raise JobSpecError(
                f"--commit_log={self._path} cannot be written: {in_words(error)}: {advice(error)}"
            ) from error
        except (ValueError, KeyError, TypeError) as error:
            raise JobSpecError(
                f"--commit_log={self._path} is no commit log, so it cannot be gone on with: "
                "name another file"
            ) from error

    def append(
        self, version: int, ledger: Ledger, audit: Audit | None, staged: Sequence[StagedRange]
    ) -> None:
        """Note what was just committed; `audit` is set if that ended the epoch."""
        if self._file is None:
            return
        epoch = ledger.epoch if audit is None else audit.epoch
        records = [named for item in staged for named in ledger.named(item.records, epoch)]
        try:
            json.dump({"version": version, "epoch": epoch, "records": records}, self._file)
            self._file.write("\n")
            self._file.flush()
        except OSError as error:
            raise TrainingError(
                f"--commit_log={self._path} cannot be written: {in_words(error)}: "
                f"{advice(error)}, and run the job again with --resume"
            ) from error

    def close(self) -> None:
        """Let go of the file; all lines are in it, or the job has failed for want of one."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            self._file = None


def _size_until(file: IO[bytes], version: int) -> int:
    """How many bytes the lines up to `version` have."""
    size_bytes = 0
    for line in file:
        # A line cut short by a crash is of the lost future too.
        if not line.endswith(b"\n") or json.loads(line)["version"] > version:
            break
        size_bytes += len(line)
    return size_bytes
