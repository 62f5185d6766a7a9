"""The command line's side of the local platform.

A job is put into its folder: anew, over one that has ended, or going on from it.
"""

import logging
import os
import secrets
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from elastic.errors import JobExistsError, JobNotFoundError, JobSpecError, PlatformError
from elastic.platforms.base import (
    BoardFolder,
    LogLine,
    StillAliveError,
    has_ended,
    unheard,
    writes_no_events,
)
from elastic.platforms.local.directory import (
    JobDirectory,
    Lock,
    Submission,
    entries,
    exists,
    follow_logs,
    read_logs,
    remove,
)
from elastic.platforms.local.processes import (
    Member,
    find_members,
    has_left,
    has_master,
    has_supervisor,
    is_stopped,
    members_of,
    signal_members,
    usable_cores,
    with_seen_workers,
)
from elastic.platforms.local.supervisor import publish_end, start_supervisor
from elastic.policy.accounts import only_here, resumed
from elastic.policy.fleet import desired_workers
from elastic.policy.replicas import CANCEL, KEEPING
from elastic.spec.job import JobSpec
from elastic.spec.platforms import JobKind
from elastic.spec.roles import MASTER, ROLES
from elastic.spec.status import JobPhase, JobStatus, with_present_speed
from elastic.spec.values import Certificate, Since, other_jobs

COMMANDS: Final = {
    # -P: a file of the working folder must not stand in for one of our imports.
    role.name: (sys.executable, "-P", "-m", role.module)
    for role in ROLES.values()
}
"""By role, the program of a replica; it is given `--job-dir`, and which one it is."""

SUBMIT_LOCK_TIMEOUT_S: Final = 0.5
"""Whoever only asks whether the lock is held holds it for an instant."""

ENDING_TIMEOUT_S: Final = 30.0
"""How long a job that has published its end may take to leave before its name is reused."""


