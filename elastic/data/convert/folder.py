"""The folder that a conversion fills: what is done there, and whether all of it is.

While files are missing the folder holds `.unfinished/`, and no reader takes it for data; a second
run of the same plan goes on from what it says, once the first has ended. Last comes
`_manifest.json`.
"""

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from elastic.data.convert.plan import FILE_PREFIX, Plan, Unit, WrittenFile
from elastic.data.inspection import FieldForm
from elastic.data.sources import MANIFEST, UNFINISHED
from elastic.errors import DataError

_PLAN: Final = "plan.json"
_LOCK: Final = "lock"
_FINISHED: Final = ".finished"
"""What `.unfinished` is called while it is being removed."""
_NO_LOCKS: Final = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""Of file systems that have no locks."""


class ConversionFolder:
    """The destination of one plan."""

    def __init__(self, plan: Plan, units: Sequence[Unit]) -> None:
        self._root = Path(plan.destination)
        self._state = self._root / UNFINISHED
        # Through JSON, since the plan of the run before comes from there.
        self._plan = json.loads(json.dumps({"plan": asdict(plan), "units": [*map(asdict, units)]}))
        self._files: dict[int, list[WrittenFile]] = {}
        self._lock: int | None = None

    @property
    def files(self) -> list[WrittenFile]:
        """Of the finished units, in order."""
        return [file for index in sorted(self._files) for file in self._files[index]]

    def open(self) -> set[int]:
        """Make the folder, or go on with one; gives the units that are done.

        Nobody else can open it until `close`, or until this process has ended.

        Raises:
            DataError: Something else is there already, or another run is filling it.
        """
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            found = self._names()
            if not found:
                # Another run may do the same in this moment; the lock chooses one of them.
                self._state.mkdir(exist_ok=True)
            elif UNFINISHED not in found:
                raise self._not_empty(found)
            self._take_lock()
            self._go_on(self._names())
        except OSError as error:
            raise DataError(
                f"{self._root} is no folder to write to ({error.strerror}): name another one"
            ) from error
        return set(self._files)

    def close(self) -> None:
        """Let others open the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def finish_unit(self, index: int, files: list[WrittenFile]) -> None:
        """Note that all files of a unit are there."""
        self._files[index] = files
        _write_json(self._state / f"{index}.json", [asdict(file) for file in files])

    def finish(self) -> None:
        """Say what is there, and let readers in; closes the folder.

        Raises:
            DataError: There are no records, files differ in what a field holds, or somebody has
                removed one.
        """
        files = self.files
        if not files:
            raise DataError(f"there are no records to write to {self._root}")
        if missing := sorted({file.name for file in files} - self._names()):
            raise DataError(
                f"{self._root} has lost {missing[0]}, which this conversion had written: have "
                "nothing else write to the folder, and repeat the command, which makes it again"
            )
        forms = files[0].forms
        for file in files[1:]:
            # What one file cannot hold, all of them together should not.
            _check_alike(files[0], forms, file, has_shapes=self._plan["plan"]["format"] == "npz")
            forms = {name: form.joined(file.forms[name]) for name, form in forms.items()}
        _write_json(
            self._root / MANIFEST,
            {
                "format": self._plan["plan"]["format"],
                "sources": self._plan["plan"]["sources"],
                "num_records": sum(file.num_records for file in files),
                "fields": {name: str(form) for name, form in forms.items()},
                "files": {file.name: file.num_records for file in files},
            },
        )
        # In one step: a run that is killed here leaves no state of which a part is gone.
        state = self._state.rename(self._root / _FINISHED)
        # NFS keeps a removed file in its folder for as long as it is open, as the lock is.
        self.close()
        # All is there for readers, who skip what is left of it.
        shutil.rmtree(state, ignore_errors=True)

    def _names(self) -> set[str]:
        return {path.name for path in self._root.iterdir()}

    def _not_empty(self, found: set[str]) -> DataError:
        return DataError(
            f"{self._root} is not empty: name a new folder, or remove this one (it has "
            f"{min(found)})"
        )

    def _take_lock(self) -> None:
        path = self._state / _LOCK
        try:
            # The system gives it back when this process ends, however that comes about.
            self._lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                # Without locks, `finish` still sees what another run has removed.
                if error.errno not in _NO_LOCKS:
                    raise
            # Who had the lock may have finished before it was given to this run.
            is_there = os.path.samestat(os.fstat(self._lock), path.stat())
        except (BlockingIOError, FileNotFoundError):
            is_there = False
        if not is_there:
            raise DataError(
                f"another conversion is filling {self._root}: wait until it has ended, or name "
                "another folder"
            )

    def _go_on(self, found: set[str]) -> None:
        try:
            plan = self._state / _PLAN
            # A run that was killed at once has left none.
            before = json.loads(plan.read_text()) if plan.exists() else None
            for path in self._state.glob("[0-9]*.json"):
                files = [_file(item) for item in json.loads(path.read_text())]
                if found.issuperset(file.name for file in files):
                    self._files[int(path.stem)] = files
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{self._root} holds an unfinished conversion that cannot be read ({error}): "
                "remove the folder and start again"
            ) from error
        if before != self._plan and self._files:
            raise DataError(
                f"{self._root} holds an unfinished conversion of other sources or with other "
                "options: repeat it as it was, or remove the folder"
            )
        if before is None and found != {UNFINISHED}:
            raise self._not_empty(found - {UNFINISHED})
        if before != self._plan:
            _write_json(self._state / _PLAN, self._plan)
        done = {file.name for file in self.files}
        for pattern in (f"{FILE_PREFIX}*", f".{FILE_PREFIX}*"):
            for path in self._root.glob(pattern):
                # Of units that were under way: they come again.
                if path.name not in done:
                    path.unlink()


def _check_alike(
    first: WrittenFile, forms: dict[str, FieldForm], file: WrittenFile, has_shapes: bool
) -> None:
    for name in (*forms, *file.forms):
        one, other = forms.get(name), file.forms.get(name)
        if one is not None and other is not None:
            both = one.joined(other)
            is_alike = both == one if has_shapes else both.kind == one.kind
        else:
            is_alike = False
        if not is_alike:
            raise DataError(
                f"field {name!r} is {one or 'missing'} in {first.name}, but {other or 'missing'} "
                f"in {file.name}: make it the same everywhere, as with --type {name}=..."
            )


def _file(item: dict[str, Any]) -> WrittenFile:
    forms = {
        name: FieldForm(form["kind"], None if form["shape"] is None else tuple(form["shape"]))
        for name, form in item["forms"].items()
    }
    return WrittenFile(item["name"], item["num_records"], forms)


def _write_json(path: Path, value: Any) -> None:
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        unfinished.write_text(json.dumps(value, indent=1))
        unfinished.rename(path)
    except OSError as error:
        raise DataError(f"{path} cannot be written ({error.strerror}): make room") from error
