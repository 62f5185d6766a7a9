"""Where a job's results go: proved to take files before anything starts."""

import errno
import tempfile
from pathlib import Path
from typing import Final

from elastic.errors import JobSpecError
from elastic.spec.job import JobSpec
from elastic.spec.values import is_folder_form

_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
_DENIED: Final = (errno.EACCES, errno.EPERM)
_PROBE_BYTES: Final = 4096


def check_destinations(spec: JobSpec) -> None:
    """Make the folders that the job writes to, and write to each of them.

    Raises:
        JobSpecError: One cannot be made or written; hours of training would find that out last.
    """
    if spec.checkpoint_dir:
        _check("checkpoint_dir", Path(spec.checkpoint_dir), Path(spec.checkpoint_dir))
    check_results_free(spec)
    if spec.output:
        _check("output", Path(spec.output), Path(spec.output).parent)


def check_results_free(spec: JobSpec) -> None:
    """See that nothing else stands where the job's results go; make and write nothing.

    Raises:
        JobSpecError: A folder stands where a file is to be, or something else than a SavedModel
            where one is.
    """
    for name, text in (("output", spec.output), ("commit_log", spec.commit_log)):
        if not text:
            continue
        check = (
            _check_replaceable if name == "output" and is_folder_form(text) else _check_no_folder
        )
        try:
            check(name, Path(text))
        except OSError as error:
            raise JobSpecError(
                f"--{name}={text} cannot be written: {in_words(error)}: {advice(error)}"
            ) from error


def in_words(error: OSError) -> str:
    """What the system says, without its number; the path is told by whoever asks."""
    return error.strerror or str(error)


def advice(error: OSError) -> str:
    """What the user can do about it."""
    if error.errno in _NO_ROOM:
        return "free space there or name another path"
    if error.errno in _DENIED:
        return "make it writable or name another path"
    if error.errno == errno.EROFS:
        return "name a path that can be written, in a pod below the mount_path of a --volume"
    return "name another path"


def _check(name: str, path: Path, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(_PROBE_BYTES))
    except OSError as error:
        what = "cannot be a folder of checkpoints" if folder == path else "cannot be written"
        # mkdir says of a file that stands there only that it exists.
        said = "Not a directory" if isinstance(error, FileExistsError) else in_words(error)
        raise JobSpecError(f"--{name}={path} {what}: {folder}: {said}: {advice(error)}") from error


def _check_replaceable(name: str, path: Path) -> None:
    """Refuse a folder that is to become a SavedModel, and holds something else."""
    if path.is_file():
        raise JobSpecError(f"--{name}={path} is a file: name a folder that is not there yet")
    if path.is_dir() and any(path.iterdir()) and not (path / "saved_model.pb").is_file():
        raise JobSpecError(
            f"--{name}={path} holds other files than a SavedModel: name a folder that is not "
            "there yet"
        )


def _check_no_folder(name: str, path: Path) -> None:
    if path.is_dir():
        raise JobSpecError(f"--{name}={path} is a folder: name a file, such as {path / 'NAME'}")