class LocalPlatform:
    """Jobs of one user on this machine, below `home` (`$ELASTIC_HOME` or `~/.elastic`)."""

    def __init__(
        self,
        home: Path,
        commands: Mapping[str, tuple[str, ...]] = COMMANDS,
        start_supervisor: Callable[[JobDirectory], None] = start_supervisor,
    ) -> None:
        self._jobs_path = home.absolute() / "jobs"
        self._commands = commands
        self._start_supervisor = start_supervisor

    def submit(self, spec: JobSpec) -> None:
        """Start the job's master, below a supervisor that outlives this process, and return.

        Raises:
            JobSpecError: The job has no name.
            JobExistsError: A job of that name runs, or its kept state would be overwritten.
            PlatformError: The master could not be started; nothing was left behind.
        """
        if not spec.job_name:
            raise JobSpecError("the job has no name: pass --job_name")
        with job_lock(self._jobs_path, spec.job_name, SUBMIT_LOCK_TIMEOUT_S):
            submit_job(self._jobs_path, spec, self._commands, self._start_supervisor)

    def now_s(self) -> float:
        """Seconds since the epoch by this machine's clock, on which the jobs run."""
        return time.time()

    def jobs(self) -> Sequence[str]:
        """Names of all known jobs, running or ended, oldest first."""
        submissions = [
            (submitted_s, path.name)
            for path in entries(self._jobs_path)
            if not path.name.startswith(".")
            and (submitted_s := _submitted_s(JobDirectory(path))) is not None
        ]
        return [name for _, name in sorted(submissions)]

    def statuses(self) -> Sequence[JobStatus]:
        """`status` of all `jobs`."""
        found = []
        for name in self.jobs():
            # Somebody may remove a job between the two calls.
            with suppress(JobNotFoundError):
                found.append(self._status_or_damage(name))
        return found

    def _status_or_damage(self, job_name: str) -> JobStatus:
        """The status, or what has become of it: one job's damage is not that of the others."""
        try:
            return self.status(job_name)
        except PlatformError as error:
            return JobStatus(
                job_name=job_name, phase=JobPhase.FAILED, reason="Damaged", message=str(error)
            )

    def status(self, job_name: str) -> JobStatus:
        """What the master published last, corrected by what is seen of its processes.

        Raises:
            JobNotFoundError: No such job.
        """
        directory = self._directory(job_name)
        is_attended = self._is_attended(directory)
        # Read after the look: a job that ended in between has published its end by now.
        status = self._published(directory)
        if is_attended and not status.phase.is_final:
            status = _with_wish(directory, status)
            return with_present_speed(self._between_masters(directory, status))
        if not status.phase.is_final:
            status = self._abandoned(directory, status)
        return with_present_speed(with_seen_workers(directory, status))

    def spec(self, job_name: str) -> JobSpec:
        """The specification the job was submitted with.

        Raises:
            JobNotFoundError: No such job.
        """
        spec = self._directory(job_name).spec()
        if spec is None:
            raise self._not_found(job_name)
        return spec

    def submitted_s(self, job_name: str) -> float | None:
        """When it was submitted last.

        Raises:
            JobNotFoundError: No such job.
        """
        return _submitted_s(self._directory(job_name))

    def board(self, job_name: str) -> BoardFolder:
        """The folder of the job's event files.

        Raises:
            JobNotFoundError: No such job.
            JobSpecError: It writes none.
        """
        path = self.spec(job_name).tensorboard_log_dir
        if not path:
            raise writes_no_events(job_name)
        return BoardFolder(Path(path))

    def scale(self, job_name: str, num_workers: int) -> None:
        """Ask a running job for another number of workers.

        Raises:
            JobNotFoundError: No such job.
            JobSpecError: The job has ended, or the number is outside its range.
        """
        directory = self._directory(job_name)
        status = self.status(job_name)
        if status.phase.is_final:
            raise has_ended(job_name, status)
        if not self._is_attended(directory):
            raise JobSpecError(f"job {job_name!r} does not run: {status.message}")
        allowed = self.spec(job_name).num_workers
        if not allowed.minimum <= num_workers <= allowed.maximum:
            raise JobSpecError(
                f"{num_workers} workers are outside the range {allowed} of job {job_name!r}: "
                "choose a number within it, or submit the job with another --num_workers MIN:MAX"
            )
        directory.write_size(num_workers)
        directory.master_bell.ring()

    def kill(
        self, job_name: str, timeout_s: float, on_wait: Callable[[str], None] = unheard
    ) -> None:
        """Cancel the job and wait until none of its processes is left; idempotent.

        Raises:
            JobNotFoundError: No such job.
            StillAliveError: Something was still alive after `timeout_s`.
        """
        directory = self._directory(job_name)
        # Before the lock, which whoever asked first holds until the job has ended.
        hurry(directory)
        try:
            with job_lock(self._jobs_path, job_name, timeout_s):
                kill_job(directory, timeout_s, on_wait)
        except JobExistsError as error:
            raise PlatformError(str(error)) from error

    def would_lose(self, status: JobStatus) -> str:
        """What would be lost if a job that has ended were forgotten; empty where nothing is.

        Raises:
            JobNotFoundError: No such job.
        """
        directory = self._directory(status.job_name)
        has_kept = any(entries(path) for path in directory.kept_paths)
        return only_here(_without_gone_results(status), directory.path, has_kept)

    def forget(self, job_name: str) -> None:
        """Remove the folder of a job that has ended.

        Raises:
            JobNotFoundError: No such job.
            JobExistsError: It runs.
        """
        directory = self._directory(job_name)
        with job_lock(self._jobs_path, job_name, SUBMIT_LOCK_TIMEOUT_S):
            status = readable_status(directory)
            # A job that has told its end is given time to leave.
            has_ended = status is not None and status.phase.is_final
            if not has_left(directory, ENDING_TIMEOUT_S if has_ended else 0.0):
                raise JobExistsError(f"job {job_name!r} is running: `elastic kill` it first")
            shutil.rmtree(directory.path, ignore_errors=True)
        if exists(directory.path):
            raise PlatformError(f"cannot remove {directory.path}: mend its permissions")

    def logs(
        self,
        job_name: str,
        replicas: Sequence[str],
        follow: bool,
        tail: int | None,
        previous: bool = False,
        since: Since | None = None,
    ) -> Iterator[LogLine]:
        """Lines of the named replicas or roles (all when empty), prefixed by replica.

        With `follow`, goes on until the job has ended; `tail` then limits where it begins.

        Raises:
            JobNotFoundError: No such job.
            JobSpecError: With `previous`: a local log holds all lives.
            PlatformError: Without `follow`: a replica was named that has no log.
        """
        directory = self._directory(job_name)
        since_s = None if since is None else since.at_s(time.time())
        if previous:
            raise JobSpecError("a local log holds all lives of its replica: leave out --previous")
        if follow:
            return follow_logs(
                directory, replicas, tail, lambda: not self._is_attended(directory), since_s
            )
        return read_logs(directory, replicas, tail, since_s)

    def _directory(self, job_name: str) -> JobDirectory:
        directory = JobDirectory(self._jobs_path / job_name)
        # A name with a slash or a leading dot is a path, and none that a job can have.
        is_name = Path(job_name).name == job_name and not job_name.startswith(".")
        if not is_name or not exists(directory.submission_path):
            raise self._not_found(job_name)
        return directory

    def _not_found(self, job_name: str) -> JobNotFoundError:
        others = other_jobs(job_name, list(reversed(self.jobs())))
        return JobNotFoundError(f"no job {job_name!r} in {self._jobs_path}: {others}")

    def _is_attended(self, directory: JobDirectory) -> bool:
        """Whether the job has, or is just being given, processes that decide."""
        return (
            has_supervisor(directory)
            or lock_of(self._jobs_path, directory.path.name).is_held()
            or has_master(directory)
        )

    def _between_masters(self, directory: JobDirectory, status: JobStatus) -> JobStatus:
        """Say so where the last master has ended and its supervisor holds back the next."""
        masters = [o.replica for o in directory.observed() if o.replica.id.role == MASTER]
        newest = max(masters, key=lambda master: master.id.launch, default=None)
        if newest is None or newest.exit_reason is None:
            return status
        message = f"the master ended ({newest.message}) and is started again"
        return status.entering(JobPhase.RECOVERING, "MasterLost", message)

    def _abandoned(self, directory: JobDirectory, status: JobStatus) -> JobStatus:
        """Say what is left where nobody decides for the job, and how one decides."""
        num_left = len(members_of(directory))
        if num_left:
            what = f"its master is gone, and its other processes wait for one ({num_left} alive)"
            end = f", `elastic kill {directory.path.name}` ends it"
        else:
            what, end = "no process of this job is alive", ""
        again = f"`elastic {status.kind} --resume` goes on from its last cut"
        if not status.kind.can_resume:
            again = f"`elastic {status.kind} --overwrite` starts it anew"
        message = f"{what}; {again}{end}"
        return status.entering(JobPhase.RECOVERING, "NoMaster", message)

    def _published(self, directory: JobDirectory) -> JobStatus:
        status = directory.status() or JobStatus(job_name=directory.path.name)
        submission = directory.submission()
        if status.submitted_s is None and submission is not None:
            status = status.model_copy(update={"submitted_s": submission.submitted_s})
        return status


