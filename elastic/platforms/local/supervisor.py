"""The process behind a local job: what runs is made equal to what is desired, until the job ends.

It keeps the master running, and starts and ends what the master wants.
`python -m elastic.platforms.local.supervisor JOB_DIR` returns when a supervisor is at work: this
one, gone into the background, or one that was there before (exit code `EXIT_BUSY`).
"""

import argparse
import logging
import os
import selectors
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Final

import elastic
from elastic.errors import PlatformError
from elastic.platforms.base import Replica, ReplicaId
from elastic.platforms.local.directory import JobDirectory, Submission, exists, last_line
from elastic.platforms.local.processes import (
    JOB_UID_VARIABLE,
    REPLICA_VARIABLE,
    SHARE_VARIABLE,
    find_members,
    signal_members,
)
from elastic.platforms.local.replicas import MemoryKills, ReplicaTable
from elastic.platforms.process import own_counter, read_step
from elastic.policy.replicas import CANCEL, EndJob, RestartMaster, on_exit
from elastic.spec.platforms import PlatformName
from elastic.spec.roles import MASTER, is_kept_by_platform
from elastic.spec.status import JobStatus, MasterHistory

logger = logging.getLogger(__name__)

SUPERVISOR_MODULE: Final = "elastic.platforms.local.supervisor"
EXIT_BUSY: Final = 3
START_TIMEOUT_S: Final = 60.0
LOCK_TIMEOUT_S: Final = 1.0

TICK_S: Final = 1.0
"""How often everything is looked at where no bell rang."""

MIN_WAIT_S: Final = 0.05
"""Between two looks: a process that SIGKILL cannot end at once must not make us spin."""

END_GRACE_S: Final = 5.0
"""For workers of a job that has ended; their master has told them already."""

MASTER_GRACE_S: Final = 30.0
"""For a master to exit after it has published the end of its job."""


def start_supervisor(directory: JobDirectory) -> None:
    """Have a supervisor at work on the job, be it a new one or one that is there.

    Raises:
        PlatformError: It could not be started.
    """
    submission = directory.submission()
    if submission is None:
        raise PlatformError(f"{directory.path} holds no job: submit it again")
    log_path = directory.supervisor_log_path
    try:
        with log_path.open("ab") as log:
            # No other program's module may stand before ours, so the working folder is left out
            # of the import path (-P).
            done = subprocess.run(
                [sys.executable, "-P", "-m", SUPERVISOR_MODULE, str(directory.path)],
                env=supervisor_environment(submission),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                timeout=START_TIMEOUT_S,
                check=False,
            )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PlatformError(f"cannot start a supervisor for {directory.path}: {error}") from error
    if done.returncode not in (0, EXIT_BUSY):
        raise PlatformError(
            f"cannot start a supervisor for {directory.path}: {last_line(log_path)}: "
            f"read {log_path}"
        )


def supervisor_environment(submission: Submission) -> dict[str, str]:
    """What a supervisor is started with: what this process has, but for what is its own alone."""
    environment = os.environ | _import_environment() | {JOB_UID_VARIABLE: submission.uid}
    own_share = environment.pop(SHARE_VARIABLE, "").split(",")
    for variable in (REPLICA_VARIABLE, *own_share):
        environment.pop(variable, None)
    return environment


