"""Puts a job into its folder: anew, over one that has ended, or going on from it."""

import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from elastic.errors import JobExistsError, PlatformError
from elastic.platforms.local.directory import JobDirectory, Submission
from elastic.platforms.local.files import Lock, entries, exists, remove
from elastic.platforms.local.killing import end_members, readable_status
from elastic.platforms.local.processes import has_master, has_supervisor
from elastic.policy.ended_jobs import resumed
from elastic.spec.certificate import Certificate
from elastic.spec.job import JobSpec
from elastic.spec.status import JobPhase

ENDING_TIMEOUT_S: Final = 30.0
"""How long a job that has published its end may take to leave before its name is reused."""


@contextmanager
def job_lock(jobs_path: Path, job_name: str, timeout_s: float) -> Iterator[None]:
    """Keep others from submitting or killing the job of this name meanwhile.

    Raises:
        JobExistsError: Another process is at it, and still was after `timeout_s`.
    """
    try:
        jobs_path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise PlatformError(f"cannot make {jobs_path}: {error.strerror}") from error
    lock = lock_of(jobs_path, job_name)
    deadline_s = time.monotonic() + timeout_s
    while not lock.take():
        if time.monotonic() >= deadline_s:
            raise JobExistsError(
                f"job {job_name!r} is being submitted or killed by another process: "
                f"see `elastic status {job_name}`"
            )
        time.sleep(0.02)
    try:
        yield
    finally:
        lock.release()


def lock_of(jobs_path: Path, job_name: str) -> Lock:
    """The lock that `job_lock` takes."""
    return Lock(jobs_path / f".{job_name}.lock")


def submit_job(
    jobs_path: Path,
    spec: JobSpec,
    commands: Mapping[str, tuple[str, ...]],
    start_supervisor: Callable[[JobDirectory], None],
) -> JobDirectory:
    """Place the job and start its supervisor; the caller holds the job's lock.

    Raises:
        JobExistsError: A job of that name runs, or has ended and may not be touched.
        PlatformError: Something could not be written or started; a new job left nothing behind.
    """
    directory = JobDirectory(jobs_path / spec.job_name)
    is_there = exists(directory.path)
    if is_there:
        _check_may_replace(directory, spec)
    submission = Submission(secrets.token_hex(16), time.time(), dict(commands))
    with _staging(jobs_path, spec.job_name) as staging_path:
        staged = JobDirectory(staging_path / "job")
        staged.write_submission(spec, submission, secrets.token_hex(32), _certificate(spec))
        if is_there and spec.resume:
            _resume(directory, staged)
        else:
            _place(directory, staged, replaced_path=staging_path / "replaced")
    try:
        start_supervisor(directory)
    except PlatformError:
        if not (is_there and spec.resume):
            shutil.rmtree(directory.path, ignore_errors=True)
        raise
    return directory


def _certificate(spec: JobSpec) -> Certificate | None:
    if not spec.is_encrypted:
        return None
    # Rare here, and not quickly imported.
    from elastic.platforms.certificates import make_certificate

    return make_certificate(secrets.token_hex(32))


def _check_may_replace(directory: JobDirectory, spec: JobSpec) -> None:
    name = spec.job_name
    status, old = readable_status(directory), directory.submission()
    deadline_s = time.monotonic() + ENDING_TIMEOUT_S
    while has_supervisor(directory) or has_master(directory):
        has_ended = status is not None and status.phase.is_final
        if not has_ended:
            raise JobExistsError(
                f"job {name!r} is running: choose another --job_name, "
                f"or `elastic kill {name}` first"
            )
        if time.monotonic() > deadline_s:
            raise JobExistsError(
                f"job {name!r} has ended, but a process of it is still there after "
                f"{ENDING_TIMEOUT_S:g} s: try again, or `elastic kill {name}` first"
            )
        time.sleep(0.02)
    if not spec.overwrite and not spec.resume:
        phase = status.phase if status is not None else JobPhase.PENDING
        how = f"has ended as {phase}" if phase.is_final else "has lost all its processes"
        raise JobExistsError(
            f"job {name!r} {how}: pass --resume to go on from its last cut, "
            "or --overwrite to remove it and start anew"
            if spec.kind.can_resume
            else f"job {name!r} {how}: pass --overwrite to remove it and start anew"
        )
    if old is not None and not end_members(old.uid, time.monotonic() + ENDING_TIMEOUT_S):
        raise PlatformError(
            f"processes of the earlier job {name!r} cannot be ended: `elastic kill {name}`"
        )


@contextmanager
def _staging(jobs_path: Path, job_name: str) -> Iterator[Path]:
    """A folder beside the job's, removed at the end, and with it what a killed one left."""
    leftovers = [p for p in entries(jobs_path) if p.name.startswith(f".{job_name}.new-")]
    for leftover in leftovers:
        shutil.rmtree(leftover, ignore_errors=True)
    try:
        path = Path(tempfile.mkdtemp(prefix=f".{job_name}.new-", dir=jobs_path))
    except OSError as error:
        raise PlatformError(f"cannot make a folder in {jobs_path}: {error.strerror}") from error
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _place(directory: JobDirectory, staged: JobDirectory, replaced_path: Path) -> None:
    try:
        if exists(directory.path):
            directory.path.rename(replaced_path)
        staged.path.rename(directory.path)
    except OSError as error:
        if replaced_path.exists():
            replaced_path.rename(directory.path)
        raise PlatformError(f"cannot place the job at {directory.path}: {error}") from error


def _resume(directory: JobDirectory, staged: JobDirectory) -> None:
    """Let the new submission take over the folder with its cuts, logs and history."""
    status, earlier = directory.sound_status(), directory.submission()
    if status is not None:
        # How it ended does not stay, or the new supervisor would believe it.
        staged.write_status(resumed(status, None if earlier is None else earlier.submitted_s))
    try:
        for path in (directory.desired_path, directory.observed_path, directory.exits_path):
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir(mode=0o700)
        for path in (
            directory.control_path,
            directory.cancelled_path,
            directory.address_path,
            directory.chain_path,
            directory.key_path,
        ):
            remove(path)
        if status is None:
            # There is none, or a damaged one.
            remove(directory.status_path)
        # Everything that takes room is written by now, so a full disk has stopped us before.
        for entry in (p for p in staged.path.iterdir() if p.is_file()):
            entry.replace(directory.path / entry.name)
    except OSError as error:
        raise PlatformError(f"cannot resume the job at {directory.path}: {error}") from error