def _without_gone_results(status: JobStatus) -> JobStatus:
    """The status without the results that its user has removed since; an address is believed."""
    told = {name: getattr(status, name) for name in ("export", "checkpoint", "predictions")}
    gone = [n for n, path in told.items() if path and "://" not in path and not exists(Path(path))]
    return status.model_copy(update=dict.fromkeys(gone))


def _submitted_s(directory: JobDirectory) -> float | None:
    """When a job was submitted, None if it was not; of one whose note is damaged, long ago."""
    try:
        submission = directory.submission()
    except PlatformError:
        return 0.0
    return None if submission is None else submission.submitted_s


def _with_wish(directory: JobDirectory, status: JobStatus) -> JobStatus:
    """The status with what its master is going to want, before it has said so."""
    spec = None if status.desired_workers else directory.spec()
    if spec is None:
        return status
    wanted = desired_workers(spec.num_workers, directory.control().num_workers, usable_cores())
    return status.model_copy(update={"desired_workers": wanted})


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
            _resume(directory, staged, spec.kind)
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


def _resume(directory: JobDirectory, staged: JobDirectory, kind: JobKind) -> None:
    """Let the new submission take over the folder with its cuts, logs and history."""
    status, earlier = directory.sound_status(), directory.submission()
    if status is not None:
        # How it ended does not stay, or the new supervisor would believe it.
        submitted_s = None if earlier is None else earlier.submitted_s
        staged.write_status(resumed(status, submitted_s, kind))
    try:
        for path in (directory.desired_path, directory.observed_path, directory.exits_path):
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir(mode=0o700)
        for path in directory.replica_paths():
            # Rows of a run have its name, and the next one begins with those of a checkpoint.
            shutil.rmtree(path, ignore_errors=True)
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