class Reconciler:
    """Makes what runs equal to what is desired, until the job ends or somebody asks to stop."""

    def __init__(
        self,
        directory: JobDirectory,
        submission: Submission,
        table: ReplicaTable,
        selector: selectors.BaseSelector,
    ) -> None:
        """Keep the parts, see `open`."""
        self._directory = directory
        self._submission = submission
        self._table = table
        self._selector = selector
        self._history = MasterHistory()
        self._master = ReplicaId(MASTER, 0, 0)
        self._start_master_at_s = 0.0
        self._final_since_s: float | None = None
        self._is_ending = False
        self._is_stop_asked = False
        self._unpublished: EndJob | None = None
        self._uncounted: Replica | None = None

    @classmethod
    def open(
        cls, directory: JobDirectory, submission: Submission, environment: dict[str, str]
    ) -> "Reconciler":
        """The reconciler of a job, for whose processes this one may wait.

        Args:
            environment: What replicas are started with.
        """
        selector = selectors.DefaultSelector()
        table = ReplicaTable(
            directory,
            submission,
            partial(command_line, directory, submission),
            environment,
            selector,
            MemoryKills.since_now(own_counter()),
        )
        return cls(directory, submission, table, selector)

    def run(self) -> None:
        """Work until no replica is left and none is wanted."""
        bell = self._directory.supervisor_bell
        self._selector.register(bell.listen(), selectors.EVENT_READ)
        for signal_number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signal_number, self._on_signal)
        is_restored = False
        while True:
            try:
                if not is_restored:
                    self._restore()
                    is_restored = True
                self._step()
            except (PlatformError, OSError) as error:
                # Full disk, a damaged file, no descriptor left: what runs goes on, and the next
                # tick tries again.
                logger.warning("%s", error)
            if self._is_ending and not self._table.running():
                break
            self._selector.select(self._timeout_s())
            bell.silence()
        signal_members(find_members(self._submission.uid), signal.SIGKILL)
        self._table.flush()
        self._directory.master_bell.ring()

    def _restore(self) -> None:
        """Go on where an earlier supervisor of this submission was lost."""
        masters = [o.replica for o in self._directory.observed() if _is_master(o.replica.id)]
        newest = max(masters, key=lambda master: master.id.launch, default=None)
        if newest is not None:
            self._master = newest.id
        self._on_ended(self._table.adopt())
        if newest is not None and newest.exit_reason is not None:
            self._uncounted = newest

    def _step(self) -> None:
        self._on_ended(self._table.reap())
        self._table.kill_overdue()
        self._table.flush()
        if self._is_stop_asked:
            self._end(END_GRACE_S)
        if not exists(self._directory.submission_path):
            logger.warning("the job's folder is gone: ending its processes")
            self._end(END_GRACE_S)
        if not self._is_ending:
            self._count_master()
        if not self._is_ending:
            self._keep_master()
            self._follow_desired()
        self._publish_end()

    def _follow_desired(self) -> None:
        desired = self._directory.desired()
        ended = []
        for item in desired:
            if item.delete_grace_s is not None:
                ended.append(self._table.delete(item.replica, item.delete_grace_s))
            elif not self._table.knows(item.replica):
                ended.append(self._table.start(item.replica))
                self._directory.master_bell.ring()
        self._table.forget_all_but({item.replica for item in desired})
        self._on_ended([replica for replica in ended if replica is not None])

    def _keep_master(self) -> None:
        if self._table.is_running(self._master):
            self._hurry_final_master()
        elif self._directory.is_cancelled():
            self._end_job(CANCEL)
        elif time.monotonic() >= self._start_master_at_s:
            last, self._master = self._master, ReplicaId(MASTER, 0, self._master.launch + 1)
            # Set before the start: one that fails for a full disk is tried again a tick later.
            self._start_master_at_s = time.monotonic() + TICK_S
            failed = self._table.start(self._master)
            # The end of the last one is for the next to tell.
            self._directory.forget(ReplicaId(MASTER, 0, last.launch - 1))
            self._on_ended([] if failed is None else [failed])
            self._count_master()

    def _hurry_final_master(self) -> None:
        """End a master that stays on after its job: a thread of the user's code may hold it."""
        status = self._directory.sound_status()
        if status is None or not status.phase.is_final:
            return
        now_s = time.monotonic()
        self._final_since_s = self._final_since_s or now_s
        if now_s - self._final_since_s > MASTER_GRACE_S:
            self._table.delete(self._master, END_GRACE_S)

    def _on_ended(self, ended: list[Replica]) -> None:
        if ended:
            self._directory.master_bell.ring()
        for replica in ended:
            if replica.id == self._master:
                self._uncounted = replica

    def _count_master(self) -> None:
        """Choose what follows the end of the master; where nothing can be read now, next time."""
        master = self._uncounted
        if master is None:
            return
        self._history, verdict = on_exit(
            self._history,
            master,
            self._directory.sound_status(),
            self._directory.is_cancelled(),
            read_step(self._directory.step_path),
        )
        self._uncounted = None
        match verdict:
            case RestartMaster(delay_s):
                logger.warning(
                    "master ended (%s: %s), next in %g s",
                    master.exit_reason,
                    master.message,
                    delay_s,
                )
                self._start_master_at_s = time.monotonic() + delay_s
            case EndJob():
                self._end_job(verdict)

    def _end_job(self, verdict: EndJob) -> None:
        # Ended first: where the disk is full and nothing can be published, it ends all the same.
        self._end(END_GRACE_S)
        self._unpublished = verdict
        self._publish_end()

    def _publish_end(self) -> None:
        if self._unpublished is not None and self._unpublished.phase is not None:
            status = self._directory.sound_status()
            publish_end(self._directory, status, self._unpublished)
        self._unpublished = None

    def _end(self, grace_s: float) -> None:
        self._is_ending = True
        for replica in self._table.running():
            self._table.delete(replica, grace_s)

    def _on_signal(self, signal_number: int, _frame: FrameType | None) -> None:
        logger.warning("asked to stop by %s", signal.Signals(signal_number).name)
        self._is_stop_asked = True
        self._directory.supervisor_bell.ring()

    def _timeout_s(self) -> float:
        now_s = time.monotonic()
        deadlines_s = [now_s + TICK_S]
        next_kill_s = self._table.next_kill_s()
        if next_kill_s is not None:
            deadlines_s.append(next_kill_s)
        if not self._table.is_running(self._master) and not self._is_ending:
            deadlines_s.append(self._start_master_at_s)
        return max(min(deadlines_s) - now_s, MIN_WAIT_S)


