"""The process behind a local job, which keeps its master running and starts and ends its workers.

`python -m elastic.platforms.local.supervisor JOB_DIR` returns when a supervisor is at work: this
one, gone into the background, or one that was there before (exit code `EXIT_BUSY`).
"""

import argparse
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import elastic
from elastic.errors import PlatformError
from elastic.platforms.local.directory import JobDirectory, Submission
from elastic.platforms.local.files import last_line
from elastic.platforms.local.processes import JOB_UID_VARIABLE, REPLICA_VARIABLE, SHARE_VARIABLE
from elastic.platforms.local.reconciler import Reconciler

logger = logging.getLogger(__name__)

SUPERVISOR_MODULE: Final = "elastic.platforms.local.supervisor"
EXIT_BUSY: Final = 3
START_TIMEOUT_S: Final = 60.0
LOCK_TIMEOUT_S: Final = 1.0


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