# Ends all processes of a job: by asking its master, then by signals, then by force.


logger = logging.getLogger(__name__)

POLL_S: Final = 0.05
MASTER_S: Final = 15.0
"""What a master gets that does not say that it keeps its newest version: one that hears nothing
should not use up a patient caller."""
TERM_GRACE_S: Final = 5.0
FORCE_TIMEOUT_S: Final = 1.0
"""Even a hurried caller waits this long for SIGKILL to take effect."""


class _Watch:
    """Looks at the processes of a submission until each has really ended.

    A dying process shows no environment once it gives its memory back, but keeps its files, ports
    and locks a while longer, so whoever was seen is waited for by a descriptor.
    """

    def __init__(self, uid: str, on_wait: Callable[[str], None]) -> None:
        self._uid = uid
        self._on_wait = on_wait
        self._descriptors: dict[int, int] = {}

    def members(self) -> list[Member]:
        """Those that are there now."""
        members = find_members(self._uid)
        for pid in {member.pid for member in members} - self._descriptors.keys():
            with suppress(ProcessLookupError):
                self._descriptors[pid] = os.pidfd_open(pid)
        return members

    def has_ended(self) -> bool:
        """Whether nobody is there and everybody seen before is gone."""
        poll = select.poll()
        for descriptor in self._descriptors.values():
            poll.register(descriptor, select.POLLIN)
        members = self.members()
        if members:
            self._on_wait(f"{_names(members)} to end")
        return not members and len(poll.poll(0)) == len(self._descriptors)

    def close(self) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)


def _names(members: Sequence[Member]) -> str:
    """`master-0, worker-0 and its supervisor`; of what they started themselves, nothing."""
    replicas = sorted({member.replica.name for member in members if member.replica})
    supervisor = ["its supervisor"] if any(m.replica is None for m in members) else []
    return " and ".join(filter(None, [", ".join(replicas), *supervisor]))


@contextmanager
def _watch(uid: str, on_wait: Callable[[str], None] = unheard) -> Iterator[_Watch]:
    watch = _Watch(uid, on_wait)
    try:
        yield watch
    finally:
        watch.close()


def kill_job(
    directory: JobDirectory, timeout_s: float, on_wait: Callable[[str], None] = unheard
) -> None:
    """Cancel a job and wait until none of its processes is left.

    At most half of the time is the master's, to keep its newest version, to publish the end and to
    take leave of its workers; then comes SIGTERM, and with the last quarter SIGKILL. A job that has
    not trained yet has nothing to keep, and a master that imports a framework hears no request.

    Raises:
        StillAliveError: Something was still alive after `timeout_s`.
    """
    now_s = time.monotonic()
    submission = directory.submission()
    if submission is not None:
        with _watch(submission.uid, on_wait) as watch:
            if not watch.has_ended():
                _ask(directory)
                if _has_trained(directory):
                    _await_clean_end(directory, watch, now_s, timeout_s / 2)
                signal_members(watch.members(), signal.SIGTERM)
                term_grace_s = min(TERM_GRACE_S, timeout_s / 4)
                _await_end(watch, time.monotonic() + term_grace_s)
            _force(watch, directory, now_s, timeout_s)
    # One that cannot be read, and is not damaged, may tell an end that must not be overwritten.
    status = directory.sound_status()
    if status is None or not status.phase.is_final:
        publish_end(directory, status, CANCEL)