def command_line(directory: JobDirectory, submission: Submission, replica: ReplicaId) -> list[str]:
    """What a replica is started by.

    Raises:
        ValueError: Its role has no program.
    """
    command = submission.commands.get(replica.role)
    if command is None:
        raise ValueError(f"no program is known for the role {replica.role!r}")
    arguments = [PlatformName.LOCAL.traits.program_flag, str(directory.path)]
    if not is_kept_by_platform(replica.role):
        arguments += ["--index", str(replica.index), "--launch", str(replica.launch)]
    return [*command, *arguments]


def publish_end(directory: JobDirectory, status: JobStatus | None, end: EndJob) -> None:
    """Publish the end of a job in place of its master, which must be gone.

    Args:
        directory: Of the job.
        status: What the master published last, if that is known.
        end: How the job ends.

    Raises:
        PlatformError: The status could not be written.
    """
    assert end.phase is not None
    status = status or JobStatus(job_name=directory.path.name)
    now_s = time.time()
    ended = status.entering(end.phase, end.reason, end.message, ended_s=now_s, updated_s=now_s)
    directory.write_status(ended)


def _is_master(replica: ReplicaId) -> bool:
    return replica.role == MASTER


def main(arguments: list[str]) -> int:
    """Take the job's lock, go into the background and supervise."""
    parser = argparse.ArgumentParser(prog="elastic-supervisor")
    parser.add_argument("job_dir", type=Path)
    directory = JobDirectory(parser.parse_args(arguments).job_dir)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    submission, spec = directory.submission(), directory.spec()
    if submission is None or spec is None:
        logger.error("%s holds no job", directory.path)
        return 1
    if not _take_lock(directory):
        return EXIT_BUSY
    # The lock is shared with the child, so it is held without a gap while we leave.
    if os.fork() != 0:
        os._exit(0)
    _reset_signals()
    logger.info("supervising %s as pid %d", directory.path, os.getpid())
    environment = dict(os.environ) | spec.envs
    Reconciler.open(directory, submission, environment).run()
    logger.info("nothing is left to supervise")
    return 0


def _take_lock(directory: JobDirectory) -> bool:
    # Whoever only asks whether there is a supervisor holds the lock for an instant.
    deadline_s = time.monotonic() + LOCK_TIMEOUT_S
    while not directory.supervisor_lock.take():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.01)
    return True


def _reset_signals() -> None:
    """Undo what a shell's `&`, `nohup` or a caller's mask would hand on to all replicas."""
    for signal_number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signal_number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _import_environment() -> dict[str, str]:
    """What lets replicas import this package from a source checkout as well."""
    root = Path(elastic.__file__).resolve().parent.parent
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    # An installed package is found anyway, and its folder must not come before the standard
    # library's.
    if root.name in ("site-packages", "dist-packages") or str(root) in paths:
        return {}
    return {"PYTHONPATH": os.pathsep.join([str(root), *filter(None, paths)])}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