def readable_status(directory: JobDirectory) -> JobStatus | None:
    """What was published; None also where it cannot be read, which must keep no process alive."""
    try:
        return directory.status()
    except PlatformError:
        return None


def _force(watch: _Watch, directory: JobDirectory, started_s: float, timeout_s: float) -> None:
    deadline_s = max(started_s + timeout_s, time.monotonic() + FORCE_TIMEOUT_S)
    if not _end_members(watch, deadline_s):
        left = ", ".join(str(member.pid) for member in watch.members())
        raise StillAliveError(
            f"processes of {directory.path.name!r} were alive after {timeout_s:g} s: {left}: "
            "try again with a longer timeout"
        )


def end_members(uid: str, deadline_s: float) -> bool:
    """SIGKILL all that carry the uid until none is left; False where some outlived `deadline_s`."""
    with _watch(uid) as watch:
        return _end_members(watch, deadline_s)


def _end_members(watch: _Watch, deadline_s: float) -> bool:
    quiet_looks = 0
    # A process that is just being replaced by exec shows no environment, so one look may miss it.
    while quiet_looks < 2:
        has_ended = watch.has_ended()
        quiet_looks = quiet_looks + 1 if has_ended else 0
        if not has_ended and time.monotonic() > deadline_s:
            return False
        members = watch.members()
        # The supervisor goes first, so that it starts nothing new for what dies.
        signal_members([m for m in members if m.replica is None], signal.SIGKILL)
        signal_members([m for m in members if m.replica is not None], signal.SIGKILL)
        time.sleep(0.01)
    return True


def _ask(directory: JobDirectory) -> None:
    try:
        directory.write_cancelled()
    except PlatformError as error:
        # The disk is full, so nobody can be asked; signals need no room.
        logger.warning("%s", error)
    directory.master_bell.ring()
    directory.supervisor_bell.ring()


def _has_trained(directory: JobDirectory) -> bool:
    status = readable_status(directory)
    return status is not None and status.phase not in (JobPhase.PENDING, JobPhase.STARTING)


def hurry(directory: JobDirectory) -> None:
    """Have a job whose end was asked for before end at once: nobody waits for its last version."""
    submission = directory.submission()
    if submission is not None and directory.is_cancelled():
        signal_members(find_members(submission.uid), signal.SIGTERM)


def _keeps_version(directory: JobDirectory) -> bool:
    status = readable_status(directory)
    return status is not None and status.reason == KEEPING


def _await_clean_end(
    directory: JobDirectory, watch: _Watch, started_s: float, patience_s: float
) -> None:
    while not watch.has_ended():
        waited_s = time.monotonic() - started_s
        if waited_s >= patience_s or (waited_s >= MASTER_S and not _keeps_version(directory)):
            return
        if not directory.is_cancelled() or not _can_end_itself(watch.members()):
            return
        time.sleep(POLL_S)


def _can_end_itself(members: list[Member]) -> bool:
    """Whether a supervisor or a master is there, either of which ends the rest, and none halts."""
    deciders = [m for m in members if m.replica is None or m.replica.role == MASTER]
    return bool(deciders) and not any(is_stopped(m.pid) for m in deciders)


def _await_end(watch: _Watch, deadline_s: float) -> None:
    while time.monotonic() < deadline_s and not watch.has_ended():
        time.sleep(POLL_S)
